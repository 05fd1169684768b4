"""A refused table: the error names all options with which it opens, and they do open it."""

import ast
import random
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import seqloom
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.options import added_arguments
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.problems import Ledger
from seqloom.errors import RejectedError, SeqloomError

WORDS = ["good", "great", "nice", "fine", "bad", "awful", "poor", "plot", "actor", "film", "story", "music"]


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=6))


def table(path: Path, row: Callable[[random.Random], str], encoding: str = "utf-8", first: str = "") -> Path:
    rng = random.Random(0)
    rows = [*([first] if first else []), *(row(rng) for _ in range(60))]
    path.write_text("\n".join([*rows, ""]), encoding=encoding)
    return path


ROWS: dict[str, tuple[str, Callable[[random.Random], str], str, str]] = {  # name: file, row, encoding, options
    "pairs": ("a.tsv", lambda rng: f"{text(rng)}\t{text(rng)}", "utf-8", "--no-header --task translate"),
    "digits": ("a.tsv", lambda rng: f"{text(rng)}\t{rng.randrange(2)}", "utf-8", "--no-header --task classify"),
    "stars": ("a.csv", lambda rng: f"{text(rng)},{rng.randrange(1, 6)}", "utf-8", "--no-header --task classify"),
    "prices": ("a.csv", lambda rng: f"{text(rng)},{rng.random():.4f}", "utf-8", "--no-header --task regress"),
    "codes": (
        "a.tsv",
        lambda rng: f"0{rng.random():.9f}\t0{rng.random():.9f}",
        "utf-8",
        "--no-header --task translate",
    ),
    "commas": (
        "a.csv",
        lambda rng: f"{text(rng)}{', ' + text(rng) if rng.random() < 0.9 else ''};{rng.choice('ab')}",
        "utf-8",
        "--delimiter ';' --no-header --task classify",
    ),
    "all": ("a.csv", lambda rng: f"café {text(rng)};{rng.choice('ab')}", "cp1252", "--encoding cp1252 --delimiter ';'"),
}


def options_in(error: SeqloomError) -> str:
    found = re.search(r"Fix: add (--.*?)(?: \(or|;|\.$)(?! --)", str(error).replace("';'", "SEMICOLON"))
    assert found is not None, str(error)
    return found[1].replace("SEMICOLON", "';'")


def reopened(path: Path, options: str) -> Dataset:
    """The data with the options as a shell would pass them."""
    call = ast.parse(f"open_data({added_arguments(options)})", mode="eval").body
    assert isinstance(call, ast.Call)
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    reading = {name: named.pop(name) for name in ("encoding", "delimiter", "header") if name in named}
    columns = {name: (value,) if isinstance(value, str) else value for name, value in named.items() if name != "task"}
    config = DataConfig(train=(str(path),), reading=ReadingConfig(**reading), task=named.get("task"), **columns)
    return open_data(config, Ledger())


@pytest.mark.parametrize("case", ROWS)
def test_the_error_of_a_table_without_a_header_has_all_options_that_open_it(case: str, tmp_path: Path) -> None:
    name, row, encoding, expected = ROWS[case]
    path = table(tmp_path / name, row, encoding)
    with pytest.raises(RejectedError) as refused:
        open_data(DataConfig(train=(str(path),)), Ledger())
    options = options_in(refused.value)
    assert options.startswith(expected) and "--input 1 --target 2" in options
    opened = reopened(path, options)
    assert len(list(opened.rows(Ledger()))) == 60


def test_three_columns_are_a_pair_of_texts_and_a_label(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", lambda rng: f"{text(rng)}\t{rng.choice('ab')}\t{text(rng)}")
    with pytest.raises(RejectedError, match="Fix: add --no-header --task classify --input 1 --input 3 --target 2"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_names_that_are_not_known_are_proposed_with_their_flags(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{rng.choice('ab')},{text(rng)}", first="kind,what they wrote")
    with pytest.raises(RejectedError, match=r"Fix: add --task classify --input 'what they wrote' --target kind"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_nothing_is_proposed_if_it_is_not_clear(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.choice('ab')},{rng.choice('cd')}")
    with pytest.raises(RejectedError, match="Fix: give --input NAME --target NAME, or --no-header if"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_in_python_the_options_are_arguments(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ROWS["all"][1], "cp1252")
    with pytest.raises(RejectedError) as refused:
        seqloom.train(path)
    expected = 'add encoding="cp1252", delimiter=";", header=False, task="classify", input="1", target="2"'
    assert expected in str(refused.value) and "--" not in str(refused.value)


def test_the_flags_of_a_fix_are_what_a_shell_reads() -> None:
    assert shlex.split("--delimiter ';' --no-header") == ["--delimiter", ";", "--no-header"]
    assert added_arguments("--delimiter ';' --no-header") == 'delimiter=";", header=False'


@pytest.mark.parametrize(("name", "task"), [("score", "classify"), ("rating", "classify"), ("price", "classify")])
def test_few_integers_are_labels_whatever_their_column_is_called(name: str, task: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.randrange(1, 6)}", first=f"text,{name}")
    opened = open_data(DataConfig(train=(str(path),), target=(name,)), Ledger())
    assert opened.config.task == task
    assert f"task: classify ('{name}' has few different numbers; use --task regress to predict them)" in opened.messages


def test_many_numbers_are_still_predicted_and_the_line_names_the_option(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.randrange(100)}", first="text,score")
    opened = open_data(DataConfig(train=(str(path),)), Ledger())
    assert "task: regress ('score' has numbers; use --task classify if they are labels)" in opened.messages


def test_texts_that_rarely_repeat_are_translated_and_not_counted_as_labels(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{text(rng)}", first="text,german")
    opened = open_data(DataConfig(train=(str(path),), target=("german",)), Ledger())
    assert "task: translate ('german' has texts that rarely repeat; use --task classify if they are labels)" in (
        opened.messages
    )
