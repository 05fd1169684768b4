"""A setting is stated once: flags, calls in Python and estimators have the names, types and defaults of its field."""

import inspect
import shlex
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from typer.main import get_command

import seqloom
from cli.test_option_names import CALLS, arguments, wanted
from seqloom.cli import app
from seqloom.config.base import plain
from seqloom.config.data import BadRows, DataConfig, EncodingConfig, GivenSplit, RandomSplit, ReadingConfig
from seqloom.config.decoding import BeamConfig, SampleConfig
from seqloom.config.options import Setting, own, said, settings, typed, typed_changes, with_flags
from seqloom.config.training import (
    ConstantConfig,
    CosineConfig,
    NewtonConfig,
    RunConfig,
    SgdConfig,
    StepsConfig,
    StreamsConfig,
    TrainingConfig,
)
from seqloom.errors import ConfigError
from seqloom.inference.model import LoadedModel
from seqloom.training.request import RunRequest


def _types(annotation: Any) -> set[str]:
    """The types that may be given, without ranges; where a field holds several, a call may give any sequence."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*map(_types, parts))
    if origin is Annotated:
        return _types(parts[0])
    if origin in (tuple, Sequence):
        return {f"sequence of {one}" for one in _types(parts[0])}
    if origin is Literal:  # the order of its values does not matter
        return {f"typing.Literal{sorted(parts, key=str)}"}
    return {str(annotation)}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_takes_what_its_field_takes_or_what_is_typed(name: str) -> None:
    """A part may be named; a share may be text, a file a path; several names may be one."""
    call, text = (
        CALLS[name],
        {"<class 'str'>", "<class 'pathlib.Path'>", str(type(None)), "<class 'pathlib._local.Path'>"},
    )
    for field, one in wanted(call).items():
        given, held = _types(arguments(call)[field].annotation), _types(plain(one.annotation))
        several = {part for part in given if part.startswith("sequence of ")}
        alone = {part.removeprefix("sequence of ") for part in several}
        assert given - held - text - several - alone == set(), field
        names = {part for part in held if part.startswith("typing.Literal") and str(str) in given}
        assert held - given - names - {str(type(None)), f"sequence of {str}"} == set(), field


OF_SEARCH = {"tune": {"seconds"}, "compare": {"size", "tokens", "seconds"}}  # arguments of their own


def _reached(call: Callable[..., Any], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, place: str) -> Any:
    """What a call hands to the function that sorts its settings."""
    found: list[Any] = []

    def caught(*arguments: Any, **_: Any) -> Any:
        found.extend(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(place, caught)
    with pytest.raises(KeyboardInterrupt):
        call(**given)
    return next(one for one in found if isinstance(one, dict))


@pytest.mark.parametrize(
    ("name", "place", "further"),
    [
        ("train", "seqloom.training.run.requested", {}),
        ("compare", "seqloom.experiments.compare.comparison.requested", {"out": "x", "models": ["bag"]}),
        ("tune", "seqloom.experiments.tune.tuning.requested", {"out": "x"}),
        ("load_data", "seqloom.data.check.data_config", {}),
        ("check_data", "seqloom.data.check.data_config", {}),
        ("generate", "seqloom.inference.model.chosen", {"prompts": []}),
        ("stream", "seqloom.inference.model.chosen", {"prompt": ""}),
        ("translate", "seqloom.inference.model.translating", {"sources": []}),
    ],
)
def test_every_setting_of_a_call_arrives_under_its_name(
    name: str, place: str, further: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = CALLS[name].function
    fields = set(wanted(CALLS[name])) - OF_SEARCH.get(name, set())
    marks: dict[str, Any] = {field: object() for field in fields} | further
    if name in ("generate", "stream", "translate"):
        model: Any = object.__new__(LoadedModel)
        model.task = model.model = None
        marks["self"] = model
    found = _reached(call, marks, monkeypatch, place)
    assert {field: found.get(field) for field in fields} == {field: marks[field] for field in fields}


def test_an_unknown_argument_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"load_data has no argument 'inptu'\. Did you mean 'input'"):
        seqloom.load_data("a.csv", inptu="text")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"has no argument 'least'\. Fix: it is called 'min_count' here"):
        seqloom.check_data("a.csv", least=2)  # type: ignore[call-arg]


def _flags(*verbs: str) -> dict[str, Any]:
    command: Any = get_command(app)
    for verb in verbs:
        command = command.commands[verb]
    return {one.name: one for one in command.params}


@pytest.mark.parametrize("verb", [["train"], ["compare"], ["tune"], ["data", "check"]])
def test_a_verb_has_the_flags_of_its_configurations_with_their_help(verb: list[str]) -> None:
    flags = _flags(*verb)
    wanted = settings(DataConfig) | settings(EncodingConfig)
    wanted |= settings(TrainingConfig) | settings(RunRequest) if verb == ["train"] else {}
    assert len(wanted) > 25
    for name, setting in wanted.items():
        assert setting.flag in flags[name].opts
        if (verb, name) != (["data", "check"], "tokenizer"):  # its default does not depend on the task
            assert flags[name].help.startswith(setting.help)


def test_the_page_about_training_tells_every_setting_in_the_words_of_its_help() -> None:
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
    every = settings(RunRequest) | settings(TrainingConfig) | settings(DataConfig) | settings(EncodingConfig)
    for one in every.values():
        metavar = f" {one.described.metavar}" if one.described.metavar else ""
        assert f"\n| `{one.flag}{metavar}` | {one.help}" in page, one.flag


def _every() -> Iterator[Setting]:
    for kind in (RunConfig, EncodingConfig, RunRequest, SampleConfig, BeamConfig):
        yield from settings(kind).values()


def test_every_flag_has_a_help_of_one_sentence_and_a_place_to_write() -> None:
    for one in _every():
        assert one.help.endswith(".") and "{names}" not in one.help
        assert one.flag.startswith("--") and one.name.isidentifier()
        assert one.described.metavar or one.annotation is bool or bool in get_args(one.annotation)


@pytest.mark.parametrize(
    "config",
    [
        DataConfig(train=("a",), split=RandomSplit(dev_size=0.2, test_size=0.1, split_seed=4, group="user")),
        DataConfig(train=("a",), bad_rows=BadRows(skip_bad_rows=True, max_bad_rows=0.25), task="tag", id="name"),
        DataConfig(train=("a",), reading=ReadingConfig(delimiter=";", header=False), input=("a b", "c")),
    ],
)
def test_flags_that_tell_what_changed_make_it_again(config: DataConfig) -> None:
    words = shlex.split(" ".join(typed_changes(config)))
    given: dict[str, Any] = {}
    for one in settings(DataConfig).values():
        values = [words[at + 1] for at, word in enumerate(words) if word == one.flag and at + 1 < len(words)]
        many = get_origin(plain(one.annotation)) is Annotated and get_origin(get_args(one.annotation)[0]) is tuple
        if bool in (one.annotation, *get_args(one.annotation)):
            given |= {one.name: True} if one.flag in words else {}
        elif values:
            given[one.name] = values if many else int(values[0]) if values[0].isdecimal() else values[0]
    if "--no-header" in words:
        given["header"] = False
    assert with_flags(DataConfig(train=("a",)), given) == config


def test_what_is_the_default_is_not_typed() -> None:
    assert list(typed_changes(DataConfig(train=("a",), split=GivenSplit()))) == []
    assert list(typed_changes(DataConfig(train=("a",), split=RandomSplit()))) == []


def _value(text: str) -> Any:
    return int(text) if text.isdecimal() else float(text) if text.replace(".", "").isdecimal() else text


@pytest.mark.parametrize(
    "config",
    [
        TrainingConfig(),
        TrainingConfig(duration=StepsConfig(steps=9), batching=StreamsConfig(batch_rows=4, row_length=20)),
        TrainingConfig(optimizer=SgdConfig(momentum=0.5, weight_decay=0.1), schedule=CosineConfig(warmup=7)),
        TrainingConfig(optimizer=NewtonConfig(l2=(0.3,)), lr=1.0, schedule=ConstantConfig()),
        TrainingConfig(optimizer=NewtonConfig(l2=(1.0, 0.3)), lr=1.0, schedule=ConstantConfig()),
    ],
)
def test_parts_are_typed_as_they_are_read(config: TrainingConfig) -> None:
    for one in own(TrainingConfig):
        if one.parts:
            words = typed(one, getattr(config, one.name)).split()
            flags, values = words[::2], map(_value, words[1::2])
            given = dict(zip((flag[2:].replace("-", "_") for flag in flags), values, strict=True))
            assert said(TrainingConfig, given)[one.name] == getattr(config, one.name)


def test_a_flag_of_another_kind_is_refused_with_the_kind_that_has_it() -> None:
    for given, problem in (
        ({"tokenizer": "bytes", "vocab_size": 500}, "--vocab-size is a setting of words, characters, bpe, unigram"),
        ({"tokenizer": "bpe", "word_split": "space"}, "--word-split is a setting of words, not of bpe"),
        (
            {"optimizer": "newton", "weight_decay": 0.1},
            "--weight-decay is a setting of sgd, adam, adamw",
        ),
    ):
        kind = EncodingConfig if "tokenizer" in given else TrainingConfig
        with pytest.raises(ConfigError, match=f"^{problem}"):
            said(kind, given)
    with pytest.raises(ConfigError, match=r"^--split-column and --group both set how to split the rows"):
        said(DataConfig, {"split_column": "part", "group": "user"})


def test_an_estimator_has_the_names_types_and_defaults_of_its_settings() -> None:
    sklearn = pytest.importorskip("seqloom.sklearn")
    parameters = inspect.signature(sklearn.SeqloomClassifier).parameters
    assert parameters["lowercase"].default is None  # the task decides
    assert parameters["tokenizer"].default == EncodingConfig().tokenizer.kind()
    assert parameters["seed"].default == TrainingConfig().seed
    train = inspect.signature(seqloom.train).parameters
    for name in ("model", "size", "epochs", "steps", "lr", "dropout"):
        assert parameters[name].default is train[name].default is None
    assert parameters["lr"].annotation == train["lr"].annotation
