"""Claims about marked copies: nothing of the file is missing, and nothing is written that could not be right."""

import csv
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from seqloom.config.data import ReadingConfig
from seqloom.errors import ConfigError, RejectedError
from seqloom.events import finished
from seqloom.search.documents import TextFile
from seqloom.search.duplicates import COLUMNS, Duplicates, mark_duplicates

TEXTS = ["The cat sat on the mat.", '"No" or go', "the cat sat on teh mat", "", "line one\nline two"]


def marked(rows: TextFile, out: Path) -> Duplicates:
    found = finished(mark_duplicates(rows, out, threshold=0.6))
    assert isinstance(found, Duplicates)
    return found


def records(path: Path, delimiter: str = ",") -> list[dict[str, object]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.mark.parametrize("delimiter", [",", ";", "||"])
def test_a_marked_table_without_its_marks_is_the_table(tmp_path: Path, delimiter: str) -> None:
    quoted = ['"{}"'.format(text.replace('"', '""')) for text in TEXTS]
    lines = [delimiter.join(("id", "text", "n"))] + [
        delimiter.join((f"d{n}", text, "1")) for n, text in enumerate(quoted)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    rows = TextFile(tmp_path / "a.csv", reading=ReadingConfig(delimiter=None if delimiter == "," else delimiter))
    marked(rows, tmp_path / "b.csv")
    again = TextFile(tmp_path / "b.csv", reading=rows.reading).table()
    assert again.columns == ("id", "text", "n", *COLUMNS)
    found = [record.values for record in again.records]
    assert [values[:3] for values in found] == [record.values for record in rows.table().records]
    assert [values[3:] for values in found] == [("1", "", ""), ("",) * 3, ("1", "d0", "0.8"), ("",) * 3, ("",) * 3]


def test_json_lines_keep_their_values_and_their_types(tmp_path: Path) -> None:
    given = [{"text": text, "n": n, "deep": {"a": [1, None]}, "flag": True} for n, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    marked(TextFile(tmp_path / "a.jsonl"), tmp_path / "b.jsonl")
    found = records(tmp_path / "b.jsonl")
    assert [{name: row[name] for name in given[0]} for row in found] == given
    assert [row["duplicate_of"] for row in found] == [None, None, "1", None, None]  # by number, for want of ids


def test_parquet_keeps_its_types_and_the_columns_that_no_reader_reads(tmp_path: Path) -> None:
    given = pyarrow.table({"text": TEXTS, "when": pyarrow.array([1, 2, 3, 4, 5], pyarrow.date32()), "x": [0.5] * 5})
    pyarrow.parquet.write_table(given, tmp_path / "a.parquet")
    marked(TextFile(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    assert found.select(given.column_names).equals(given)
    assert [str(found.schema.field(name).type) for name in COLUMNS] == ["int64", "string", "double"]
    assert found["duplicate_of"].to_pylist() == [None, None, "1", None, None]


def test_a_copy_without_any_duplicate_has_the_same_columns_and_types(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "two"]}), tmp_path / "a.parquet")
    marked(TextFile(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    schema = pyarrow.parquet.read_schema(tmp_path / "b.parquet")
    assert [str(schema.field(name).type) for name in COLUMNS] == ["int64", "string", "double"]


def test_lines_of_text_become_a_table_and_tsv_stays_tsv(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat\nThe cat sat.\nno\n")
    marked(TextFile(tmp_path / "a.txt"), tmp_path / "b.csv")
    assert [row["duplicate_of"] for row in records(tmp_path / "b.csv")] == ["2", "", ""]  # the longest stands for all
    (tmp_path / "a.tsv").write_text('text\tn\nthe "cat" sat\t1\nthe "cat" sat\t2\n')
    marked(TextFile(tmp_path / "a.tsv"), tmp_path / "b.tsv")
    assert (tmp_path / "b.tsv").read_text().splitlines()[2] == 'the "cat" sat\t2\t1\t1\t1.0'


def test_a_file_without_a_header_gets_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,the cat\n2,the cat\n")
    rows = TextFile(tmp_path / "a.csv", text=("2",), reading=ReadingConfig(header=False))
    marked(rows, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == "1,the cat,1,,\n2,the cat,1,1,1.0\n"


def test_a_column_of_ids_that_repeat_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\nx,the cat\nx,the cat\n")
    marked(TextFile(tmp_path / "a.csv"), tmp_path / "b.csv")
    assert records(tmp_path / "b.csv")[1]["duplicate_of"] == "1"
    with pytest.raises(ConfigError, match="--id id: the ids are not unique"):
        marked(TextFile(tmp_path / "a.csv", id="id"), tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("out", "match"),
    [
        ("a.csv", "is the input file"),
        ("link.csv", "is the input file"),
        ("mine.csv", "already exists"),
        ("b.xlsx", r"extension \.csv or \.jsonl"),
        ("b.csv.gz", r"extension \.csv or \.jsonl"),
        ("b.parquet", "cannot have this extension"),
        ("b.tsv", "cannot have this extension"),
        ("none/b.csv", "does not exist"),
    ],
)
def test_a_copy_that_cannot_be_is_refused_before_anything_is_compared(tmp_path: Path, out: str, match: str) -> None:
    (tmp_path / "a.csv").write_text("text\na\nb\n")
    (tmp_path / "link.csv").hardlink_to(tmp_path / "a.csv")
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(ConfigError, match=match):
        next(iter(mark_duplicates(TextFile(tmp_path / "a.csv"), tmp_path / out)))
    assert (tmp_path / "a.csv").read_text() == "text\na\nb\n"
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_a_file_that_is_marked_already_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,cluster\na,1\n")
    with pytest.raises(ConfigError, match="already has a column 'cluster'"):
        marked(TextFile(tmp_path / "a.csv"), tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.csv", "text,n\na,1\nb\n", r"a\.csv:3: csv\.ragged"),
        ("a.jsonl", '{"text": "a"}\n{"text": 7}\n', r"a\.jsonl:2.*type\.text"),
        ("a.csv", "what,why\na,1\n", "no column has a known name"),
    ],
)
def test_bad_rows_are_reported_with_their_places_and_nothing_is_written(
    tmp_path: Path, name: str, text: str, match: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RejectedError, match=match):
        marked(TextFile(tmp_path / name), tmp_path / "b.csv")
    assert not (tmp_path / "b.csv").exists()


def test_a_file_that_changes_meanwhile_gives_no_copy(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nthe cat\nthe cat\n")
    work = mark_duplicates(TextFile(tmp_path / "a.csv"), tmp_path / "b.csv", threshold=0.6)
    next(work)
    (tmp_path / "a.csv").write_text("text\nother\nrows!\n")
    with pytest.raises(RejectedError, match="changed while it was read"):
        list(work)
    assert not (tmp_path / "b.csv").exists()
