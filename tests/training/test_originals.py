"""Files are opened few times, and samples of a run show the words of the data, also those that the vocabulary lacks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import BadRows, DataConfig, EncodingConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data import prepared as prepared_data
from seqloom.training.events import Report, Validated
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train

pytestmark = pytest.mark.slow

TRAIN = "text,label\na good film,good\na bad film,bad\n"
PAIRS = "premise,hypothesis,label\na cat,a pet,yes\na cat,a dog,no\n"
WORDS = "a\tO\ncat\tB-X\n\na\tO\ndog\tO\n\n"


def shown(folder: Path, name: str, train_text: str, dev_text: str) -> list[str]:
    """The inputs of the samples of a short run, in the order of the letters."""
    for part, text in (("train", train_text), ("dev", dev_text)):
        (folder / f"{part}{name}").write_text(text)
    reports = list[Report]()
    train(
        folder / f"train{name}",
        dev=str(folder / f"dev{name}"),
        out=folder / "run",
        device="cpu",
        size="nano",
        tokenizer="words",
        steps=1,
        show=reports.append,
    )
    return sorted(sample.input for one in reports if isinstance(one, Validated) for sample in one.samples)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "train", "dev", "inputs"),
    [
        (".csv", TRAIN, "text,label\na fine film,good\na bad film,bad\n", ["a bad film", "a fine film"]),
        (".csv", PAIRS, "premise,hypothesis,label\na cow,a pet,yes\n", ["a cow <separator> a pet"]),
        (".conll", WORDS, "a\tO\nzebra\tB-X\n\n", ["a zebra"]),
    ],
    ids=["text", "pair", "words"],
)
def test_a_word_that_the_vocabulary_lacks_is_shown_as_it_was_written(
    tmp_path: Path, name: str, train: str, dev: str, inputs: list[str]
) -> None:
    assert shown(tmp_path, name, train, dev) == inputs


def test_words_that_are_read_without_their_case_are_shown_with_it(tmp_path: Path) -> None:
    """Any row may be one of the worst, which are shown."""
    rows = [f"A Good Film {number}" for number in range(100)]
    for part, written in (("train", [row.lower() for row in rows]), ("dev", rows)):  # every word is known
        (tmp_path / f"{part}.csv").write_text("text,label\n" + "".join(f"{row},{row[-1]}\n" for row in written))
    config = DataConfig(train=(str(tmp_path / "train.csv"),), dev=(str(tmp_path / "dev.csv"),))
    request = RunRequest(size="nano", encoding=EncodingConfig(tokenizer=WordsConfig(lowercase=True)))
    prepared = resolve(config, request, cache=tmp_path / "cache").prepared
    dev = prepared.splits["dev"].tolist()
    assert sorted(prepared.dev_texts) == dev and sorted(prepared.dev_texts.values()) == sorted(rows)
    assert "A Good" not in prepared.shown(dev[0]), "the tokens alone have no case"


def test_what_was_written_is_kept_of_few_rows_and_where_a_row_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row numbers count the rows that are kept: the long one between them has none."""
    monkeypatch.setattr(prepared_data, "KEPT_TEXTS", 64)
    (tmp_path / "train.csv").write_text(TRAIN)
    long = "a " * 30 + "film,bad\n"
    rows = [f"a fine{number} film,good\n" for number in range(100)]
    (tmp_path / "dev.csv").write_text("".join(["text,label\na fine film,good\n", long, *rows]))
    encoding = EncodingConfig(tokenizer=WordsConfig(), max_length=20, overlong="error")
    data = DataConfig(
        train=(str(tmp_path / "train.csv"),),
        dev=(str(tmp_path / "dev.csv"),),
        bad_rows=BadRows(skip_bad_rows=True, max_bad_rows=1.0),
    )
    prepared = resolve(data, RunRequest(size="nano", encoding=encoding), cache=tmp_path / "cache").prepared
    assert len(prepared.dev_texts) == 64
    for row, text in prepared.dev_texts.items():
        number = (prepared.place_of(row).line or 0) - 4
        assert text == ("a fine film" if number < 0 else f"a fine{number} film")


class Opened:
    """Counts how often a file is opened for reading while it counts."""

    def __init__(self) -> None:
        self.path, self.count = "", 0
        sys.addaudithook(self.see)  # for ever, so it does little

    def see(self, event: str, given: tuple[Any, ...]) -> None:
        if self.path and event == "open" and str(given[0]) == self.path:
            self.count += 1

    def during(self, path: Path, work: Callable[[], object]) -> int:
        self.path, self.count = str(path), 0
        try:
            work()
        finally:
            self.path = ""
        return self.count


OPENED = Opened()


def from_python(path: Path, out: Path | None) -> None:
    train(path, out=out, device="cpu", size="nano", model="bag", steps=2)


def from_the_shell(path: Path, out: Path | None) -> None:
    given = ["train", str(path), "--device", "cpu", "--size", "nano", "--model", "bag", "--steps", "2"]
    done = CliRunner().invoke(app, [*given, *(() if out is None else ("--out", str(out)))])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("call", [from_python, from_the_shell])
def test_a_file_of_data_is_opened_three_times_to_train_and_twice_to_train_again(
    call: Callable[[Path, Path | None], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First to look at its columns, then for its sum, and once to read it; again for the first two alone.

    Words that occur once are unknown, so the samples need what was written.
    """
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + "".join(f"a film{number} is told,label{number % 2}\n" for number in range(60)))
    monkeypatch.chdir(tmp_path)
    assert OPENED.during(path, lambda: call(path, tmp_path / "run")) == 3
    assert OPENED.during(path, lambda: call(path, tmp_path / "other")) == 2
    assert OPENED.during(path, lambda: call(path, tmp_path / "run")) == 2, "a run that goes on"
    assert OPENED.during(path, lambda: call(path, None)) == 2
    assert OPENED.during(path, lambda: call(path, None)) == 2, "one that goes on in the folder of its name"
