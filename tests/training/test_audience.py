"""Errors speak to those who read them: flags in the shell, arguments in Python."""

import re
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import seqloom
from seqloom import search, vectors
from seqloom.cli import app
from seqloom.cli.options import takes
from seqloom.config.options import as_arguments, strict
from seqloom.errors import ConfigError, RejectedError, SeqloomError
from seqloom.events import finished
from seqloom.experiments.doctor import diagnose
from seqloom.inference.model import LoadedModel
from seqloom.inspect.states import PROPERTIES
from seqloom.search.search import Searcher
from seqloom.training.request import FLAGS

NAMES = sorted(FLAGS)
FLAG = re.compile("|".join(rf"(?<![\w-]){one.flag}(?![\w-])" for one in FLAGS.values()))
ARGUMENT = re.compile("|".join(rf"\b{name}=" for name in NAMES))
WRONG = (-1, "zzz")
BAD = [{name: value} for name in NAMES for value in WRONG]
BAD += [  # settings that contradict each other, or the data
    {"epochs": 3, "steps": 4},
    {"batching": "by-length", "batch_rows": 4},
    {"word_vectors_limit": 3},
    {"dev_size": 0.6, "test_size": 0.6},
    {"folds": 3, "fold": 3},
    {"optimizer": "newton", "lr": 0.1},
    {"template": "{text}"},
    {"unit": "file"},
    {"target": "lable"},
    {"input": "none"},
    {"task": "translate"},
    {"task": "tag"},
    {"task": "regress", "target": "label"},
    {"sequence": "text"},
    {"group": "author"},
    {"split_column": "part"},
    {"format": "conll"},
    {"init": "nowhere"},
    {"head": "crf"},
    {"char_encoder": "cnn", "tokenizer": "bpe"},
    {"max_length": 1, "overlong": "error"},
    {"batching": "streams"},
    {"pooling": "mean"},
    {"freeze": "no.such.weight"},
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that training refuses in the end, however good the settings are: most labels are missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.csv").write_text("text,label\n" + "red old,a\nblue,\n" * 12)
    return tmp_path / "a.csv"


def error_of(call: Any) -> SeqloomError | None:
    try:
        call()
    except SeqloomError as error:
        return error
    return None


@pytest.mark.slow
def test_no_error_in_python_has_a_flag(data: Path) -> None:
    found = 0
    for named in BAD:
        error = error_of(lambda named=named: seqloom.train(data, size="nano", **named) if "size" not in named else None)
        if error is not None:
            found += 1
            details = [str(line) for line in error.details] if isinstance(error, RejectedError) else []
            for text in (str(error), error.problem, error.fix, *details):
                assert not FLAG.search(text), (named, text)
    assert found > 0.9 * len(BAD)


@pytest.mark.slow
def test_no_error_in_the_shell_has_an_argument(data: Path) -> None:
    found = 0
    for named in BAD[::5]:
        options = [part for name, value in named.items() for part in (FLAGS[name].flag, str(value))]
        done = CliRunner().invoke(app, ["train", str(data), *options])
        if isinstance(done.exception, SeqloomError):
            found += 1
            assert not ARGUMENT.search(str(done.exception)), (named, str(done.exception))
    assert found > len(BAD) // 10


PUBLIC = [getattr(home, name) for home in (seqloom, vectors, search) for name in home.__all__]
METHODS = [
    member
    for kind in (LoadedModel, Searcher)
    for name, member in vars(kind).items()
    if callable(member) and not name.startswith("_")
]
CONTEXTS = (seqloom.recording, seqloom.using)  # their errors have no flags


def is_strict(function: Any) -> bool:
    return getattr(function, "__code__", None) is public.__code__


def test_errors_of_every_public_function_are_worded_for_python() -> None:
    functions = [one for one in (*PUBLIC, *METHODS, diagnose) if isfunction(one) and one not in CONTEXTS]
    assert len(functions) > 30 and [one.__qualname__ for one in functions if not is_strict(one)] == []


def stepwise() -> Iterator[int]:
    yield 1
    raise ConfigError("--batch-tokens 0", fix="use --batch-tokens 8")


def test_an_error_that_a_generator_raises_late_is_worded_too() -> None:
    @strict
    def steps(*, batch_tokens: int = 1) -> Iterator[int]:
        del batch_tokens
        yield from stepwise()

    found = steps()
    assert next(found) == 1
    with pytest.raises(ConfigError, match=r"^batch_tokens=0\. Fix: use batch_tokens=8\.$"):
        next(found)


@pytest.mark.slow
def test_no_error_of_search_vectors_and_loaded_models_has_a_flag(data: Path) -> None:
    folder = data.parent
    (folder / "docs.csv").write_text("id,text\n1,a dog barks\n2,two cats\n")
    (folder / "twice.csv").write_text("id,text\n1,a dog barks\n1,two cats\n")
    finished(search.build_index(folder / "index", None, search.Collection(folder / "docs.csv")))
    rows = "".join(f"{word} day,{label}\n" for _ in range(9) for word, label in (("good", "a"), ("bad", "b")))
    (folder / "rows.csv").write_text(f"text,label\n{rows}")
    model = seqloom.load(seqloom.train(folder / "rows.csv", model="bag", size="nano", steps=1, out="run").folder)
    errors = [
        error_of(call)
        for call in (
            lambda: finished(search.build_index("new", None, search.Collection(folder / "twice.csv"))),
            lambda: finished(search.build_index("new", None, search.Collection(folder / "docs.csv", id="nope"))),
            lambda: finished(search.build_index("index", None, search.Collection(folder / "rows.csv"))),
            lambda: search.searcher(search.open_index(folder / "index"), mode="vectors"),
            lambda: search.searcher(search.open_index(folder / "index"), mode="zzz"),
            lambda: list(model.predict_stream(["a b"])),
            lambda: model.inspect("good day").probe(next(iter(PROPERTIES))),
            lambda: model.evaluate(folder / "rows.csv", by="shops"),
            lambda: vectors.train(folder / "docs.csv", out=folder / "docs.csv"),
        )
    ]
    assert [at for at, error in enumerate(errors) if error is None] == []
    for error in errors:
        assert not re.search(r"(?<![\w-])--[a-z]", re.sub(r"`seqloom [^`]*`", "", str(error))), error


@strict
def public(*, batch_tokens: int = 1) -> None:
    raise ConfigError(f"--batch-tokens {batch_tokens}", fix="use --batch-tokens 8")


def test_a_verb_keeps_the_flags_in_errors_of_public_functions_and_python_has_none_afterwards() -> None:
    verbs = typer.Typer()

    @verbs.command()
    @takes(examples=("a",))
    def verb() -> None:
        public(batch_tokens=0)

    for _ in range(2):
        assert str(CliRunner().invoke(verbs, []).exception) == "--batch-tokens 0. Fix: use --batch-tokens 8."
        with pytest.raises(ConfigError, match=r"^batch_tokens=0\. Fix: use batch_tokens=8\.$"):
            public(batch_tokens=0)


def test_a_text_after_use_is_the_value_of_its_argument_and_other_words_are_not() -> None:
    for text, expected in {
        "--target shops: there is no such column": 'target="shops": there is no such column',
        "build one: `seqloom index FILE --out INDEX`": "build one: `seqloom index FILE --out INDEX`",
        "name the encoding of the file: --encoding NAME": 'name the encoding of the file: encoding="NAME"',
        "use --encoding cp1252 if it is": 'use encoding="cp1252" if it is',
        "use --encoding utf-16-le.": 'use encoding="utf-16-le".',
        "leave --init out": "leave init out",
        "of --init reads text": "of init reads text",
    }.items():
        assert as_arguments(text, seqloom.train) == expected


def test_a_value_stays_with_its_name(data: Path) -> None:
    with pytest.raises(ConfigError, match="batch_tokens") as refused:
        seqloom.train(data, batch_tokens=0)
    assert "--" not in str(refused.value)
    with pytest.raises(RejectedError, match=r"Did you mean target=\"label\"\?") as rejected:
        seqloom.train(data, target="lable")
    assert "--target" not in str(rejected.value.details)
