"""Samples of a run show the words of the data, also those that the vocabulary lacks."""

from pathlib import Path
from typing import Any, cast

import pytest

from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.training import validation
from seqloom.training.resolve import resolve
from seqloom.training.session import Session
from seqloom.training.validation import inputs_shown
from seqloom.training.wishes import Wishes

TRAIN = "text,label\na good film,good\na bad film,bad\n"
PAIRS = "premise,hypothesis,label\na cat,a pet,yes\na cat,a dog,no\n"
WORDS = "a\tO\ncat\tB-X\n\na\tO\ndog\tO\n\n"


class Told:
    """What a session tells of its run."""

    def __init__(self, folder: Path, name: str, train: str, dev: str, rank: int = 0, **settings: Any) -> None:
        for part, text in (("train", train), ("dev", dev)):
            (folder / f"{part}{name}").write_text(text)
        data = DataConfig(train=(str(folder / f"train{name}"),), dev=(str(folder / f"dev{name}"),), **settings)
        encoding = EncodingConfig(tokenizer=WordsConfig())
        self.found = resolve(data, Wishes(size="tiny", encoding=encoding), cache=folder / "cache")
        self.config, self.prepared, self.task = self.found.config, self.found.prepared, self.found.task
        self.ranks, self.rank = self, rank

    def shown(self) -> list[str]:
        validation._texts.cache_clear()
        return inputs_shown(cast(Session, self), self.prepared.parts["dev"].tolist())


@pytest.mark.parametrize(
    ("name", "train", "dev", "shown"),
    [
        (".csv", TRAIN, "text,label\na fine film,good\na bad film,bad\n", ["a fine film", "a bad film"]),
        (".csv", PAIRS, "premise,hypothesis,label\na cow,a pet,yes\n", ["a cow <separator> a pet"]),
        (".conll", WORDS, "a\tO\nzebra\tB-X\n\n", ["a zebra"]),
    ],
    ids=["text", "pair", "words"],
)
def test_a_word_that_the_vocabulary_lacks_is_shown_as_it_was_written(
    tmp_path: Path, name: str, train: str, dev: str, shown: list[str]
) -> None:
    assert Told(tmp_path, name, train, dev).shown() == shown


def test_where_the_file_is_large_or_gone_the_sample_is_shown_as_the_model_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path, ".csv", TRAIN, "text,label\na fine film,good\n")
    with monkeypatch.context() as small:
        small.setattr(validation, "MOST", 10)
        assert told.shown() == ["a <unknown> film"]
    assert told.shown() == ["a fine film"]
    (tmp_path / "dev.csv").unlink()
    assert told.shown() == ["a <unknown> film"]


def test_files_are_read_once_for_a_run_and_not_where_every_word_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path, ".csv", TRAIN, "text,label\na fine film,good\na bad film,bad\n")
    assert told.shown() == ["a fine film", "a bad film"]
    monkeypatch.setattr(validation, "open_data", None)
    rows = told.prepared.parts["dev"].tolist()
    assert inputs_shown(cast(Session, told), rows) == ["a fine film", "a bad film"]
    validation._texts.cache_clear()
    assert inputs_shown(cast(Session, told), rows[1:]) == ["a bad film"]
