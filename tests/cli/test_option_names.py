"""One thing has one name: as a flag, as a field of a configuration and as an argument in Python; help is complete."""

import inspect
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import seqloom
from seqloom.cli import HINTS, app
from seqloom.config.base import Config
from seqloom.config.cleaning import CleaningConfig
from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit, ReadingConfig
from seqloom.config.decoding import BeamConfig, GreedyConfig, SampleConfig
from seqloom.config.options import NEW_NAMES, Setting, own, settings
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import TrainingConfig
from seqloom.config.vectors import WordVectorsConfig
from seqloom.errors import ConfigError
from seqloom.experiments.compare.plan import Budget
from seqloom.experiments.tune.tuning import tune
from seqloom.inference.model import LoadedModel
from seqloom.inspect.attribution.methods import method_of
from seqloom.tasks.task import TASKS
from seqloom.training.request import FLAGS, RunRequest

CONFIGURATIONS = (DataConfig, ReadingConfig, EncodingConfig, TrainingConfig, RunRequest)
DECODINGS = (GreedyConfig, SampleConfig, BeamConfig)
HELP = {"help", "help_all"}
RENAMED = {"set_": "--set"}  # `set` is a builtin
MOST_SHOWN = 10  # options in --help


def verbs(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb with its name, `data check` among them."""
    for name, command in (group or get_command(app)).commands.items():
        yield from (
            verbs(command, f"{before}{name} ") if hasattr(command, "commands") else [(f"{before}{name}", command)]
        )


VERBS = dict(verbs())
EVERY_VERB = pytest.mark.parametrize("verb", VERBS)


def options(verb: str) -> dict[str, Any]:
    """The options of a verb by the names of its parameters, but those that ask for help."""
    return {one.name: one for one in VERBS[verb].params if one.param_type_name == "option" and one.name not in HELP}


def test_every_verb_is_looked_at() -> None:
    assert {"train", "data check", "data get", "data list", "verify resume", "tune"} <= set(VERBS) and len(VERBS) > 20


# --- flags, fields and arguments -------------------------------------------------------------------------------------


def misnamed(name: str, opts: list[str]) -> bool:
    """Whether the long flag of an option is not the name of its parameter."""
    return RENAMED.get(name, f"--{name.replace('_', '-')}") != max(opts, key=len)


@EVERY_VERB
def test_a_flag_has_the_name_of_its_parameter(verb: str) -> None:
    assert [name for name, one in options(verb).items() if misnamed(name, one.opts)] == []


def test_a_flag_with_another_name_is_seen() -> None:
    assert misnamed("budget", ["--batch-tokens"]) and not misnamed("top_k", ["-k", "--top-k"])


def fields(kind: Any) -> set[str]:
    """The names of the fields of a configuration, or of a NamedTuple."""
    return set(getattr(kind, "__struct_fields__", None) or kind._fields)


@pytest.mark.parametrize("kind", [*CONFIGURATIONS, *DECODINGS], ids=lambda kind: kind.__name__)
def test_a_setting_has_the_name_of_its_field(kind: Any) -> None:
    for one in own(kind):
        assert one.name in fields(kind)
        for part in one.parts:
            assert all(inner.name in fields(part) for inner in own(part))
    for name, one in settings(kind).items():
        assert one.flag == f"--{name.replace('_', '-')}"


# Fields without a flag, and what says them instead.
WITHOUT_FLAG = {
    "train",  # FILE
    "reading",  # its fields have flags
    "bad_rows",  # its fields have flags
    "split",  # its fields have flags
    "duration",  # its fields have flags
    "training",  # of RunRequest: its fields have flags
    "encoding",  # of RunRequest: its fields have flags
}


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_run_has_a_flag_of_train(kind: Any) -> None:
    assert fields(kind) - set(FLAGS) - WITHOUT_FLAG == set()


class Call(NamedTuple):
    """A call in Python and the verb that does the same."""

    function: Callable[..., Any]
    verb: str
    kinds: tuple[Any, ...]  # configurations whose settings are its arguments
    left_out: frozenset[str] = frozenset()  # settings that it does not take
    only_python: frozenset[str] = frozenset()
    only_verb: frozenset[str] = frozenset()


DATA = frozenset(
    {"data", "train", "prompts", "prompt", "sources", "self"}
)  # arguments without names on the command line
SHOWN = frozenset({"show"})  # a function that is called with every event
PAPER = frozenset({"json", "html", "device"})
SEARCHED = frozenset(FLAGS) - set(settings(DataConfig)) - set(settings(EncodingConfig))
CLEANED = {"task", "input", "target", "label_separator", "format", "encoding", "delimiter", "header"}
CLEANED |= {"skip_bad_rows", "max_bad_rows"}
CALLS = {
    "train": Call(
        seqloom.train,
        "train",
        (DataConfig, EncodingConfig, RunRequest, TrainingConfig),
        only_python=SHOWN,
        only_verb=frozenset(
            {"config", "tensorboard", "find_lr", "json", "workers", "processes", "max_restarts", "shard"}
        ),
    ),
    "compare": Call(
        seqloom.compare,
        "compare",
        (DataConfig, EncodingConfig, RunRequest, TrainingConfig),
        left_out=frozenset({"model", "steps", "init", "width", "layers", "heads"}),  # not every baseline has a width
        only_python=SHOWN | SEARCHED,
        only_verb=PAPER | {"distances"},
    ),
    "auto": Call(
        seqloom.auto,
        "auto",
        (DataConfig, EncodingConfig, TrainingConfig),
        left_out=frozenset(settings(TrainingConfig)) - {"metric", "seed", "init"},
        only_python=SHOWN,
        only_verb=PAPER,
    ),
    "tune": Call(
        tune,
        "tune",
        (DataConfig, EncodingConfig, TrainingConfig),
        only_python=SHOWN | SEARCHED,
        only_verb=PAPER,
    ),
    "load_data": Call(
        seqloom.load_data,
        "data check",
        (DataConfig, EncodingConfig),
        only_python=frozenset({"cache"}),
        only_verb=PAPER | {"batch_tokens"},
    ),
    "clean_data": Call(
        seqloom.clean_data,
        "data clean",
        (CleaningConfig, DataConfig),
        left_out=frozenset(settings(DataConfig)) - CLEANED,
        only_verb=PAPER | {"dry_run", "report"},
    ),
    "check_data": Call(seqloom.check_data, "data check", (DataConfig, EncodingConfig), only_verb=PAPER),
    "evaluate": Call(
        LoadedModel.evaluate,
        "evaluate",
        (DataConfig,),
        left_out=frozenset({"dev", "test", *settings(RandomSplit), "split_column", "fold", "folds"}),
        only_python=frozenset({"keep", "decoding", "task", "id", "sequence"}),
        only_verb=PAPER | {"deterministic", "beam_size", "length_penalty"},
    ),
    "generate": Call(
        LoadedModel.generate,
        "generate",
        (SampleConfig, BeamConfig),
        only_python=frozenset({"decoding", "batch_tokens", "coverage_penalty"}),
        only_verb=PAPER | {"file", "out", "output_format", "skip_bad_rows", "input"} | set(settings(ReadingConfig)),
    ),
    "stream": Call(
        LoadedModel.stream,
        "generate",
        (SampleConfig, BeamConfig),
        only_python=frozenset({"decoding", "coverage_penalty"}),
        only_verb=PAPER | {"file", "out", "output_format", "skip_bad_rows", "input"} | set(settings(ReadingConfig)),
    ),
    "translate": Call(
        LoadedModel.translate,
        "translate",
        (BeamConfig,),
        left_out=frozenset({"cuda_graphs"}),  # beam search refuses it
        only_python=frozenset({"decoding", "stop", "repetition_penalty"}),
        only_verb=PAPER
        | {"out", "output_format", "with_input", "deterministic", "skip_bad_rows", "sequence", "input"}
        | set(settings(ReadingConfig)),
    ),
    "vectors": Call(
        seqloom.vectors.train,
        "vectors train",
        (WordVectorsConfig, WordsConfig, ReadingConfig),
        only_python=SHOWN,
        only_verb=PAPER,
    ),
}
EVERY_CALL = pytest.mark.parametrize("name", CALLS)


def wanted(call: Call) -> dict[str, Setting]:
    """The settings that a call takes, by their names."""
    every = {name: one for kind in call.kinds for name, one in settings(kind).items()}
    return {name: one for name, one in every.items() if name not in call.left_out}


def arguments(call: Call) -> Mapping[str, inspect.Parameter]:
    found = inspect.signature(call.function).parameters
    return {name: one for name, one in found.items() if name not in DATA}


@EVERY_CALL
def test_a_call_has_every_setting_of_its_configurations_by_its_name(name: str) -> None:
    call, found = CALLS[name], arguments(CALLS[name])
    assert sorted(set(wanted(call)) - set(found)) == []
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in found.values())
    own_names = {"models", "seeds", "split", "jobs", "budget", "parameters", "trials", "storage", "study", "space"}
    own_names |= {"pruner", "search_seed", "seconds", "tokens", "size", "batch_tokens", "by", "errors", "max_errors"}
    own_names |= {"out", "device", "minutes", "cache", "keep", "decoding", "show", "replace_unknown", "margin", "input"}
    own_names |= {"ship", "dry_run"}
    assert sorted(set(found) - set(wanted(call)) - own_names) == []


@EVERY_CALL
def test_what_is_left_out_in_python_is_chosen_as_on_the_command_line(name: str) -> None:
    call = CALLS[name]
    assert [one for one in wanted(call) if arguments(call)[one].default not in (None, "small", 0.0)] == []


@EVERY_CALL
def test_a_call_and_its_verb_have_the_same_names(name: str) -> None:
    call, found, flags = CALLS[name], set(arguments(CALLS[name])), set(options(CALLS[name].verb))
    assert sorted(flags - found - call.only_verb) == [], "flags that Python does not have"
    assert sorted(found - flags - call.only_python) == [], "arguments that the verb does not have"


def test_an_estimator_has_the_names_of_train() -> None:
    sklearn = pytest.importorskip("seqloom.sklearn")
    train = inspect.signature(seqloom.train).parameters
    for estimator in (sklearn.SeqloomClassifier, sklearn.SeqloomRegressor, sklearn.SeqloomTagger):
        found = set(inspect.signature(estimator).parameters)
        assert {"lr", "epochs", "dev_size", "lowercase"} <= found
        assert sorted(found - set(train) - {"kind", "settings"}) == []


# --- help ------------------------------------------------------------------------------------------------------------


def shown(verb: str, flag: str) -> str:
    return CliRunner().invoke(app, [*verb.split(), flag], env={"COLUMNS": "100"}).output


def flags_in(text: str) -> list[str]:
    """The long flags that a help lists, but those that ask for help."""
    listed = re.split(r"^(?:Arguments|Options):$", text, maxsplit=1, flags=re.MULTILINE)[1].partition("\nHelp:\n")[0]
    return re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", listed, re.MULTILINE)


def faults_of_help(name: str, text: str | None, required: bool) -> list[str]:
    """What is wrong with the help text of an option."""
    if not text:
        return [f"{name} has no help"]
    faults = [] if text.endswith(".") and text[0].isupper() else [f"{name} is no sentence: {text}"]
    return faults if required or "(default" in text else [*faults, f"{name} does not say its default: {text}"]


@EVERY_VERB
def test_every_option_says_what_it_does_and_what_happens_without_it(verb: str) -> None:
    found = [fault for name, one in options(verb).items() for fault in faults_of_help(name, one.help, one.required)]
    assert found == []
    given = [one for one in VERBS[verb].params if one.param_type_name == "argument"]
    assert [one.name for one in given if not one.help] == []


def test_an_option_without_help_or_default_is_seen() -> None:
    assert faults_of_help("lr", None, False) and faults_of_help("lr", "", False)
    assert faults_of_help("lr", "Peak learning rate.", False) and not faults_of_help("out", "Run folder.", True)
    assert not faults_of_help("lr", "Peak learning rate (default: 0.001).", False)


@EVERY_VERB
def test_help_starts_with_two_examples_and_shows_ten_options_at_most(verb: str) -> None:
    text = shown(verb, "--help")
    usage, _, rest = text.partition("\n\n")
    assert usage.startswith("Usage: ") and "{" not in usage and rest.startswith("Examples:\n")
    lines = rest.splitlines()[1:3]
    assert all("seqloom " in line for line in lines), lines
    assert len(flags_in(text)) <= MOST_SHOWN
    assert "[x>=" not in text and "[required]" not in text


@EVERY_VERB
def test_help_offers_help_all_only_where_it_shows_more(verb: str) -> None:
    text, everything = shown(verb, "--help"), shown(verb, "--help-all")
    assert ("--help-all" in text) == (text != everything)


@EVERY_VERB
def test_help_all_shows_every_option_once(verb: str) -> None:
    every = sorted(max(one.opts, key=len) for one in options(verb).values())
    assert sorted(flags_in(shown(verb, "--help-all"))) == every


@EVERY_VERB
def test_common_options_are_options(verb: str) -> None:
    common = VERBS[verb].callback.common
    assert set(common) <= set(options(verb)) and len(common) <= MOST_SHOWN
    assert common or len(options(verb)) <= MOST_SHOWN


def parsed(example: str) -> tuple[str, Any]:
    """The verb of an example and what click makes of it; nothing is run."""
    words = shlex.split(example.rpartition("| ")[2])
    assert words[0] == "seqloom"
    verb = next(name for name in sorted(VERBS, key=len, reverse=True) if words[1:][: len(name.split())] == name.split())
    return verb, VERBS[verb].make_context(verb, words[1 + len(verb.split()) :])


@EVERY_VERB
def test_the_examples_of_a_verb_can_be_typed(verb: str) -> None:
    examples = VERBS[verb].callback.examples
    assert len(examples) >= 2 and len(set(examples)) == len(examples)
    for example in examples:
        assert parsed(example)[0] == verb


def test_an_example_that_cannot_be_typed_is_seen() -> None:
    for wrong in ("seqloom train a.csv --rate 1", "seqloom predict", "seqloom train a.csv --epochs many"):
        with pytest.raises(Exception, match=r"(?i)No such option|Missing|valid int"):
            parsed(wrong)


# --- old names -------------------------------------------------------------------------------------------------------


def answer(verb: str, flag: str) -> str:
    """What a verb says about a flag that it does not have."""
    required = ["x"] * sum(one.required for one in VERBS[verb].params if one.param_type_name == "argument")
    result = CliRunner().invoke(app, [*verb.split(), *required, flag, "1"], env={"COLUMNS": "200"})
    assert result.exit_code != 0
    return " ".join(result.output.split()) or str(result.exception)


@EVERY_VERB
def test_an_old_flag_is_answered_with_the_new_one(verb: str) -> None:
    mine = options(verb)
    for old, names in NEW_NAMES.items():
        new = next((name for name in ((names,) if isinstance(names, str) else names) if name in mine), None)
        if new is not None and old not in mine:
            right = HINTS.get(old, max(mine[new].opts, key=len))
            assert right in answer(verb, f"--{old.replace('_', '-')}"), old


@pytest.mark.parametrize(
    ("flag", "old", "new"),
    [
        ("--head", "class", "softmax"),
        ("--overlong", "cut", "truncate"),
        ("--overlong", "refuse", "error"),
        ("--schedule", "inverse-root", "inverse-sqrt"),
    ],
)
def test_an_old_value_of_an_option_is_answered_with_the_new_one(flag: str, old: str, new: str) -> None:
    result = CliRunner().invoke(app, ["train", "x.csv", flag, old])
    assert f"unknown name '{old}'. Fix: it is called '{new}' now." in str(result.exception)


def test_an_old_attribution_method_and_an_old_budget_are_answered_with_the_new_ones() -> None:
    with pytest.raises(ConfigError, match="it is called 'integrated_gradients' now"):
        method_of("integrated")
    with pytest.raises(ConfigError, match="it is called 'tokens' now"):
        Budget.of("symbols", {}, epochs=False)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--steps", "ten", "expected an integer, found 'ten'"),
        ("--steps", "1.5", "expected an integer, found '1.5'"),
        ("--lr", "fast", "expected a number, found 'fast'"),
    ],
)
def test_a_value_that_is_no_number_is_answered_in_one_plain_sentence(flag: str, value: str, message: str) -> None:
    result = CliRunner().invoke(app, ["train", "x.csv", flag, value], env={"COLUMNS": "200"})
    assert f"Invalid value for '{flag}': {message}." in " ".join(result.output.split())


@EVERY_VERB
def test_a_flag_with_a_typing_error_is_answered_with_the_right_one(verb: str) -> None:
    for flag in (max(one.opts, key=len) for one in options(verb).values()):
        wrong = (
            f"{flag}s" if f"{flag}s" not in {max(one.opts, key=len) for one in options(verb).values()} else f"{flag}z"
        )
        if wrong[2:].replace("-", "_") not in NEW_NAMES:
            said = answer(verb, wrong)
            assert flag in said or f"'{flag[2:]}'" in said or "have it" in said or "has it" in said, (wrong, said)


@EVERY_VERB
def test_a_flag_of_another_verb_is_answered_with_the_verbs_that_have_it(verb: str) -> None:
    others = {name: title for title in VERBS for name in options(title)}
    for name in ("lr", "beam_size", "where", "trials", "view", "html"):
        if name not in options(verb):
            said = answer(verb, f"--{name.replace('_', '-')}")
            assert others[name].split()[0] in said or "there is no option" in said, said


def test_resume_needs_no_flag() -> None:
    assert all("run the same command again to resume" in answer(verb, "--resume") for verb in ("train", "compare"))


def test_a_flag_that_another_verb_has_under_a_new_name_is_answered_too() -> None:
    assert "seqloom train, graph, vectors train have --lr" in answer("evaluate", "--rate")


def test_no_old_name_is_the_name_of_a_setting() -> None:
    every = {name for kind in (*CONFIGURATIONS, *DECODINGS) for name in settings(kind)}
    assert set(NEW_NAMES) & every == {"test"}  # a file of train, and what evaluate is told by --split test
    known = every | {name for verb in VERBS for name in options(verb)}
    for names in NEW_NAMES.values():
        assert {names} if isinstance(names, str) else set(names) <= known


@EVERY_CALL
def test_python_answers_an_old_argument_with_the_new_one(name: str) -> None:
    call, found = CALLS[name], arguments(CALLS[name])
    for old, names in NEW_NAMES.items():
        new = next((one for one in ((names,) if isinstance(names, str) else names) if one in found), None)
        if new is not None and old not in found:
            with pytest.raises(seqloom.SeqloomError, match=f"has no argument '{old}'. Fix: it is called '{new}' here"):
                call.function(**{old: 1})


def test_every_metric_that_can_choose_checkpoints_is_named_in_the_help() -> None:
    tasks = [pkgutil.resolve_name(path) for path in TASKS.values()]
    named = set(re.findall(r"\w+", FLAGS["metric"].help))
    assert {metric.name for task in tasks for metric in task.metrics} <= named


def test_every_kind_of_part_can_be_named_in_the_help() -> None:
    for name in ("optimizer", "schedule", "batching", "tokenizer"):
        held = [kind for kind in get_args(FLAGS[name].annotation) if issubclass(kind, Config)]
        assert held and all(kind.kind() in FLAGS[name].help for kind in held)
