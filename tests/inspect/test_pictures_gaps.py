"""What has no value is a gap in every picture of it, however long the input: never the color or the height of zero."""

from collections.abc import Sequence

import numpy as np
import pytest

from seqloom.inspect.differences import DifferenceView
from seqloom.inspect.view import blocks_of
from seqloom.inspect.what_if import ChangeView
from seqloom.report.figures.line import Line

LONG = 2_000


def series_of(figures: Sequence[object], title: str) -> dict[str, Sequence[float | None]]:
    (line,) = [one for one in figures if isinstance(one, Line) and one.title.startswith(title)]
    return {one.name: one.y for one in line.series}


def test_a_block_of_gaps_is_a_gap_and_others_count_what_they_have() -> None:
    nan = np.nan
    blocks = blocks_of(np.array([1.0, nan, nan, nan, -3.0, -5.0, nan, 2.0]), 4)
    assert np.array_equal(blocks.mean, [1.0, nan, -4.0, 2.0], equal_nan=True)
    assert np.array_equal(blocks.maximum, [1.0, nan, -3.0, 2.0], equal_nan=True)


def test_rows_without_a_partner_are_gaps_in_the_curve_of_a_long_change() -> None:
    distance = np.full(LONG, 0.5)
    distance[400:900] = np.nan
    view = ChangeView(
        title="t",
        description="“a” becomes “b c”",
        rows=("x",) * LONG,
        predictions=(("yes", "no"),) * LONG,
        distance=distance,
        row=0,
        answers=(("yes", 0.5, 0.4),),
        differences=(),
    )
    for values in series_of(view.figures(), "How far each answer moved").values():
        assert {value for value in values if value is not None} == {0.5}
        assert sum(value is None for value in values) == len(values) // 4


@pytest.mark.parametrize("sign", [1, -1])
def test_so_they_are_in_a_difference(sign: int) -> None:
    values = np.full(LONG, sign * 0.5)
    values[1000:] = np.nan
    view = DifferenceView(title="t", of="gates", changes={"received": values}, names={"received": ((),)})
    for known in series_of(view.figures(), "t: received").values():
        assert {value for value in known if value is not None} == {sign * 0.5}
        assert all(value is None for value in known[len(known) // 2 :])


def test_a_change_of_nothing_hides_no_gap_and_a_gap_no_change() -> None:
    values = np.full((600, 4), np.nan)
    values[1], values[3] = 0.0, -2.0
    view = DifferenceView(title="t", of="gates", changes={"values": values}, names={"values": ((), ())})
    (figure,) = view.figures()
    assert figure.data()["values"][0] == [0.0] * 4  # type: ignore[index]
    assert figure.data()["values"][1] == [-2.0] * 4  # type: ignore[index]
    assert figure.data()["values"][2] == [None] * 4  # type: ignore[index]
