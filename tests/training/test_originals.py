"""Files are opened few times, and samples of a run show the words of the data, also those that the vocabulary lacks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import BadRows, DataConfig, EncodingConfig, RandomSplit
from seqloom.config.tokenizers import WordsConfig
from seqloom.data import prepared as prepared_data
from seqloom.data.dataset import open_data
from seqloom.data.prepared import prepare, preparing
from seqloom.data.problems import Ledger
from seqloom.data.survey import Survey
from seqloom.events import finished
from seqloom.training.data_defaults import LONG
from seqloom.training.events import Report, Validated
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train
from seqloom.training.run_folder import RunFolder

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


@pytest.mark.parametrize("named", [{}, {"lowercase": False}], ids=["without case", "with case"])
def test_a_file_of_few_long_texts_is_opened_as_often_for_the_default_model(
    named: dict[str, Any], tmp_path: Path
) -> None:
    """The default follows from the lengths of the encoded texts, and then their words are encoded in another way."""
    path = tmp_path / "data.csv"
    text = " ".join(f"Word{number}" for number in range(LONG + 1))
    path.write_text("text,label\n" + "".join(f"row{number} {text},label{number % 2}\n" for number in range(60)))

    def call(out: str) -> None:
        train(path, out=tmp_path / out, device="cpu", **named)
        assert RunFolder(tmp_path / out).config().training.strengths, "not the model that counts words"

    assert OPENED.during(path, lambda: call("run")) == 3
    assert OPENED.during(path, lambda: call("other")) == 2
    assert OPENED.during(path, lambda: call("run")) == 2, "a run that goes on"


def test_data_that_is_encoded_twice_is_as_if_it_were_read_twice(tmp_path: Path) -> None:
    """Truncated rows, words that do not fit and shown texts are of one encoding; a row in two sets is of the data."""
    path = tmp_path / "data.csv"
    rows = [f"Word{number} word{number} and more,label{number % 2}\n" for number in range(60)]
    path.write_text("text,label\n" + "".join([*rows, rows[0]]))
    data = DataConfig(train=(str(path),), split=RandomSplit(test_size=0.0))
    encodings = [
        EncodingConfig(tokenizer=WordsConfig(vocab_size=size, lowercase=lowercase), max_length=length)
        for size, lowercase, length in ((50, True, 2), (40, False, 3))
    ]
    survey = Survey(open_data(data, Ledger()), Ledger())
    together = [finished(preparing(survey, encoding)) for encoding in encodings]
    for encoding, found in zip(encodings, together, strict=True):
        alone = prepare(open_data(data, Ledger()), encoding, Ledger())
        assert {"leak.overlap", "seq.truncated", "vocab.capped"} <= {finding.code for finding in found.findings}
        assert found.findings == alone.findings and found.dev_texts == alone.dev_texts
        assert all((found.columns[name].values == column.values).all() for name, column in alone.columns.items())
