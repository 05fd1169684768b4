"""A setting is stated once: flags, calls in Python and estimators have the names, types and defaults of its field."""

import inspect
import shlex
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from typer.main import get_command

import seqloom
from seqloom.cli import app
from seqloom.config.base import plain
from seqloom.config.data import BadRows, DataConfig, EncodingConfig, GivenSplit, RandomSplit, ReadingConfig
from seqloom.config.decoding import BeamConfig, SampleConfig
from seqloom.config.options import Setting, own, said, settings, typed, typed_changes, with_flags
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import (
    AnyLength,
    CosineConfig,
    RunConfig,
    SgdConfig,
    StepsConfig,
    StreamsConfig,
    TrainingConfig,
)
from seqloom.data.check import Names
from seqloom.errors import ConfigError
from seqloom.experiments.tune.tuning import tune
from seqloom.inference.model import LoadedModel
from seqloom.training.wishes import Wishes

LENGTHS = {kind.kind() for kind in get_args(AnyLength)}
OWN = {"self", "data", "train", "out", "device", "show", "encoding"}  # parameters that are no fields, or whole tables
OF_COMPARISON = {"models", "budget", "amount", "seeds", "jobs", "size", "test"}
OF_SEARCH = {"models", "trials", "seconds", "storage", "study", "space", "pruner", "jobs", "seed"}
OF_EVALUATION = {"part", "keep", "budget", "by", "errors", "most", "decoding", "reading"}  # a dict is part of one

Call = tuple[Callable[..., Any], tuple[Any, ...], set[str], set[str]]  # the call, its configurations, its own, left out
CALLS: dict[str, Call] = {
    "train": (seqloom.train, (DataConfig, Wishes, TrainingConfig), OWN | LENGTHS, {"training"}),
    "compare": (
        seqloom.compare,
        (DataConfig, Wishes, TrainingConfig),
        OWN | LENGTHS | OF_COMPARISON,
        {"training", "model", "test", "size"},
    ),
    "tune": (tune, (DataConfig, TrainingConfig), OWN | LENGTHS | OF_SEARCH, {"seed"}),
    "load_data": (seqloom.load_data, (DataConfig,), OWN | {"cache"}, set()),
    "check_data": (seqloom.check_data, (DataConfig,), OWN | {"budget"}, set()),
    "evaluate": (LoadedModel.evaluate, (DataConfig,), OWN | OF_EVALUATION, {"dev", "test", "reading"}),
    "generate": (LoadedModel.generate, (SampleConfig, BeamConfig), OWN | {"prompts", "decoding", "budget"}, set()),
    "stream": (LoadedModel.stream, (SampleConfig, BeamConfig), OWN | {"prompt", "decoding"}, set()),
    "translate": (
        LoadedModel.translate,
        (BeamConfig,),
        OWN | {"sources", "decoding", "budget", "replace_unknown"},
        set(),
    ),
}


def _types(annotation: Any) -> set[str]:
    """The types that may be given, without ranges; where a field holds several, a call may give any sequence."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*map(_types, parts))
    if origin is Annotated:
        return _types(parts[0])
    if origin in (tuple, Sequence):
        return {f"sequence of {one}" for one in _types(parts[0])}
    return {str(annotation)}


@pytest.mark.parametrize("name", CALLS)
def test_the_signature_of_a_call_is_that_of_its_configurations(name: str) -> None:
    call, kinds, other, left_out = CALLS[name]
    parameters = inspect.signature(call).parameters
    fields = {field: plain(one) for kind in kinds for field, one in get_type_hints(kind, include_extras=True).items()}
    wanted = {field: one for field, one in fields.items() if field not in left_out | {"train"}}
    assert set(parameters) - other == set(wanted) - other
    assert set(wanted) <= set(parameters)
    for field, annotation in wanted.items():
        one_or_several = _types(Names) if field in ("dev", "test", "input", "target") else set()
        assert _types(parameters[field].annotation) == _types(annotation) | one_or_several | {str(type(None))}, field
        assert parameters[field].default is None, field
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values())


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
        ("train", "seqloom.training.run.settings_of", {}),
        ("compare", "seqloom.experiments.compare.comparison.settings_of", {"out": "x", "models": ["bag"]}),
        ("tune", "seqloom.experiments.tune.tuning.settings_of", {"out": "x"}),
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
    call, kinds, _, left_out = CALLS[name]
    fields = {field for kind in kinds for field in get_type_hints(kind)} - left_out - {"train"}
    fields |= (LENGTHS if TrainingConfig in kinds else set()) - ({"seconds"} if name == "tune" else set())
    marks: dict[str, Any] = {field: object() for field in fields} | further
    if name in ("generate", "stream", "translate"):
        model: Any = object.__new__(LoadedModel)
        model.task = model.model = None
        marks["self"] = model
    found = _reached(call, marks, monkeypatch, place)
    assert {field: found.get(field) for field in fields} == {field: marks[field] for field in fields}


def test_a_name_that_no_call_has_is_refused_with_its_nearest_or_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"load_data has no setting 'inptu'\. Fix: did you mean 'input'"):
        seqloom.load_data("a.csv", inptu="text")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"Fix: reading=ReadingConfig\(delimiter=\.\.\.\)"):
        seqloom.check_data("a.csv", delimiter=";")  # type: ignore[call-arg]


def _flags(*verbs: str) -> dict[str, Any]:
    command: Any = get_command(app)
    for verb in verbs:
        command = command.commands[verb]
    return {one.name: one for one in command.params}


@pytest.mark.parametrize("verb", [["train"], ["compare"], ["tune"], ["data", "check"]])
def test_a_verb_has_the_flags_of_its_configurations_with_their_help(verb: list[str]) -> None:
    flags = _flags(*verb)
    wanted = settings(DataConfig) | settings(EncodingConfig)
    wanted |= settings(TrainingConfig) | settings(Wishes) if verb == ["train"] else {}
    assert len(wanted) > 25
    for name, setting in wanted.items():
        assert setting.flag in flags[name].opts
        assert flags[name].help.startswith(setting.help)


def test_the_page_about_training_tells_every_setting_in_the_words_of_its_help() -> None:
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
    every = settings(Wishes) | settings(TrainingConfig) | settings(DataConfig) | settings(EncodingConfig)
    for one in every.values():
        metavar = f" {one.described.metavar}" if one.described.metavar else ""
        assert f"\n| `{one.flag}{metavar}` | {one.help}" in page, one.flag


def _every() -> Iterator[Setting]:
    for kind in (RunConfig, EncodingConfig, Wishes, SampleConfig, BeamConfig):
        yield from settings(kind).values()


def test_every_flag_has_a_help_of_one_sentence_and_a_place_to_write() -> None:
    for one in _every():
        assert one.help.endswith(".") and "{names}" not in one.help
        assert one.flag.startswith("--") and one.name.isidentifier()
        assert one.described.metavar or one.annotation is bool or bool in get_args(one.annotation)


@pytest.mark.parametrize(
    "config",
    [
        DataConfig(train=("a",), split=RandomSplit(dev=0.2, test=0.1, seed=4, group="user")),
        DataConfig(train=("a",), bad_rows=BadRows(skip=True, share=0.25), task="tag", id="name"),
        DataConfig(train=("a",), reading=ReadingConfig(delimiter=";", header=False), input=("a b", "c")),
    ],
)
def test_flags_that_tell_what_changed_make_it_again(config: DataConfig) -> None:
    words = shlex.split(" ".join(typed_changes(config)))
    given: dict[str, Any] = {}
    for one in settings(DataConfig).values():
        values = [words[at + 1] for at, word in enumerate(words) if word == one.flag and at + 1 < len(words)]
        many = get_origin(plain(one.annotation)) is Annotated and get_origin(get_args(one.annotation)[0]) is tuple
        if values:
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
        TrainingConfig(length=StepsConfig(count=9), feed=StreamsConfig(rows=4, length=20)),
        TrainingConfig(optimiser=SgdConfig(momentum=0.5, decay=0.1), schedule=CosineConfig(warm_up=7)),
    ],
)
def test_parts_are_typed_as_they_are_read(config: TrainingConfig) -> None:
    for one in own(TrainingConfig):
        if one.parts:
            words = typed(one, getattr(config, one.field)).split()
            flags, values = words[::2], map(_value, words[1::2])
            given = dict(zip((flag[2:].replace("-", "_") for flag in flags), values, strict=True))
            assert said(TrainingConfig, given)[one.field] == getattr(config, one.field)


def test_a_flag_of_another_kind_is_refused_with_the_kind_that_has_it() -> None:
    for given, problem in (
        ({"tokenizer": "bytes", "vocabulary": 500}, "--vocabulary is a setting of words, characters, bpe, unigram"),
        ({"tokenizer": "bpe", "word_split": "space"}, "--word-split is a setting of words, not of bpe"),
        ({"optimiser": "newton", "decay": 0.1}, "--decay is a setting of sgd, adam, adamw, not of newton"),
    ):
        kind = EncodingConfig if "tokenizer" in given else TrainingConfig
        with pytest.raises(ConfigError, match=f"^{problem}"):
            said(kind, given)
    with pytest.raises(ConfigError, match=r"^--split-column and --group both say how rows are divided"):
        said(DataConfig, {"split_column": "part", "group": "user"})


def test_an_estimator_has_the_names_types_and_defaults_of_its_settings() -> None:
    sklearn = pytest.importorskip("seqloom.sklearn")
    parameters = inspect.signature(sklearn.SeqloomClassifier).parameters
    assert parameters["lower"].default is WordsConfig().lower
    assert parameters["tokenizer"].default == EncodingConfig().tokenizer.kind()
    assert parameters["seed"].default == TrainingConfig().seed
    train = inspect.signature(seqloom.train).parameters
    for name in ("model", "size", "epochs", "steps", "rate", "dropout"):
        assert parameters[name].default is train[name].default is None
    assert parameters["rate"].annotation == train["rate"].annotation
