"""Each kind of figure: what its picture and its text show, and what it refuses."""

import itertools
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.points import Points
from seqloom.report.figures.stack import page
from seqloom.report.figures.strip import Strip

SVG = "{http://www.w3.org/2000/svg}"
BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"
nan = float("nan")
QUICK = settings(max_examples=40, deadline=None)


def drawn(figure: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(figure.svg())


def every(figure: Figure, name: str) -> list[ElementTree.Element]:
    return list(drawn(figure).iter(f"{SVG}{name}"))


def hovers(figure: Figure, name: str) -> list[str]:
    """The notes shown over elements of this name."""
    notes = [element.findtext(f"{SVG}title") for element in every(figure, name)]
    return [note for note in notes if note is not None]


def texts(figure: Figure) -> list[str]:
    return ["".join(element.itertext()) for element in every(figure, "text")]


def line(*ys: Sequence[float | None], y_axis: str = "linear") -> Line:
    series = [Series(name=f"s{index}", x=range(len(y)), y=y) for index, y in enumerate(ys)]
    return Line(title="t", series=series, y_axis=y_axis)


class TestLine:
    def test_a_gap_breaks_the_curve_and_a_lone_point_is_a_dot(self) -> None:
        figure = line([1.0, 2.0, nan, 3.0, None, 1.0, 2.0])
        curve = next(path for path in every(figure, "path") if "L" in path.attrib["d"])
        assert curve.attrib["d"].count("M") == 3
        assert curve.attrib["d"].count("L") == 2
        assert "s0: 3 at 3" in hovers(figure, "path")

    def test_a_lone_point_among_many_is_still_a_dot(self) -> None:
        ys: list[float | None] = [1.0] * 100
        ys[49] = ys[51] = None
        dots = [path for path in every(line(ys), "path") if path.attrib["d"].endswith("h0")]
        assert len(dots) == 1

    def test_a_gap_is_blank_in_text_and_the_least_value_is_not(self) -> None:
        rows = line([0.0, 0.0, None, None, None, None, 5.0, 5.0]).text(60).split("\n")
        bottom = next(row for row in rows if row.startswith("0 ┤"))[3:]
        assert bottom.startswith("▁▁▁") and bottom.endswith("███")
        assert "          " in bottom

    @QUICK
    @given(ys=st.lists(st.floats(-100, 100), min_size=2, max_size=30))
    def test_columns_of_blocks_are_monotone_in_the_value(self, ys: list[float]) -> None:
        rows = [row.partition("┤")[2] or row.partition("│")[2] for row in line(sorted(ys)).text(60).split("\n")[2:-1]]
        width = max(map(len, rows))
        heights = [
            sum(BLOCKS.index(c) for c in column) for column in zip(*(row.ljust(width) for row in rows), strict=True)
        ]
        assert heights == sorted(heights)

    def test_higher_values_are_drawn_higher(self) -> None:
        curve = next(path for path in every(line([1.0, 2.0, 4.0]), "path") if "L" in path.attrib["d"])
        places = [tuple(map(float, pair.split())) for pair in curve.attrib["d"][1:].split("L")]
        assert places[0][0] < places[1][0] < places[2][0]
        assert places[0][1] > places[1][1] > places[2][1]
        assert (places[0][1] - places[2][1]) == pytest.approx(3 * (places[0][1] - places[1][1]), abs=0.3)

    def test_equal_factors_are_equal_steps_on_a_log_axis(self) -> None:
        curve = next(path for path in every(line([0.01, 1.0, 100.0], y_axis="log"), "path") if "L" in path.attrib["d"])
        heights = [float(pair.split()[1]) for pair in curve.attrib["d"][1:].split("L")]
        assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.3)

    def test_a_constant_series_runs_through_the_middle(self) -> None:
        curve = next(path for path in every(line([3.0] * 50), "path") if "L" in path.attrib["d"])
        heights = {pair.split()[1] for pair in curve.attrib["d"][1:].split("L")}
        assert heights == {"140.0"}

    def test_a_single_point_is_shown(self) -> None:
        figure = line([0.25])
        assert "s0: 0.25 at 0" in hovers(figure, "path")
        assert "0.25" in texts(figure), "its value is beside it"
        assert figure.text().splitlines()[1:] == ["s0: 0.25 at x 0"], "one point is no curve"

    def test_legend_names_every_series_and_a_lone_one_named_like_the_axis_is_not_repeated(self) -> None:
        assert {"s0", "s1", "s2"} <= set(texts(line([1.0], [2.0], [3.0])))
        alone = Line(title="t", y_label="loss", series=[Series(name="loss", x=[0], y=[1.0])])
        assert texts(alone).count("loss") == 1

    def test_each_series_has_a_look_of_its_own(self) -> None:
        figure = line(*[[float(k)] for k in range(24)])
        strokes = [
            (p.attrib["stroke"], p.attrib.get("stroke-dasharray"))
            for p in every(figure, "path")
            if "h24" in p.attrib["d"]
        ]
        assert len(set(strokes)) == len(strokes) == 24

    def test_whole_x_values_get_whole_ticks(self) -> None:
        ticks = [text for text in texts(line([1.0, 2.0, 1.0, 2.0])) if re.fullmatch(r"[0-3]", text)]
        assert set(ticks) == {"0", "1", "2", "3"}

    def test_tick_labels_do_not_touch(self) -> None:
        figure = Line(title="t", series=[Series(name="s", x=[0, 123456789], y=[1, 2])])
        ends = [
            (float(e.attrib["x"]), len(e.text or ""))
            for e in every(figure, "text")
            if e.attrib.get("text-anchor") == "middle"
        ]
        for (x, length), (other, _) in itertools.pairwise(ends):
            assert other - x > 7 * length

    @pytest.mark.slow
    def test_many_points_are_thinned_without_losing_a_spike_and_the_picture_says_so(self) -> None:
        ys = [math.sin(k / 1000) for k in range(20_000)]
        ys[12_345], ys[4_321] = 50.0, -50.0
        figure = line(ys)
        curve = next(path for path in every(figure, "path") if "L" in path.attrib["d"])
        heights = [float(pair.split()[1]) for pair in curve.attrib["d"][1:].split("L")]
        assert len(heights) < 4000
        upper, lower = sorted(heights)[:2], sorted(heights)[-2:]
        assert upper[1] - upper[0] > 50 and lower[1] - lower[0] > 50  # both spikes stand alone
        note = "".join(texts(figure))
        assert f"Drawn from {len(heights):,} of 20,000 points" in note

    def test_few_points_are_all_drawn_and_nothing_is_said(self) -> None:
        assert "Drawn from" not in line([1.0] * 2000).svg()

    def test_a_long_heading_goes_over_several_lines(self) -> None:
        name = "a name of thirty characters..."
        figure = Line(title="t", series=[Series(name=name, x=[0, 1], y=[-1.2347e-10, -1.2346e-10])])
        rows = figure.text(40).split("\n")
        assert " ".join(rows[2:4]) == "-1.235e-10 to -1.235e-10, lowest -1.235e-10"
        assert all(len(row) <= 40 for row in rows)

    def test_color_changes_only_color(self) -> None:
        figure = line([1.0, 3.0, 2.0], [2.0, 2.0, 1.0])
        plain = re.sub("\x1b\\[[0-9;]*m", "", figure.text(60, color=True))
        assert [row.rstrip() for row in plain.split("\n")] == figure.text(60).split("\n")
        assert "\x1b[38;2;" in figure.text(60, color=True) and "\x1b" not in figure.text(60)


def points(**changes: Any) -> Points:
    return Points(**({"title": "t", "labels": ["a", "b"], "x": [1.0, 10.0], "y": [0.5, 0.9]} | changes))


class TestPoints:
    def test_points_lie_where_their_numbers_are(self) -> None:
        figure = points(labels=["a", "b", "c"], x=[1.0, 10.0, 100.0], y=[0.0, 1.0, 0.5], x_axis="log")
        boxes = [box for box in every(figure, "rect") if box.find(f"{SVG}title") is not None]
        x, y = ([float(box.attrib[key]) for box in boxes] for key in ("x", "y"))
        assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.1)  # equal factors are equal steps
        assert y[2] - y[1] == pytest.approx(y[0] - y[2], abs=0.1) and y[1] < y[0]

    def test_interval_value_and_mark_can_be_read(self) -> None:
        figure = points(intervals=[None, (0.8, 1.0)], marked=[False, True])
        assert hovers(figure, "rect") == ["a: 0.5 at 1", "b: 0.9 (0.8 to 1) at 10, marked"]
        assert "b ● b: 0.9 (0.8 to 1) at 10, marked" in figure.text()
        assert "a ○ a: 0.5 at 1" in figure.text()

    def test_labels_keep_clear_of_each_other(self) -> None:
        figure = points(labels=["one", "two", "three"], x=[1, 1, 1], y=[0.5, 0.5, 0.5])
        lines = [float(e.attrib["y"]) for e in every(figure, "text") if e.text in ("one", "two", "three")]
        assert all(abs(one - other) >= 12 for one in lines for other in lines if one != other)
        assert len(set(lines)) == 3

    def test_points_in_one_place_of_a_terminal_are_one_star(self) -> None:
        assert "*" in points(x=[1, 1], y=[0.5, 0.5]).text(40)


class TestBars:
    def test_bars_start_at_zero_and_are_in_proportion(self) -> None:
        figure = Bars(title="t", labels=["a", "b", "c"], values=[2.0, -1.0, 0.0])
        boxes = [box for box in every(figure, "rect") if box.find(f"{SVG}title") is not None]
        left, width = ([float(box.attrib[key]) for box in boxes] for key in ("x", "width"))
        zero = left[0]
        assert width[0] == pytest.approx(2 * width[1], abs=0.05) and width[2] == 0
        assert left[1] + width[1] == pytest.approx(zero, abs=0.05)
        assert boxes[0].attrib["class"] != boxes[1].attrib["class"]

    def test_interval_and_value_can_be_read(self) -> None:
        figure = Bars(title="t", labels=["a"], values=[0.5], intervals=[(0.25, 0.75)])
        assert hovers(figure, "rect") == ["a 0.5 (0.25 to 0.75)"]
        assert "0.5 (0.25 to 0.75)" in figure.text()
        whisker = next(path for path in every(figure, "path"))
        low, high = re.findall(r"M([\d.]+) \d+v8", whisker.attrib["d"])
        box = next(box for box in every(figure, "rect") if box.find(f"{SVG}title") is not None)
        end = float(box.attrib["x"]) + float(box.attrib["width"])
        assert (float(low) + float(high)) / 2 == pytest.approx(end, abs=0.1)

    @QUICK
    @given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=8))
    def test_lengths_in_text_are_monotone_in_the_value(self, values: list[float]) -> None:
        ordered = sorted(values)
        figure = Bars(title="t", labels=["x"] * len(values), values=ordered)
        sides = [row[2:].partition("│") for row in figure.text(60).split("\n")[1:]]
        lengths = [_rightward(right) - _leftward(left) for left, _, right in sides]
        assert lengths == sorted(lengths)
        assert all((value > 0) == (length > 0) for value, length in zip(ordered, lengths, strict=True))

    def test_missing_value_says_so(self) -> None:
        figure = Bars(title="t", labels=["a", "b"], values=[None, 1.0])
        assert "no value" in texts(figure) and "no value" in figure.text()

    def test_long_intervals_get_lines_of_their_own(self) -> None:
        figure = Bars(title="t", labels=["a long label"], values=[1.2345e-20], intervals=[(1.1111e-20, 1.3333e-20)])
        rows = figure.text(40).split("\n")
        assert rows[2].strip() == "(1.111e-20 to 1.333e-20)"

    def test_labels_end_at_the_same_edge_in_both_directions(self) -> None:
        figure = Bars(title="t", labels=["abc", "گربه"], values=[1, 2])
        ours = {e.text: e.attrib for e in every(figure, "text")}
        assert ours["abc"]["x"] == ours["گربه"]["x"]
        assert ours["abc"]["text-anchor"] == "end" and "direction" not in ours["abc"]
        assert ours["گربه"]["direction"] == "rtl" and ours["گربه"]["unicode-bidi"] == "isolate"
        assert ours["گربه"].get("text-anchor", "start") == "start"


def _rightward(text: str) -> int:
    return sum(EIGHTHS.index(c) for c in itertools.takewhile(lambda c: c in EIGHTHS[1:], text))


def _leftward(text: str) -> int:
    return sum({" ": 0, "▐": 4, "█": 8}[c] for c in text)


class TestHeatMap:
    def test_each_cell_shows_its_number_and_place(self) -> None:
        figure = HeatMap(
            title="t", values=[[1.0, 2.0], [3.0, 4.0]], x=[10, 20], y=[5, 6], x_label="key", y_label="query"
        )
        notes = hovers(figure, "rect")
        assert "query 5, key 20: 2" in notes and "query 6, key 10: 3" in notes

    def test_the_color_of_a_cell_is_that_of_the_legend_for_its_value(self) -> None:
        figure = HeatMap(title="t", values=[[0.0, 0.5, 1.0]])
        cells = {note: e.attrib["fill"] for e in every(figure, "rect") if (note := e.findtext(f"{SVG}title"))}
        legend = {n: fill for n, fill in cells.items() if " to " in n}
        assert cells["row 0, column 0: 0"] == legend[min(legend, key=lambda n: float(n.split(" to ")[0]))]
        assert cells["row 0, column 2: 1"] == legend[max(legend, key=lambda n: float(n.split(" to ")[1]))]
        assert len(set(legend.values())) == len(legend) == 32

    def test_legend_names_the_ends_and_zero_if_signs_differ(self) -> None:
        assert {"0", "3"} <= set(texts(HeatMap(title="t", values=[[1, 3]])))
        signed = HeatMap(title="t", values=[[-1, 3]], x=[7, 8], y=[9], value_label="gate")
        assert {"−3", "0", "3", "gate"} <= set(texts(signed))
        assert "-3 [#=~- ░▒▓█] 3  gate" in signed.text()

    def test_a_span_shares_the_scale_between_figures(self) -> None:
        one, other = (HeatMap(title="t", values=[[value]], span=(0, 10)) for value in (2.0, 8.0))
        fills = [every(figure, "rect")[-2].attrib["fill"] for figure in (one, other)]
        assert fills[0] != fills[1]
        assert "0 [ ░▒▓█] 10" in one.text() and "0 [ ░▒▓█] 10" in other.text()

    @QUICK
    @given(rows=st.integers(1, 9), across=st.integers(1, 9), data=st.data())
    def test_glyphs_are_monotone_in_the_value(self, rows: int, across: int, data: st.DataObject) -> None:
        cells = st.lists(st.floats(-3, 3), min_size=across, max_size=across)
        values = data.draw(st.lists(cells, min_size=rows, max_size=rows))
        written = HeatMap(title="t", values=values).text(60).split("\n")[1 : rows + 1]
        glyphs = [row[2:].ljust(2 * across)[::2] for row in written]
        order = "#=~- ░▒▓█"
        pairs = sorted(
            (value, order.index(g))
            for row, line in zip(values, glyphs, strict=True)
            for value, g in zip(row, line, strict=True)
        )
        assert [rank for _, rank in pairs] == sorted(rank for _, rank in pairs)

    def test_a_cell_without_a_value_is_hatched_and_never_colored(self) -> None:
        figure = HeatMap(title="t", values=[[0.0, None], [nan, 1.0]])
        hatch = [path for path in every(figure, "path") if path.attrib["class"] == "sl-hatch"]
        assert sorted(path.attrib["d"].count("M") for path in hatch) == [1, 2]  # the legend's and the two cells'
        assert sum(": " in note for note in hovers(figure, "rect")) == 2
        assert figure.text(60).split("\n")[1:3] == ["0   ╱╱", "1 ╱╱██"]
        assert "no value" in texts(figure)

    @pytest.mark.slow
    def test_a_large_matrix_is_drawn_from_means_and_says_so(self) -> None:
        values = [[float(row // 2 == column // 2) for column in range(512)] for row in range(300)]
        values[7][300] = 90.0
        figure = HeatMap(title="t", values=values)
        note = " ".join(texts(figure))
        assert "mean of up to 2 x 2 of the 300 x 512 values; single values run from 0 to 90" in note
        assert "22.5" in texts(figure)  # the end of the scale: the mean of the block that holds the 90
        assert len(figure.svg()) < 2_000_000
        assert len(list(drawn(figure).iter())) < 5000

    @QUICK
    @given(rows=st.integers(1, 7), across=st.integers(1, 7), down=st.integers(1, 7), right=st.integers(1, 7))
    def test_pooling_is_the_mean_of_each_block(self, rows: int, across: int, down: int, right: int) -> None:
        table = np.arange(rows * across, dtype=float).reshape(rows, across)
        pooled = HeatMap(title="t", values=table.tolist())._pooled(down, right)
        high, wide = pooled.down, pooled.across
        assert len(pooled.rows) <= down and len(pooled.x) <= right
        expected = [
            [table[r : r + high, c : c + wide].mean() for c in range(0, across, wide)] for r in range(0, rows, high)
        ]
        assert np.allclose(np.array(pooled.rows, dtype=float), expected)

    def test_the_largest_side_is_not_pooled_and_one_more_is(self) -> None:
        assert "mean of" not in HeatMap(title="t", values=[[1.0] * 256]).svg()
        assert "mean of" in HeatMap(title="t", values=[[1.0] * 257]).svg()

    def test_pooling_in_text_is_said_too(self) -> None:
        assert "mean of up to 1 x 3" in HeatMap(title="t", values=[[1.0] * 200]).text(80).replace("\n", " ")

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [(1, 1), (40, 40), (48, 48), (49, 48), (256, 256), (1, 256), (256, 1)])
    def test_every_size_has_few_elements_and_fits_a_page(self, size: tuple[int, int]) -> None:
        values = [[math.sin(r * c) for c in range(size[1])] for r in range(size[0])]
        figure = HeatMap(title="t", values=values)
        width, height = map(float, drawn(figure).attrib["viewBox"].split()[2:])
        assert width <= 760 and height <= 640
        assert len(list(drawn(figure).iter())) <= 5000
        assert len(figure.svg()) <= 2_000_000

    @pytest.mark.slow
    def test_tiles_are_square_unless_a_strip_would_become_a_line(self) -> None:
        def tile(rows: int, across: int) -> tuple[float, float]:
            boxes = every(HeatMap(title="t", values=[[1.0] * across] * rows), "rect")
            box = next(box for box in boxes if "column" in (box.findtext(f"{SVG}title") or ""))
            return float(box.attrib["width"]), float(box.attrib["height"])

        assert len(set(tile(40, 30))) == 1
        assert tile(4, 200) == (3.1, 30.0) and tile(200, 4) == (30.0, 2.5) and tile(11, 200) == (3.1, 14.0)

    def test_large_and_small_drawings_show_the_same_colors(self) -> None:
        values = [[((r * 7 + c * 3) % 11) / 10 for c in range(60)] for r in range(60)]
        small = HeatMap(title="t", values=[row[:11] for row in values[:11]])
        of_cells = {e.attrib["class"] for e in every(small, "rect") if "column" in (e.findtext(f"{SVG}title") or "")}
        of_paths = {e.attrib["class"] for e in every(HeatMap(title="t", values=values), "path")}
        assert of_cells == of_paths and len(of_cells) == 11

    def test_long_axis_names_are_cut_to_the_width(self) -> None:
        figure = HeatMap(title="t", values=[[1.0]], x_label="x" * 200, y_label="y" * 200, value_label="v" * 200)
        assert all(len(row) <= 50 for row in figure.text(50).split("\n"))

    def test_arrays_are_accepted_as_they_are(self) -> None:
        array = np.array([[0.0, np.nan], [1.0, 2.0]], dtype=np.float32)
        assert HeatMap(title="t", values=array) == HeatMap(title="t", values=[[0, None], [1, 2]])


class TestMatrix:
    def test_each_cell_prints_its_number(self) -> None:
        figure = Matrix(title="t", values=[[0.5, -0.125]], rows=["r"], columns=["a", "b"])
        assert {"0.50", "−0.12"} <= set(texts(figure))
        assert hovers(figure, "rect") == ["r / a: 0.50", "r / b: -0.12"]

    def test_the_description_reads_every_number_aloud(self) -> None:
        figure = Matrix(title="t", values=[[1, None], [3, 4]], rows=["r", "s"], columns=["a", "b"], x_label="x")
        assert drawn(figure).findtext(f"{SVG}desc") == "Matrix, rows by x. r: a 1, b no value; s: a 3, b 4."

    def test_counts_are_printed_as_counts(self) -> None:
        assert "1.0" not in Matrix(title="t", values=[[1, 20]], rows=["r"], columns=["a", "b"]).text()

    def test_columns_line_up_under_wide_and_combining_and_right_to_left_labels(self) -> None:
        names = ["词语", "e\u0301te\u0301", "گربه", "x"]
        figure = Matrix(title="t", values=[[11, 22, 33, 44]] * 4, rows=names, columns=names)
        head, *rows = figure.text(60).split("\n")[1:]
        assert [_column(row, "11") for row in rows] == [_column(rows[0], "11")] * 4
        assert _column(head, "词语") + 4 == _column(rows[0], "11") + 2  # right edges
        assert _column(head, "x") + 1 == _column(rows[0], "44") + 2

    def test_right_to_left_labels_are_isolated(self) -> None:
        figure = Matrix(title="t", values=[[1]], rows=["گربه"], columns=["שלום"])
        assert "\u2068گربه\u2069" in figure.text() and "\u2068שלום\u2069" in figure.text()
        turned = [e for e in every(figure, "text") if e.attrib.get("direction") == "rtl"]
        assert len(turned) == 2 and all(e.attrib["unicode-bidi"] == "isolate" for e in turned)

    def test_a_wide_matrix_continues_below_and_leaves_no_number_out(self) -> None:
        values = [[float(100 * row + column) for column in range(40)] for row in range(3)]
        written = Matrix(title="t", values=values, rows=list("abc"), columns=[f"c{k}" for k in range(40)]).text(60)
        assert sorted(map(int, re.findall(r"(?<= )\d+", written))) == sorted(int(v) for row in values for v in row)

    def test_long_column_names_slant_and_short_ones_do_not(self) -> None:
        def slanted(name: str) -> bool:
            return "rotate(-45" in Matrix(title="t", values=[[1]], rows=["r"], columns=[name]).svg()

        assert slanted("a rather long name") and not slanted("cat")

    def test_names_too_long_are_cut_with_the_whole_on_hover(self) -> None:
        name = "Donaudampfschifffahrtsgesellschaft" * 2
        figure = Matrix(title="t", values=[[1]], rows=[name], columns=["a"])
        cut = next(e for e in every(figure, "text") if (e.text or "").endswith("…"))
        assert cut.findtext(f"{SVG}title") == name

    def test_a_cell_without_a_value_is_hatched(self) -> None:
        figure = Matrix(title="t", values=[[None, 1]], rows=["r"], columns=["a", "b"])
        assert "r / a: no value" in hovers(figure, "rect")
        assert any(path.attrib["class"] == "sl-hatch" for path in every(figure, "path"))
        assert "╱" in figure.text()

    @pytest.mark.slow
    def test_forty_by_forty_is_below_five_thousand_elements(self) -> None:
        names = [f"token{k}" for k in range(40)]
        figure = Matrix(title="t", values=[[0.5] * 40] * 40, rows=names, columns=names)
        assert len(list(drawn(figure).iter())) < 5000


def _column(line: str, part: str) -> int:
    """The terminal column at which the part starts: written for these labels only."""
    before = line[: line.index(part)]
    return sum(0 if c in "\u0301\u2068\u2069" else 2 if c in "词语" else 1 for c in before)


class TestStrip:
    def test_tokens_keep_their_order_and_wrap_inside_the_picture(self) -> None:
        tokens = [f"token{k}" for k in range(60)]
        figure = Strip(title="t", tokens=tokens, values=[k / 60 for k in range(60)])
        boxes = [b for b in every(figure, "rect") if "(token " in (b.findtext(f"{SVG}title") or "")]
        places = [(float(b.attrib["y"]), float(b.attrib["x"]), float(b.attrib["width"])) for b in boxes]
        assert places == sorted(places) and len({y for y, _, _ in places}) > 1
        assert all(x >= 20 and x + width <= 700.01 for _, x, width in places)
        for (y, x, width), (below, other, _) in itertools.pairwise(places):
            assert below > y or other >= x + width

    def test_right_to_left_sentences_run_from_the_right(self) -> None:
        figure = Strip(title="t", tokens=["<s>", "گربه", "روی", "فرش"], values=[0, 1, 2, 3])
        boxes = [b for b in every(figure, "rect") if "(token " in (b.findtext(f"{SVG}title") or "")]
        places = [float(b.attrib["x"]) for b in boxes]
        assert places == sorted(places, reverse=True)

    def test_spaces_and_empty_tokens_can_be_seen(self) -> None:
        figure = Strip(title="t", tokens=[" a b ", "", "  "], values=[1, 2, 3])
        assert {"␣a b␣", "∅", "␣␣"} <= set(texts(figure))

    def test_sign_is_seen_in_color_and_in_text(self) -> None:
        figure = Strip(title="t", tokens=["a", "b"], values=[-1.0, 1.0])
        classes = [b.attrib["class"] for b in every(figure, "rect") if "(token " in (b.findtext(f"{SVG}title") or "")]
        assert classes == ["sl-d0", "sl-d64"]
        assert "# -1" in figure.text() and "█ 1" in figure.text()

    def test_numbers_are_printed_up_to_a_hundred_tokens_and_shown_on_hover_beyond(self) -> None:
        few, many = (Strip(title="t", tokens=["a"] * n, values=[0.375] * n) for n in (100, 101))
        assert "0.38" in texts(few) and "0.38" not in texts(many)
        assert "a: 0.375 (token 100)" in hovers(many, "rect")

    def test_a_token_of_a_million_characters_is_cut(self) -> None:
        figure = Strip(title="t", tokens=["x" * 1_000_000], values=[1.0])
        assert len(figure.svg()) < 10_000 and len(figure.text()) < 1000
        assert hovers(figure, "rect")[-1] == "x" * 200 + "… (1,000,000 characters): 1 (token 0)"
        hidden = Strip(title="t", tokens=["\x1b" * 1_000_000], values=[1.0])
        assert set(re.findall(r"\([\d,]+ characters\)", hidden.svg())) == {"(1,000,000 characters)"}

    def test_text_has_every_token_above_its_number(self) -> None:
        rows = Strip(title="t", tokens=["not", "词语词语", "bad"], values=[0.1, 0.2, 0.3]).text(60).split("\n")
        assert rows[1] == "not    词语词语 bad" and rows[2] == "░ 0.10 ▓ 0.20   █ 0.30"


class TestEdges:
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: Line(title="t", series=[]), "series is empty"),
            (lambda: Series(name="s", x=[], y=[]), "series 's' x is empty"),
            (lambda: Series(name="s", x=[0, 1], y=[1.0]), "series 's' x has 2 entries, y has 1"),
            (lambda: Series(name="s", x=[0, 1], y=[1.0, math.inf]), r"series 's' y\[1\] is inf"),
            (lambda: Series(name="s", x=[0, 1], y=[1.0, 1e200]), r"y\[1\] is 1e\+200, beyond"),
            (lambda: Series(name="s", x=[0], y=[10**400]), r"y\[0\] is inf"),
            (lambda: Series(name="s", x=[0, None], y=[1.0, 2.0]), r"x\[1\] is missing"),
            (lambda: Series(name="s", x=[1, 0], y=[1.0, 2.0]), r"x\[1\] goes back from 1 to 0"),
            (lambda: Series(name="s", x=[0], y=[nan]), "1 points and no value"),
            (lambda: Series(name="s", x=[0], y=["1"]), r"y\[0\] must be a number, found str"),
            (lambda: Series(name="s", x=[0], y=[1j]), r"y\[0\] must be a number, found complex"),
            (lambda: Series(name="s", x=[0], y=[np.zeros(2)]), r"y\[0\] must be a number, found ndarray"),
            (lambda: Series(name="s", x=0, y=[1.0]), "x must be a sequence, found int"),
            (lambda: Series(name="a\x1b", x=[], y=[]), r"series 'a\\x1b' x is empty"),
            (lambda: line([1.0, 0.0], y_axis="log"), r"series 's0' y\[1\] is 0 on a log axis"),
            (lambda: line([1.0], y_axis="cubic"), "y_axis is 'cubic'"),
            (lambda: line(*[[1.0]] * 25), "series has 25 entries, more than 24"),
            (lambda: Bars(title="t", labels=[], values=[]), "labels is empty"),
            (lambda: Bars(title="t", labels=["a"], values=[1, 2]), "values has 2 entries, labels has 1"),
            (lambda: Bars(title="t", labels="a", values=[1]), "labels must be a list of labels, found one string 'a'"),
            (lambda: Bars(title="t", labels=[1], values=[1]), r"labels\[0\] must be text, found int"),
            (lambda: Bars(title="t", labels=["a"] * 501, values=[1] * 501), "labels has 501 entries, more than 500"),
            (lambda: Bars(title="t", labels=["a"], values=[1], intervals=[]), "intervals has 0 entries, labels has 1"),
            (lambda: Bars(title="t", labels=["a"], values=[1], intervals=[(2, 3)]), r"intervals\[0\] is \(2.0, 3.0\)"),
            (lambda: Bars(title="t", labels=["a"], values=[None], intervals=[(2, 3)]), r"intervals\[0\]"),
            (lambda: Bars(title=1, labels=["a"], values=[1]), "title must be text, found int"),
            (lambda: points(labels=[]), "labels is empty"),
            (lambda: points(x=[1, 2, 3]), "x has 3 entries, labels has 2"),
            (lambda: points(y=[1, None]), r"y\[1\] is missing"),
            (lambda: points(intervals=[(2, 3), None]), r"intervals\[0\] is \(2.0, 3.0\)"),
            (lambda: points(marked=[True]), "marked has 1 entries, labels has 2"),
            (lambda: points(marked=[True, "yes"]), r"marked\[1\] must be a bool, found str"),
            (lambda: points(x=[0, 1], x_axis="log"), "x has 0 on a log axis"),
            (lambda: points(x_axis="cubic"), "x_axis is 'cubic'"),
            (lambda: HeatMap(title="t", values=[]), "values has 0 rows and no cell"),
            (lambda: HeatMap(title="t", values=[[]]), "values has 1 rows and no cell"),
            (lambda: HeatMap(title="t", values=[[1, 2], [1]]), r"values\[1\] has 1 cells, values\[0\] has 2"),
            (lambda: HeatMap(title="t", values=[[1, -math.inf]]), r"values\[0\]\[1\] is -inf"),
            (lambda: HeatMap(title="t", values=[[1, 2]], x=[1]), "x has 1 entries, that side of values has 2"),
            (lambda: HeatMap(title="t", values=[[1, 2]], span=(0, 1)), "value 2 at row 0, column 1 lies outside span"),
            (lambda: HeatMap(title="t", values=[[1]], span=(1, 1)), r"span is \(1.0, 1.0\)"),
            (
                lambda: HeatMap(title="t", values=[[1.0] * 2049] * 2048),
                "values has 2048 x 2049 cells, more than 4,194,304",
            ),
            (lambda: Matrix(title="t", values=[[1]], rows=[], columns=["a"]), "rows is empty"),
            (lambda: Matrix(title="t", values=[[1]], rows=["r"], columns=["a", "b"]), "columns has 2 entries"),
            (lambda: Matrix(title="t", values=[[1]] * 65, rows=["r"] * 65, columns=["a"]), "rows has 65 entries"),
            (lambda: Matrix(title="t", values=[[1] * 41] * 41, rows=[], columns=[]), "more than 1,600"),
            (lambda: Strip(title="t", tokens=[], values=[]), "tokens is empty"),
            (lambda: Strip(title="t", tokens=["a"], values=[]), "values has 0 entries, tokens has 1"),
            (lambda: Strip(title="t", tokens=["a"], values=[1]).text(39), "a figure of 39 columns is too narrow"),
            (lambda: Line(title="t", series=["s"]), r"series\[0\] must be a Series, found str"),
            (lambda: Line(title="t", series=Series(name="s", x=[0], y=[1])), "series must be a sequence, found Series"),
            (lambda: Bars(title="t", labels=["a"], values=[1], intervals=3), "intervals must be a sequence, found int"),
            (lambda: page("t", []), "figures is empty"),
            (lambda: page("t", ["<b>"]), r"figures\[0\] must be a Figure, found str"),
        ],
    )
    def test_bad_input_is_refused_with_what_was_found_and_what_to_do(
        self, make: Callable[[], object], words: str
    ) -> None:
        with pytest.raises(DataError, match=words) as caught:
            make()
        assert caught.value.fix

    @pytest.mark.slow
    def test_limits_themselves_are_accepted(self) -> None:
        assert Bars(title="t", labels=["a"] * 500, values=[1] * 500).svg()
        assert Matrix(title="t", values=[[1] * 25] * 64, rows=["r"] * 64, columns=["c"] * 25).svg()
        assert Strip(title="t", tokens=["a"] * 10_000, values=[1] * 10_000).svg()
        assert line([1e100, -1e100]).svg()

    def test_figures_are_frozen_and_equal_by_value(self) -> None:
        one, other = (Strip(title="t", tokens=["a", "b"], values=[1, nan]) for _ in range(2))
        assert one == other and hash(one) == hash(other)
        with pytest.raises(AttributeError):
            one.title = "u"  # type: ignore[misc]

    def test_a_figure_does_not_change_with_the_list_it_was_made_from(self) -> None:
        values = [1.0, 2.0]
        figure = Strip(title="t", tokens=["a", "b"], values=values)
        before = figure.svg()
        values[0] = 9.0
        assert figure.svg() == before

    def test_long_titles_and_captions_wrap_inside_the_picture(self) -> None:
        figure = Matrix(
            title="A title of many words " * 8, caption="And a caption " * 20, values=[[1]], rows=["r"], columns=["c"]
        )
        assert drawn(figure).attrib["viewBox"].startswith("0 0 720 ")
        assert all(len(text) < 120 for text in texts(figure))

    def test_drawing_needs_neither_arrays_nor_tensors(self) -> None:
        code = "import sys, seqloom.report.figures; print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "set()"
