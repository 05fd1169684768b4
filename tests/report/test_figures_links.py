"""Links and tiles: lines as thick as their numbers, small maps in the colors of one legend, few elements."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from seqloom.errors import DataError
from seqloom.report.figures.heatmap import Tile, Tiles
from seqloom.report.figures.markup import code, scale_of
from seqloom.report.figures.network import Link, Links

SVG = "{http://www.w3.org/2000/svg}"


def _paths(svg: str) -> list[ElementTree.Element]:
    return [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if "stroke-opacity" in path.attrib]


def test_a_line_is_thicker_and_less_faint_the_larger_its_value() -> None:
    links = [Link(0, 0, 0.5), Link(1, 0, 1.0), Link(0, 1, 0.1)]
    paths = _paths(Links(title="", left=["a", "b"], right=["c", "d"], links=links).svg())
    widths = [float(path.attrib["stroke-width"]) for path in paths]
    faint = [float(path.attrib["stroke-opacity"]) for path in paths]
    assert widths == sorted(widths) and len(set(widths)) == 3, "the strongest is drawn last, above the others"
    assert faint == sorted(faint) and faint[-1] == 1.0


def test_a_line_ends_at_its_tokens_and_has_the_color_of_its_group() -> None:
    figure = Links(title="", left=["a", "b"], right=["c"], links=[Link(1, 0, 1.0, 1)], groups=["x", "y"])
    root = ElementTree.fromstring(figure.svg())
    (line,) = _paths(figure.svg())
    places = {text.text: float(text.attrib["y"]) for text in root.iter(f"{SVG}text")}
    ends = [float(number) for number in re.findall(r"[\d.]+", line.attrib["d"])]
    assert ends[1] - places["b"] == pytest.approx(ends[3] - places["c"]) and abs(ends[1] - (places["b"] - 4)) < 4
    assert line.attrib["class"] == "sl-line1"
    assert line[0].text == "b / c: 1 (y)"


@pytest.mark.parametrize("count", [2, 4, 12, 24])
def test_lines_of_several_groups_between_the_same_tokens_do_not_lie_on_each_other(count: int) -> None:
    links = [Link(row, 0, 1.0, group) for row in (0, 1) for group in range(count)]
    names = [str(group) for group in range(count)]
    paths = _paths(Links(title="", left=["a", "b"], right=["c"], links=links, groups=names).svg())
    starts = sorted(float(path.attrib["d"].split("L")[0].split()[1]) for path in paths)
    width = max(float(path.attrib["stroke-width"]) for path in paths)
    gaps = [below - above for above, below in pairwise(starts)]
    assert min(gaps) >= 0.5 * width
    assert gaps[count - 1] > gaps[0], "a token is nearer to its own lines than to those of the next one"


def test_the_longest_token_of_a_side_is_not_cut() -> None:
    for token in ("curious", "bear", "above", "harbour", "questions"):
        drawn = Links(title="", left=[token], right=[f"{token} and more"], links=[Link(0, 0, 1.0)]).svg()
        assert token in [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def test_many_links_are_few_elements_and_none_is_lost() -> None:
    names = [str(at) for at in range(200)]
    links = [Link(at, (at * 7) % 200, (at + 1) / 200, at % 3) for at in range(200)] * 4
    paths = _paths(Links(title="", left=names, right=names, links=links, groups=["a", "b", "c"]).svg())
    assert len(paths) <= 3 * 8
    assert sum(path.attrib["d"].count("M") for path in paths) == len(links)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (Link(2, 0, 0.5), "links\\[0\\]"),
        (Link(0, -1, 0.5), "links\\[0\\]"),
        (Link(0, 0, -0.5), "values of 0 or more"),
        (Link(0, 0, 0.5, 1), "existing tokens and groups"),
        (Link(0, 0, float("nan")), "missing"),
    ],
)
def test_links_that_point_nowhere_are_refused(link: Link, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Links(title="", left=["a", "b"], right=["c"], links=[link])


def test_too_many_links_are_refused() -> None:
    with pytest.raises(DataError, match=r"4,001 entries.*strongest"):
        Links(title="", left=["a"], right=["b"], links=[Link(0, 0, 0.1)] * 4_001)


def test_the_color_of_a_cell_of_a_tile_is_that_of_the_shared_scale() -> None:
    tiles = [Tile("a", [[0.25, 1.0]]), Tile("b", [[0.5, None]])]
    drawn = Tiles(title="", tiles=tiles, across=2).svg()
    scale = scale_of([0.25, 1.0, 0.5])
    for value in (0.25, 1.0, 0.5):
        assert f'fill="{code(scale.shade(scale.level(value)).light)}"' in drawn
    assert "no value" in drawn


def test_tiles_stand_in_rows_and_do_not_touch() -> None:
    root = ElementTree.fromstring(Tiles(title="", tiles=[Tile(str(at), [[1.0]]) for at in range(5)], across=2).svg())
    frames = [each.attrib for each in root.iter(f"{SVG}rect") if each.attrib.get("pointer-events") == "all"]
    places = [(float(frame["x"]), float(frame["y"])) for frame in frames]
    side = float(frames[0]["width"])
    assert len({x for x, _ in places}) == 2 and len({y for _, y in places}) == 3
    assert all(max(abs(x - u), abs(y - v)) > side for x, y in places for u, v in places if (x, y) != (u, v))


def test_tiles_have_limits() -> None:
    with pytest.raises(DataError, match="at least 1"):
        Tiles(title="", tiles=[Tile("a", [[1.0]])], across=0)
    with pytest.raises(DataError, match=r"more than 65,536.*pool"):
        Tiles(title="", tiles=[Tile("a", [[1.0] * 256] * 256), Tile("b", [[1.0]])], across=1)
