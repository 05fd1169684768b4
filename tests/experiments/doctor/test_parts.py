"""Claims about what limits every score of a run: leaks and a small dev set are told, each picture once."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from seqloom.data.checks.check import DataFinding, FindingSample
from seqloom.experiments.doctor.curves import rounded
from seqloom.experiments.doctor.data import FEW, split_messages
from seqloom.experiments.doctor.diagnosis import drawn_once
from seqloom.experiments.doctor.findings import Finding
from seqloom.report.figures.line import Line, Series
from seqloom.tasks.task import Metric

LEAK = DataFinding("warn", "leak.overlap", 6, (FindingSample("dev.csv:3", "6 of 16 rows of dev are in train too"),))


def test_a_leak_that_the_data_check_found_is_told_and_other_warnings_are_not() -> None:
    (said,) = split_messages([LEAK, LEAK._replace(code="label.conflict")], FEW)
    assert "too high" in said and "6 of 16 rows" in said
    assert list(split_messages([LEAK._replace(code="label.conflict")], 0)) == []


@pytest.mark.parametrize(("rows", "unsure"), [(16, "0.24"), (64, "0.12"), (FEW, None), (0, None)])
def test_a_dev_part_of_few_rows_is_told_with_how_little_it_knows(rows: int, unsure: str | None) -> None:
    said = list(split_messages([], rows, Metric("accuracy")))
    assert len(said) == (unsure is not None) and all(f"{rows} rows" in one and str(unsure) in one for one in said)
    for one in split_messages([], rows, Metric("rmse", higher_is_better=False)):
        assert "so rmse is uncertain; " in one  # an error has no such interval


def curve(title: str, *heights: float) -> Line:
    return Line(title=title, series=[Series(name="loss", x=[1.0, 2.0], y=list(heights))])


def test_a_picture_is_drawn_where_it_is_first_told_of_and_not_again() -> None:
    told = [
        Finding("a", "A", "", {}, figure) for figure in (curve("A", 2, 1), None, curve("B", 2, 1), curve("C", 3, 1))
    ]
    findings, figures = drawn_once(tuple(told), (curve("Loss", 3, 1), curve("Norm", 5, 5)))
    assert [one.figure and one.figure.title for one in findings] == ["A", None, None, "C"]
    assert [figure.title for figure in figures] == ["Norm"]


@given(some.floats(-7, 1))
def test_a_rate_as_it_is_typed_is_near_the_rate_that_is_meant(power: float) -> None:
    rate = 10**power
    assert float(rounded(rate)) == pytest.approx(rate, rel=0.125)
