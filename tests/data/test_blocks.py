"""Rows that are read many at once are those that are read one by one, and the same is said about them."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from seqloom.config.data import BadRows, DataConfig
from seqloom.data.dataset import open_data
from seqloom.data.problems import Ledger
from seqloom.data.readers import delimited
from seqloom.errors import RejectedError

CELLS = st.sampled_from(["a text", "other words", "", " ", "7", '"quoted, text"', 'a "stray" quote', "x", "y"])
LINES = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=12)


def read(path: Path, block: int, **settings: Any) -> tuple[Any, ...]:
    """All that is known of a file that is read in blocks of so many lines: rows and their splits, and what is said."""
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    config = DataConfig(train=(str(path),), bad_rows=ledger.bad_rows, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_LINES", block)
        try:
            rows, refused = list(open_data(config, ledger).rows(ledger)), ""
        except RejectedError as error:
            rows, refused = [], str(error)
    counts = (ledger.rows, ledger.skipped, list(ledger.bad.items()), list(ledger.counts.items()))
    return rows, refused, *counts, ledger.samples, ledger.refused


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, good=st.integers(0, 9), columns=st.sampled_from([("text", "label"), ("text", "label", "id", "")]))
def test_blocks_of_any_size_give_the_same_rows_and_messages(
    lines: list[str], good: int, columns: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    sound = [",".join(("one text", "xy"[number % 2], str(number), "")[: len(columns)]) for number in range(good)]
    path.write_text("\n".join([",".join(columns), *sound, *lines, *sound[::-1]]) + "\n", encoding="utf-8")
    wanted = read(path, 1)
    assert all(read(path, block) == wanted for block in (2, 5, 256))


@settings(max_examples=300, deadline=None)
@example(line='"a",', delimiter=",")
@example(line=',"",b', delimiter=",")
@given(line=st.text(st.sampled_from('"",;]ab \r')), delimiter=st.sampled_from(",;]"))
def test_regular_lines_are_those_of_which_the_parser_has_nothing_to_say(line: str, delimiter: str) -> None:
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=1.0))
    parser = delimited.QuotedRows(delimiter, "a.csv", ledger)
    row = parser.take(7, line)
    is_regular = delimited.regular(delimiter).fullmatch(line) is not None
    assert is_regular == (row is not None and not parser.is_open and not ledger.counts)
    if is_regular:
        assert delimited.PlainRows(7, [line], delimiter, quoted=True)[0] == row


def test_lines_with_quotes_are_read_by_columns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = tmp_path / "rows.csv", [f'"one, ""{row}""",{"xy"[row % 2]}' for row in range(40)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    monkeypatch.setattr("seqloom.data.dataset._made", None)  # one by one
    found, *_ = read(path, 256)
    assert [(example.input, example.place.line) for _, example in found] == [
        (f'one, "{row}"', row + 2) for row in range(40)
    ]


@pytest.mark.parametrize(
    ("columns", "task"), [("premise,hypothesis,label", "classify"), ("source,target", "translate")]
)
def test_blocks_are_read_by_columns(columns: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, width = tmp_path / "rows.csv", columns.count(",") + 1
    rows = [
        ",".join((f"left {one}", f"right {other}", "xy"[one % 2])[:width]) for one, other in product(range(20), "ab")
    ]
    path.write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    wanted = read(path, 1, task=task)
    monkeypatch.setattr("seqloom.data.dataset._made", None)  # one by one
    assert len(wanted[0]) == 40 and read(path, 256, task=task) == wanted
