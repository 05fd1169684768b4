"""The known sets, read by name from a folder of the real files: SEQLOOM_DATA names it, and without it nothing runs.

The expected counts are those that the sets' papers and distributors give, not what our readers gave.
"""

import os
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from seqloom.config.data import DataConfig, SplitName
from seqloom.data.dataset import open_data
from seqloom.data.download import default_folders, unpacked
from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger
from seqloom.data.readers.registry import read_table
from seqloom.data.schema import Example
from seqloom.data.sources import SOURCES, find_source

pytestmark = pytest.mark.skipif("SEQLOOM_DATA" not in os.environ, reason="SEQLOOM_DATA names no folder of sets")


class Read(NamedTuple):
    """Every example of a set by part, in order, and what was said about them."""

    parts: dict[SplitName, list[Example]]
    ledger: Ledger


@cache
def examples(name: str) -> Read:
    ledger, parts = Ledger(), {}
    for part, example in open_data(DataConfig(train=(name,)), ledger).rows(ledger):
        parts.setdefault(part, []).append(example)
    return Read(parts, ledger)


def words(found: list[Example]) -> int:
    return sum(len(example.input.spans) for example in found if isinstance(example.input, Words))


def targets(found: list[Example]) -> Counter[str]:
    """Labels, or the tags of all words."""
    return Counter(one for example in found for one in _each(example.target))


def _each(target: object) -> tuple[str, ...]:
    return target if isinstance(target, tuple) else (str(target),)


ROWS = {  # train, with what is drawn from it; dev; test
    "sst2": (6_920, 872, 1_821),
    "trec": (5_452, 0, 500),
    "trec-fine": (5_452, 0, 500),
    "sms_spam": (5_574, 0, 0),
    "atis": (4_478, 500, 893),
    "atis-intent": (4_478, 500, 893),
    "wnut17": (3_394, 1_009, 1_287),
    "ud_english_ewt": (12_544, 2_001, 2_077),
    "ud_english_ewt-xpos": (12_544, 2_001, 2_077),
    "multi30k": (29_000, 1_014, 1_000),
    "multi30k-tok": (29_000, 1_014, 1_000),
    "tatoeba_deu_eng": (169_813, 0, 0),
    "scan-simple": (16_728, 0, 4_182),
    "scan-length": (16_990, 0, 3_920),
    "scan-addjump": (14_670, 0, 7_706),
    "ptb": (42_068, 3_370, 3_761),
    "stsb": (5_749, 1_500, 1_379),
}
TABLES = {"corpus": 5_183, "queries": 1_109, "qrels_train": 919, "qrels_test": 339}


def test_every_known_set_is_counted_here() -> None:
    assert {*ROWS, "tinyshakespeare", "scifact"} == SOURCES.keys()


@pytest.mark.parametrize("name", SOURCES)
def test_every_file_has_the_sum_of_the_registry(name: str) -> None:
    for file in SOURCES[name].every_file():
        path = default_folders().find(file)
        assert path is not None, file.path
        assert len(unpacked(path, file)) == file.size


@pytest.mark.parametrize("name", ROWS)
def test_a_set_has_the_published_number_of_rows(name: str) -> None:
    read = examples(name)
    given = SOURCES[name].files.keys()  # a part without files is drawn from train
    counts = Counter({part: len(found) for part, found in read.parts.items()})
    drawn = sum(counts[part] for part in ("dev", "test") if part not in given)
    stated = tuple(counts[part] if part in given else 0 for part in ("dev", "test"))
    assert (counts["train"] + drawn, *stated) == ROWS[name]
    assert tuple(SOURCES[name].rows().get(part, 0) for part in ("train", "dev", "test")) == ROWS[name]
    assert read.ledger.skipped == 0


@pytest.mark.parametrize("name", ["trec", "trec-fine", "scan-simple", "scan-length", "scan-addjump"])
def test_where_there_is_no_dev_part_a_tenth_is_drawn(name: str) -> None:
    parts = examples(name).parts
    assert len(parts["dev"]) == pytest.approx(0.1 * ROWS[name][0], rel=0.02)


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_of_scifact_have_their_rows(table: str) -> None:
    ledger = Ledger()
    records = list(read_table(find_source("scifact")[table], SOURCES["scifact"].reading, ledger).records)
    ledger.close()
    assert len(records) == SOURCES["scifact"].rows()[table] == TABLES[table]


def test_the_judgments_of_scifact_are_about_809_and_300_claims() -> None:
    for table, claims in (("qrels_train", 809), ("qrels_test", 300)):
        found = read_table(find_source("scifact")[table], SOURCES["scifact"].reading, Ledger())
        column = found.columns.index("query-id")
        assert len({record.values[column] for record in found.records}) == claims


def test_wnut17_has_the_published_tokens_and_entities() -> None:
    parts = examples("wnut17").parts
    counts = {part: (words(found), _entities(found)) for part, found in parts.items()}
    assert counts == {"train": (62_730, 1_975), "dev": (15_733, 836), "test": (23_394, 1_079)}
    kinds = {tag[2:] for tag in targets(parts["train"]) if tag != "O"}
    assert kinds == {"corporation", "creative-work", "group", "location", "person", "product"}


def _entities(found: list[Example]) -> int:
    return sum(count for tag, count in targets(found).items() if tag.startswith("B-"))


@pytest.mark.parametrize(("name", "column"), [("ud_english_ewt", 3), ("ud_english_ewt-xpos", 4)])
def test_the_web_treebank_has_the_published_words_and_the_tags_of_its_column(name: str, column: int) -> None:
    parts = examples(name).parts
    assert {part: words(found) for part, found in parts.items()} == {"train": 204_577, "dev": 25_147, "test": 25_094}
    for part, found in parts.items():
        (file,) = SOURCES[name].files[part]
        path = default_folders().find(file)
        assert path is not None
        rows = (line.split("\t") for line in unpacked(path, file).decode().split("\n"))
        assert targets(found) == Counter(row[column] for row in rows if row[0].isdigit())


def test_the_universal_tags_are_seventeen() -> None:
    assert len(targets(examples("ud_english_ewt").parts["train"])) == 17


def test_atis_has_its_tags_and_intents_and_some_that_training_lacks() -> None:
    slots, intents = examples("atis").parts, examples("atis-intent").parts
    assert len(targets(slots["train"])) == 120
    assert len(targets(intents["train"])) == 21
    for parts in (slots, intents):
        seen = targets(parts["train"]).keys()
        assert targets(parts["test"]).keys() - seen
    assert targets(slots["dev"]).keys() - targets(slots["train"]).keys()


@pytest.mark.parametrize(("name", "labels"), [("sst2", 2), ("trec", 6), ("trec-fine", 50)])
def test_a_set_has_the_published_number_of_labels(name: str, labels: int) -> None:
    parts = examples(name).parts
    assert len(targets([*parts["train"], *parts.get("dev", [])])) == labels


def test_sms_spam_has_4827_ham_and_747_spam_and_no_text_with_its_mark() -> None:
    parts = examples("sms_spam").parts
    found = [example for part in parts.values() for example in part]
    assert targets(found) == {"ham": 4_827, "spam": 747}
    assert not any("\t" in str(example.input) for example in found)


@pytest.mark.parametrize("name", ["sms_spam", "tatoeba_deu_eng"])
def test_no_input_falls_in_two_parts(name: str) -> None:
    train, dev, test = ({str(one.input) for one in examples(name).parts[part]} for part in ("train", "dev", "test"))
    assert not (train & dev or train & test or dev & test)


def test_ptb_has_the_published_tokens_and_vocabulary() -> None:
    parts = examples("ptb").parts
    tokens = {part: [word for one in found for word in str(one.input).split()] for part, found in parts.items()}
    with_ends = {part: len(found) + len(parts[part]) for part, found in tokens.items()}
    assert with_ends == {"train": 929_589, "dev": 73_760, "test": 82_430}
    assert len({*tokens["train"], "<eos>"}) == 10_000


def test_tinyshakespeare_is_cut_once_at_a_line_after_nine_tenths() -> None:
    parts = examples("tinyshakespeare").parts
    (train,), (dev,) = parts["train"], parts["dev"]
    whole = str(train.input) + str(dev.input)
    assert len(whole) == 1_115_394 and len(set(whole)) == 65
    assert 0 <= len(str(train.input)) - 1_003_854 < 100 and str(train.input).endswith("\n")


def test_stsb_is_pairs_with_scores_from_0_to_5() -> None:
    for found in examples("stsb").parts.values():
        assert all(isinstance(one.input, TextPair) for one in found)
        assert {one.target[0] >= 0 and one.target[0] <= 5 for one in found if isinstance(one.target, tuple)} == {True}


def test_scan_is_commands_and_actions_without_the_marks() -> None:
    first = examples("scan-addjump").parts["test"][0]
    assert first.input == "jump opposite right twice and turn opposite right thrice"
    assert str(first.target).startswith("I_TURN_RIGHT I_TURN_RIGHT I_JUMP")


def test_multi30k_is_english_to_german() -> None:
    first = examples("multi30k").parts["train"][0]
    assert first.input == "Two young, White males are outside near many bushes."
    assert first.target == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
