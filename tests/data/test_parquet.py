"""Parquet: plain columns come back as Python values, other types are left out, damage and NaN are refused."""

import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers import parquet


def saved(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path


COLUMNS = {
    "text": ["a", None, "é😀"],
    "label": pyarrow.array(["x", "y", "x"]).dictionary_encode(),
    "large": pyarrow.array(["x", "y", "z"], pyarrow.large_string()),
    "number": [1.5, None, -2.0],
    "half": pyarrow.array([1.5, 2.0, 4.0], pyarrow.float16()),
    "count": pyarrow.array([1, 2, None], pyarrow.uint64()),
    "flag": [True, False, None],
    "tokens": [["a", "b"], [], None],
    "vectors": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], []],
    "nothing": pyarrow.nulls(3),
}


def test_plain_columns_come_back_as_python_values(tmp_path: Path) -> None:
    found = read(saved(tmp_path / "a.parquet", COLUMNS))
    assert found.table.columns == tuple(COLUMNS)
    assert found.values == list(zip(*(pyarrow.array(column).to_pylist() for column in COLUMNS.values()), strict=True))
    assert [record.line for record in found.records] == [1, 2, 3]


def test_row_groups_and_batches_are_joined_in_order(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.parquet", {"n": list(range(5_000))}, row_group_size=1_700)
    assert [values[0] for values in read(path).values] == list(range(5_000))


@pytest.mark.slow
def test_rows_are_read_while_they_are_asked_for(tmp_path: Path) -> None:
    """A file that is damaged in its last row group still gives the first rows, so it was not read whole."""
    path = saved(tmp_path / "a.parquet", {"n": list(range(100_000))}, row_group_size=10_000, compression="none")
    content = bytearray(path.read_bytes())
    last = pyarrow.parquet.ParquetFile(path).metadata.row_group(9).column(0)
    content[last.dictionary_page_offset : last.dictionary_page_offset + 40] = bytes(40)
    write(path, bytes(content))
    records = parquet.read((path,), ReadingConfig(), Ledger()).records
    assert [next(records).values for _ in range(2)] == [(0,), (1,)]
    assert "parquet.damaged" in refused(path)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([date(2020, 1, 1)], "date32"),
        ([Decimal("1.5")], "decimal128"),
        ([b"bytes"], "binary"),
        ([{"a": 1}], "struct"),
        ([[{"a": 1}]], "list<"),
        (pyarrow.array([[("a", 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())), "map<"),
    ],
)
def test_columns_of_other_types_are_left_out_and_named(tmp_path: Path, column: Any, kind: str) -> None:
    found = read(saved(tmp_path / "a.parquet", {"odd": column, "text": ["a"], "odd.text": ["b"]}))
    assert (found.table.columns, found.values) == (("text", "odd.text"), [("a", "b")])
    note = found.only("parquet.left_out")
    assert note.text.startswith("the column 'odd' holds") and kind in note.text
    message = refused(saved(tmp_path / "a.parquet", {"odd": column, "stranger": column}))
    assert "parquet.type: the column 'odd' holds" in message and kind in message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("nest", [lambda x: x, lambda x: [0.0, x], lambda x: [[0.0], [x]]])
def test_a_number_that_is_none_spoils_its_row(tmp_path: Path, bad: float, nest: Any) -> None:
    path = saved(tmp_path / "a.parquet", {"n": [nest(1.0), nest(bad), nest(2.0)]})
    assert refused(path).startswith(f"{path}:2: parquet.nonfinite: ")
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.5))
    records = list(parquet.read((path,), ReadingConfig(), ledger).records)
    assert [record.line for record in records] == [1, 3]


def test_nan_among_the_words_of_a_dictionary_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.parquet", {"n": pyarrow.array([1.0, math.nan]).dictionary_encode()})
    assert refused(path).startswith(f"{path}:2: parquet.nonfinite: ")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "parquet.dup_column: two columns are named 'text'" in refused(tmp_path / "a.parquet")


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.parquet", {"text": pyarrow.array([], pyarrow.string())})
    assert "data.no_rows" in refused(path)


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    raw = pyarrow.array([b"\xff\xfe"], pyarrow.binary())
    path = saved(tmp_path / "a.parquet", {"text": pyarrow.StringArray.from_buffers(1, *raw.buffers()[1:])})
    assert "parquet.damaged" in refused(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return saved(tmp_path_factory.mktemp("parquet") / "a.parquet", COLUMNS).read_bytes()


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int, whole: bytes) -> None:
    """Also for whole files of which some bytes were changed, or a piece is missing."""
    changed = st.tuples(st.integers(4, len(whole) - 5), st.binary(max_size=6), st.integers(0, 6)).map(
        lambda cut: whole[: cut[0]] + cut[1] + whole[cut[0] + cut[2] :]
    )

    @settings(max_examples=examples)
    @given(any_bytes.map(lambda inner: b"PAR1" + inner + b"PAR1") | any_bytes | changed)
    def law(content: bytes) -> None:
        require_records_or_a_place(write(tmp_path / "a.parquet", content))

    law()
