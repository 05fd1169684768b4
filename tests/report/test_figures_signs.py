"""One meaning of color: above zero is blue and below it orange, in every kind of figure and in a terminal."""

import colorsys
import re
from collections.abc import Callable

import pytest

from pictures_common import Picture
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap, Tile, Tiles
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.network import Edge, Network, Node
from seqloom.report.figures.strip import Strip

BLUE, ORANGE = (190, 235), (15, 45)  # degrees of hue
WITHOUT_SIGN = {"Line", "Points", "Links", "Trail"}  # whose colors name series, groups or the order of places
SIGNED: dict[str, Callable[[list[float]], Figure]] = {
    "Bars": lambda values: Bars(title="t", labels=["a", "b"], values=values),
    "HeatMap": lambda values: HeatMap(title="t", values=[values]),
    "Matrix": lambda values: Matrix(title="t", values=[values], rows=["r"], columns=["a", "b"]),
    "Network": lambda values: Network(
        title="t", nodes=[Node(at, 0, "", v, note=f"n{at}") for at, v in enumerate(values)], edges=[Edge(0, 1)]
    ),
    "Strip": lambda values: Strip(title="t", tokens=["a", "b"], values=values),
    "Tiles": lambda values: Tiles(title="t", tiles=[Tile(f"n{at}", [[v]]) for at, v in enumerate(values)], across=2),
}
NOTES = {  # what the two elements that stand for the values say when they are pointed at
    "Bars": ("a ", "b "),
    "HeatMap": ("row 0, column 0: ", "row 0, column 1: "),
    "Matrix": ("r / a: ", "r / b: "),
    "Network": ("n0", "n1"),
    "Strip": ("a: ", "b: "),
    "Tiles": ("n0: ", "n1: "),
}
TINTED = re.compile(r"\x1b\[[34]8;2;(\d+);(\d+);(\d+)m")


def hue(color: tuple[int, int, int]) -> float:
    """In degrees."""
    return 360 * colorsys.rgb_to_hsv(*(part / 255 for part in color))[0]


def is_vivid(color: tuple[int, int, int]) -> bool:
    return colorsys.rgb_to_hsv(*(part / 255 for part in color))[1] > 0.25


def colors_of(kind: str, values: list[float]) -> list[tuple[int, int, int]]:
    """Those of the pixels that stand for the two values."""
    picture = Picture(SIGNED[kind](values).svg())
    found = [next(one for note, one in picture.noted().items() if note.startswith(start)) for start in NOTES[kind]]
    return [picture.color_in(one, across=0.12, down=0.15) for one in found]


def test_every_kind_of_figure_is_told_here() -> None:
    kinds = {kind.__name__ for kind in Figure.__subclasses__() if kind.__module__.startswith("seqloom.report.figures")}
    assert kinds == set(SIGNED) | WITHOUT_SIGN


@pytest.mark.parametrize("kind", SIGNED)
@pytest.mark.parametrize("values", [[1.0, -1.0], [0.7, 1.0], [-0.7, -1.0], [-1.0, 0.8]])
def test_above_zero_is_blue_and_below_it_orange(kind: str, values: list[float]) -> None:
    for value, color in zip(values, colors_of(kind, values), strict=True):
        low, high = BLUE if value > 0 else ORANGE
        assert is_vivid(color) and low <= hue(color) <= high


@pytest.mark.parametrize("kind", SIGNED)
@pytest.mark.parametrize(("values", "hues"), [([0.7, 1.0], BLUE), ([-0.7, -1.0], ORANGE)])
def test_so_it_is_in_a_terminal(kind: str, values: list[float], hues: tuple[int, int]) -> None:
    written = SIGNED[kind](values).text(60, color=True)
    found = [(int(r), int(g), int(b)) for r, g, b in TINTED.findall(written)]
    vivid = [color for color in found if is_vivid(color) and max(color) > 60]
    assert vivid and all(hues[0] <= hue(color) <= hues[1] for color in vivid)


@pytest.mark.parametrize("kind", sorted(set(SIGNED) - {"Bars"}))  # bars tell sizes by their lengths
def test_further_from_zero_is_further_from_the_paper(kind: str) -> None:
    for sign in (1, -1):
        near, far = colors_of(kind, [sign * 0.3, sign * 1.0])
        assert sum(far) < sum(near) < 3 * 250
