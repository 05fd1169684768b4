"""The ledger: refusals stand in the order of files and lines, in as many kinds as fit; all are counted."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import BadRows, DataConfig, ReadingConfig, share_of
from seqloom.data.dataset import open_data
from seqloom.data.problems import EMPTY_FIX, SAMPLES, SHOWN, Ledger, Place
from seqloom.errors import RejectedError

FILES = ("b.csv", "a.csv")  # in the order in which they are read
rows = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 60), st.integers(0, 7)), min_size=1, max_size=90)


def refusal(ledger: Ledger) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        ledger.close()
    return caught.value


def bad(ledger: Ledger, *lines: int, code: str = "csv.ragged", path: str = "a.csv") -> None:
    for line in lines:
        ledger.bad_row(code, "wrong", Place(path, line), "mend it")


def test_bad_rows_are_shown_in_the_order_of_their_lines() -> None:
    ledger = Ledger()
    bad(ledger, 46, 12)
    bad(ledger, 42, 3, code="type.number")
    shown = str(refusal(ledger)).split("\n")
    assert [line.split(":")[1] for line in shown[:-1]] == ["3", "12", "42", "46"]
    assert shown[-1] == "4 problems in all: 2 csv.ragged, 2 type.number."


def test_of_one_kind_five_are_shown_and_of_several_their_counts_are_said() -> None:
    ledger = Ledger()
    bad(ledger, *range(2, 17), code="type.number")
    assert str(refusal(ledger)).endswith("\n15 problems in all; 5 are shown.")
    bad(ledger, *range(17, 23), code="row.empty_text")
    error = refusal(ledger)
    assert str(error).endswith("\n21 problems in all: 15 type.number, 6 row.empty_text; 10 are shown.")
    assert error.codes == ("type.number",) * 5 + ("row.empty_text",) * 5 and error.total == 21


def test_what_stops_the_reading_is_shown_last() -> None:
    ledger = Ledger()
    bad(ledger, *range(100, 130))
    with pytest.raises(RejectedError) as caught:
        ledger.bad_file("enc.nul", "a NUL character", Place("a.csv", 1))
    assert caught.value.codes == ("csv.ragged",) * 5 + ("enc.nul",)
    assert str(caught.value).endswith("31 problems in all: 30 csv.ragged, 1 enc.nul; 6 are shown.")


@given(rows)
def test_as_many_kinds_as_possible_are_shown_the_first_of_each_in_order(found: list[tuple[int, int, int]]) -> None:
    ledger, found = Ledger(), sorted(found, key=lambda row: row[0])
    for file, line, kind in found:
        bad(ledger, line, code=f"kind.{kind}", path=FILES[file])
    order = [FILES.index(path) for path in dict.fromkeys(FILES[file] for file, _, _ in found)]
    shown = [(FILES.index(one.place.path), one.place.line, int(one.code[-1])) for one in ledger.refused]
    assert len(shown) <= SHOWN and [(order.index(file), line) for file, line, _ in shown] == sorted(
        (order.index(file), line) for file, line, _ in shown
    )
    kinds = Counter(kind for *_, kind in found)
    counts = Counter(kind for *_, kind in shown)
    assert counts.keys() == kinds.keys() and max(counts.values()) <= SAMPLES
    cut_short = [count for kind, count in counts.items() if count < min(kinds[kind], SAMPLES)]
    assert not cut_short or (len(shown) == SHOWN and max(counts.values()) <= min(cut_short) + 1)
    for kind in kinds:
        first = sorted(row for row in found if row[2] == kind)
        assert [row for row in shown if row[2] == kind] == first[: counts[kind]]
    assert refusal(ledger).total == len(found)


def test_refusals_are_plain_values_too() -> None:
    ledger = Ledger()
    bad(ledger, 7)
    expected = {"code": "csv.ragged", "path": "a.csv", "line": 7, "column": None, "text": "wrong", "fix": "mend it"}
    assert refusal(ledger).details == (expected,)


@example(7, 993)  # 0.7 / 100 is less than 7 / 1000 in floats
@given(st.integers(1, 300), st.integers(0, 100_000))
def test_the_share_that_is_named_is_enough(skipped: int, good: int) -> None:
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.0))
    bad(ledger, *range(skipped))
    ledger.rows = good
    message = str(refusal(ledger))
    assert message.split("Fix: ")[-1].startswith("correct the rows")
    if skipped / (skipped + good) <= 0.0999:
        ledger.bad_rows = BadRows(
            skip_bad_rows=True, max_bad_rows=share_of(message.rpartition(" ")[2].removesuffix("."))
        )
        ledger.close()


def test_most_rows_being_bad_is_no_case_for_reading_over_them() -> None:
    ledger = Ledger(BadRows(skip_bad_rows=True))
    bad(ledger, 1, 2, 3)
    ledger.rows = 1
    expected = "3 of 4 rows (75.00%) are bad; --max-bad-rows allows 0.1%. Fix: correct the rows."
    assert str(refusal(ledger)).split("\n")[-1] == expected


@pytest.mark.parametrize(
    "advice", ["fill it in, or skip such rows with --skip-bad-rows", "fill it in, or use --skip-bad-rows"]
)
def test_skipping_is_not_advised_to_those_who_skip(advice: str) -> None:
    for skip in (False, True):
        ledger = Ledger(BadRows(skip_bad_rows=skip, max_bad_rows=0.0))
        ledger.rows = 20
        ledger.bad_row("row.empty_text", "the text is empty", Place("a.csv", 2), advice)
        assert ("--skip-bad-rows" in str(refusal(ledger)).split("\n")[0]) is not skip


@pytest.mark.parametrize(
    ("good", "flags"),
    [(1_000, "--skip-bad-rows"), (60, "--skip-bad-rows and --max-bad-rows 1.64%"), (2, "")],
)
def test_skipping_is_advised_with_the_limit_that_it_needs_and_not_if_many_rows_are_bad(good: int, flags: str) -> None:
    ledger = Ledger(BadRows())
    ledger.bad_row("row.empty_text", "it is empty", Place("a.csv", 2), EMPTY_FIX)
    ledger.rows = good
    skipping = f", or skip such rows with {flags}" if flags else ""
    assert str(refusal(ledger)).partition("Fix: ")[2] == f"fill it in{skipping}."
    if flags:  # what is advised is accepted
        words = flags.replace(" and ", " ").split()
        ledger.bad_rows = BadRows(skip_bad_rows=True, max_bad_rows=share_of(words[2]) if words[1:] else 0.001)
        ledger.close()


def test_the_fix_of_an_empty_value_is_a_command_that_drops_such_rows(tmp_path: Path) -> None:
    path = tmp_path / "my file.csv"
    path.write_text("".join(f"{row}\n" for row in ["a;x", ";y", "b;", "c;y"]))
    reading = ReadingConfig(delimiter=";", header=False)
    config = DataConfig(train=(str(path),), input=("1",), target=("2",), task="classify", reading=reading)
    ledger = Ledger.of(config)
    with pytest.raises(RejectedError) as refused:
        list(open_data(config, ledger).rows(ledger))
    assert "--skip-bad-rows" not in str(refused.value)  # half of the rows
    (first,) = re.findall("`(.*?)`", str(refused.value))  # of both rows
    done = CliRunner().invoke(app, shlex.split(first)[1:])
    assert done.exit_code == 0 and (tmp_path / "my file-clean.csv").read_text() == "a;x\nc;y\n"


def test_a_fix_is_written_once() -> None:
    ledger = Ledger()
    for line in (2, 3, 4):
        ledger.bad_row("csv.ragged", "wrong", Place("a.csv", line), "another" if line == 4 else "mend it")
    found = refusal(ledger)
    assert [line.partition("Fix: ")[2] for line in str(found).splitlines()[:3]] == ["mend it.", "", "another."]
    assert [one["fix"] for one in found.details] == ["mend it", "mend it", "another"]
