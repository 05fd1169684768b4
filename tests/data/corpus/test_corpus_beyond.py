"""What rows of the corpus ask for beyond an outcome: counts, values as they stood, offsets, and bad rows read over."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from data.corpus.case import Case, labeled, lines, sentences, table
from data.corpus.cases import CASES
from data.corpus.characters import FAMILY
from data.corpus.encodings import JOINED
from data.corpus.running import Run, check, run
from seqloom.config.data import DataConfig, EncodingConfig, ReadingConfig
from seqloom.config.tokenizers import (
    BpeConfig,
    BytesConfig,
    CharactersConfig,
    TokenizerConfig,
    UnigramConfig,
    WordsConfig,
)
from seqloom.data.dataset import open_data
from seqloom.data.kinds.words import Words
from seqloom.data.prepared import prepare
from seqloom.data.problems import Ledger
from seqloom.report.labels import excerpt
from seqloom.text.special_tokens import COUNT, NAMES

KINDS: Sequence[type[TokenizerConfig]] = (WordsConfig, CharactersConfig, BytesConfig, BpeConfig, UnigramConfig)
BY_NAME = {case.name: case for case in CASES}


def inputs(case: Case, folder: Path, **reading: object) -> list[object]:
    """The inputs of all examples that the files of a case hold."""
    case.write(folder)
    paths = tuple(str(folder / name) for name in case.files)
    config = DataConfig(train=paths, reading=ReadingConfig(**reading))  # type: ignore[arg-type]
    return [example.input for _, example in open_data(config, Ledger()).rows(Ledger())]


def labels(outcome: Run) -> set[str]:
    """The labels in a report."""
    return {entry["label"] for entry in outcome.report["labels"]}


@pytest.mark.parametrize("name", ["E07", "J15"])
def test_the_mark_at_the_start_is_no_part_of_the_first_name(name: str, tmp_path: Path) -> None:
    assert run(BY_NAME[name], tmp_path).report["columns"] == {"input": ["text"], "target": ["label"]}


def test_labels_have_no_carriage_return(tmp_path: Path) -> None:
    assert labels(run(BY_NAME["L01"], tmp_path)) == {"neg", "pos"}


@pytest.mark.parametrize("name", ["L04", "U02", "U06", "U10"])
def test_there_are_as_many_rows_as_wc_counts_and_each_is_as_it_stood(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    content = case.files["train.txt"]
    assert isinstance(content, bytes)
    found = inputs(case, tmp_path)
    assert len(found) == content.count(b"\n")
    assert "".join(f"{text}\n" for text in found).encode() == content
    assert name != "L04" or JOINED in found


def test_both_sides_have_as_many_rows_as_wc_counts_where_a_line_holds_a_carriage_return(tmp_path: Path) -> None:
    case = BY_NAME["M07"]
    found = inputs(case, tmp_path)
    assert [(tmp_path / name).read_bytes().count(b"\n") for name in case.files] == [len(found)] * 2
    assert found[-1] == "a\rb"


@pytest.mark.parametrize(
    ("name", "text"), [("C26", '=HYPERLINK("http://x")'), ("C27", "x, " * 70_000), ("C08", 'a 19" screen')]
)
def test_a_strange_field_is_text_as_it_stands(name: str, text: str, tmp_path: Path) -> None:
    assert text in inputs(BY_NAME[name], tmp_path)


def test_words_are_cut_at_the_separator_alone(tmp_path: Path) -> None:
    last = inputs(BY_NAME["T12"], tmp_path)[-1]
    assert isinstance(last, Words) and last.words() == ["New\u00a0York", "東京\u3000都"]
    hashes = inputs(BY_NAME["T15"], tmp_path)[-1]
    assert isinstance(hashes, Words) and hashes.words() == ["#", "1", "Ada"]


def test_labels_in_two_unicode_forms_stay_two(tmp_path: Path) -> None:
    assert labels(run(BY_NAME["U05"], tmp_path)) == {"caf\u00e9", "cafe\u0301", "tea"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind())
def test_a_family_of_emoji_is_found_again_by_its_offsets(kind: type[TokenizerConfig]) -> None:
    text = f"a family {FAMILY} went out"
    tokenizer = kind().fit([text])
    tokens, spans = tokenizer.encode_with_offsets(text)
    start = text.index(FAMILY)
    covered = {at for begin, end in spans.tolist() for at in range(begin, end)}
    assert covered >= set(range(start, start + len(FAMILY)))
    assert (spans[:, 0] <= spans[:, 1]).all() and spans.max() == len(text)
    assert kind is WordsConfig or tokenizer.decode(tokens) == text
    if kind is WordsConfig:
        assert FAMILY in [text[begin:end] for begin, end in spans.tolist()]


def test_a_family_of_emoji_is_shown_whole_or_not_at_all() -> None:
    text = f"a family {FAMILY} went out to look for another {FAMILY} in the park"
    for width in range(3, 80):
        assert not any(person in excerpt(text, width).replace(FAMILY, "") for person in FAMILY)


@pytest.mark.slow
def test_a_length_limit_counts_what_normalizing_made(tmp_path: Path) -> None:
    case = BY_NAME["U07"]
    case.write(tmp_path)
    dataset = open_data(DataConfig(train=(str(tmp_path / "train.txt"),)), Ledger())
    how = EncodingConfig(tokenizer=CharactersConfig(normalize="nfkc"), max_length=20_000)
    prepared = prepare(dataset, how, Ledger())
    assert prepared.columns["input"].lengths.max() == 20_000


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind())
def test_offsets_of_lower_cased_text_point_into_the_original(kind: type[TokenizerConfig]) -> None:
    text = "İSTANBUL is large"
    assert len(text.lower()) == len(text) + 1
    spans = kind(lowercase=True).fit([text]).encode_with_offsets(text).spans
    assert spans[0][0] == 0 and spans.max() == len(text)
    assert kind is not WordsConfig or [text[a:b] for a, b in spans.tolist()] == ["İSTANBUL", "is", "large"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind())
def test_names_of_special_tokens_in_a_text_are_text(kind: type[TokenizerConfig]) -> None:
    text = " ".join(["<pad> [MASK] </s>", *NAMES])
    assert kind().fit([text]).encode([text]).values.min() >= COUNT


ROWS = labeled(1000)


def with_bad_rows(count: int) -> bytes:
    """A table of a thousand rows, so many of them without a label."""
    return table(*(row.split(",")[0] if number < count else row for number, row in enumerate(ROWS)))


def skipping(count: int, folder: Path, *arguments: str) -> Run:
    """The outcome of reading over so many bad rows in a thousand."""
    (folder / "train.csv").write_bytes(with_bad_rows(count))
    return check(folder, "train.csv", "--json", "--skip-bad-rows", *arguments)


def test_one_bad_row_in_a_thousand_is_read_over_and_counted(tmp_path: Path) -> None:
    outcome = skipping(1, tmp_path, "--max-bad-rows", "0.1%")
    assert (outcome.code, outcome.report["skipped"]) == (0, 1)
    assert sum(part["rows"] for part in outcome.report["splits"]) == 999
    (said,) = outcome.found
    assert (said.severity, said.code, said.count) == ("warn", "csv.ragged", 1)
    assert said.lines[0].startswith("train.csv:2: csv.ragged: 1 field, but the header has 2")


def test_more_bad_rows_than_allowed_are_refused_with_their_share(tmp_path: Path) -> None:
    outcome = skipping(3, tmp_path)
    assert outcome.code == 2 and outcome.report["verdict"] == "errors"
    assert outcome.report["too_many"].startswith("3 of 1,000 rows (0.30%) are bad; --max-bad-rows allows 0.1%")
    assert skipping(3, tmp_path, "--max-bad-rows", "0.3%").code == 0


def test_of_fifty_bad_rows_of_one_kind_five_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    outcome = skipping(50, tmp_path)
    said = next(one for one in outcome.report["findings"] if one["code"] == "csv.ragged")
    assert (said["severity"], said["rows"]) == ("reject", 50)
    assert [one["place"] for one in said["samples"]] == [f"train.csv:{line}" for line in range(2, 7)]
    assert outcome.report["too_many"].startswith("50 of 1,000 rows (5.00%) are bad")


@pytest.mark.slow
def test_what_is_refused_is_in_the_report_with_everything_else(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(with_bad_rows(7))
    outcome = check(tmp_path, "train.csv", "--json")
    said = next(one for one in outcome.report["findings"] if one["code"] == "csv.ragged")
    assert (outcome.code, outcome.report["verdict"], said["rows"], len(said["samples"])) == (2, "errors", 7, 5)
    assert sum(part["rows"] for part in outcome.report["splits"]) == 993 and outcome.report["labels"]
    assert "7 bad rows left out" in check(tmp_path, "train.csv").out
    # The same keys as where no row is good, and there is nothing to report
    assert (outcome.report["total"], [one["line"] for one in outcome.report["problems"]]) == (7, [2, 3, 4, 5, 6])
    (tmp_path / "train.csv").write_bytes(table(*["one,two,three"] * 7))
    assert check(tmp_path, "train.csv", "--json").report["total"] == 7


def test_the_json_of_a_report_holds_the_data_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(table(*ROWS[:10], *(f"text {n},:smile: [bold]" for n in range(10))))
    outcome = check(tmp_path, "train.csv", "--json")
    assert outcome.report["verdict"] in ("ok", "warnings") and ":smile: [bold]" in labels(outcome)


def test_rows_that_are_refused_by_readers_and_later_are_told_in_the_order_of_lines(tmp_path: Path) -> None:
    rows = [f"{text},1.5" for text in sentences(60)]
    rows[40], rows[44] = "a comma,x", "one field"
    (tmp_path / "train.csv").write_bytes(table(*rows, header="text,score"))
    found = check(tmp_path, "train.csv", "--task", "regress", "--json").report["findings"]
    assert [one["code"] for one in found if one["severity"] == "reject"] == ["type.number", "csv.ragged"]


def test_a_report_never_replaces_the_data(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(table(*ROWS[:10]))
    (tmp_path / "train.csv").write_bytes(table(*ROWS[:10]))
    (tmp_path / "link.html").symlink_to("train.csv")
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    for given in (
        ("page.html", "--format", "csv", "--html", "page.html"),
        ("train.csv", "--dev", "page.html", "--format", "csv", "--html", "page.html"),
        ("train.csv", "--html", "train.csv"),
        ("train.csv", "--html", "link.html"),
        ("train.csv", "--html", "/dev/full"),
    ):
        outcome = check(tmp_path, *given)
        assert outcome.code == 2 and "out.unwritable" in outcome.err
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before
    assert (tmp_path / "link.html").is_symlink()


@pytest.mark.slow
def test_rows_that_are_too_long_are_bad_rows_like_others(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(lines(*sentences(999), "word " * 100))
    arguments = ("train.txt", "--json", "--max-length", "20", "--overlong", "error")
    assert check(tmp_path, *arguments).code == 2
    outcome = check(tmp_path, *arguments, "--skip-bad-rows")
    assert (outcome.code, outcome.report["skipped"], outcome.found[0].code) == (0, 1, "seq.too_long")


def test_a_set_of_which_no_row_is_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(lines(*sentences(10)))
    arguments = ("--max-length", "1", "--overlong", "error", "--skip-bad-rows", "--max-bad-rows", "100%")
    outcome = check(tmp_path, "train.txt", "--json", *arguments)
    assert outcome.code == 2 and "train.txt: data.no_train: every row of the training set is too long" in outcome.err


def test_control_characters_of_the_data_are_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(table(*ROWS[:10], "one more,po\x07s\x1b[2J"))
    outcome = check(tmp_path, "train.csv")
    assert outcome.code == 0 and "\x1b" not in outcome.out and "\x07" not in outcome.out
    assert r"\x07" in check(tmp_path, "train.csv", "--json").message()


def test_a_name_of_a_file_that_is_no_unicode_is_refused_and_shown_as_escapes(tmp_path: Path) -> None:
    name = b"caf\xe9.csv".decode("utf-8", "surrogateescape")
    (tmp_path / name).write_bytes(table(*ROWS[:10]))
    outcome = check(tmp_path, name)
    assert outcome.code == 2 and r"'caf\udce9.csv' contains half of a surrogate pair" in outcome.err


def test_a_report_is_not_begun_where_it_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(table(*ROWS[:10]))
    assert check(tmp_path, "train.csv", "--html", "no/report.html").code == 2
    assert check(tmp_path, "train.csv", "--html", "report.html").code == 0
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads(check(tmp_path, "train.csv", "--json").out)["name"] == "train.csv"
