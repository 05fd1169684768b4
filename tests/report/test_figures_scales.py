"""Axes, numerals, colors and the measuring of words: the parts that every figure is made of."""

import itertools
import math
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pictures_common import SVG
from seqloom.report.figures.frame import Axis, alike, linear_axis, log_axis, ruler, widened
from seqloom.report.figures.markup import (
    LEVELS,
    LINES_DARK,
    LINES_LIGHT,
    SHADES,
    SIGNED_SHADES,
    THEME,
    Color,
    ColorScale,
    Shade,
    color,
    every_shade,
    ink_on,
    luminance,
    scale_of,
    tag,
    together,
)
from seqloom.report.figures.matrix import Matrix
from seqloom.report.labels import cell, columns, fit, isolated, reads_right_to_left, shortened, typeset, visible, wrap
from seqloom.report.numbers import number as brief

QUICK = settings(max_examples=60, deadline=None)
reals = st.floats(-1e100, 1e100) | st.floats(-10, 10) | st.integers(-100, 100).map(float)
positives = st.floats(1e-80, 1e100) | st.floats(0.01, 100)

# How the three dichromacies see linear sRGB (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def lab(value: Color, vision: str = "normal") -> tuple[float, float, float]:
    """CIE L*a*b* (D65) of an sRGB color, as seen with this kind of vision."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in value]
    seen = [min(1.0, max(0.0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in VISION[vision]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(a * b for a, b in zip(row, seen, strict=True)) / w for row, w in zip(to_xyz, white, strict=True)]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def shades(scale: ColorScale) -> list[Shade]:
    return [scale.shade(level) for level in range(LEVELS + scale.is_diverging)]


class TestAxis:
    @QUICK
    @given(low=reals, high=reals)
    def test_linear_ticks_enclose_the_range_and_are_few_and_distinct(self, low: float, high: float) -> None:
        low, high = sorted((low, high))
        axis = linear_axis(low, high)
        step = axis.ticks[1] - axis.ticks[0]
        assert axis.ticks[0] <= low + 1e-6 * step and high - 1e-6 * step <= axis.ticks[-1]
        assert axis.low <= low and high <= axis.high
        assert 2 <= len(axis.ticks) <= 9
        assert len(set(axis.labels)) == len(axis.labels) == len(axis.ticks)

    @QUICK
    @given(low=positives, high=positives)
    def test_log_ticks_enclose_the_range_and_are_few_and_distinct(self, low: float, high: float) -> None:
        low, high = sorted((low, high))
        axis = log_axis(low, high)
        assert axis.low <= low and high <= axis.high
        assert axis.ticks[0] <= low * (1 + 1e-6) and high * (1 - 1e-6) <= axis.ticks[-1]
        assert 2 <= len(axis.ticks) <= 10
        assert len(set(axis.labels)) == len(axis.labels)

    @QUICK
    @given(low=reals, high=reals, share=st.floats(0, 1))
    def test_place_is_monotone_from_0_to_1(self, low: float, high: float, share: float) -> None:
        axis = linear_axis(*sorted((low, high)))
        value = axis.low + share * (axis.high - axis.low)
        assert axis.place(axis.low) == 0 and axis.place(axis.high) == 1
        assert axis.place(value) == pytest.approx(share, abs=1e-6)

    @QUICK
    @given(low=positives, ratio=st.floats(1.5, 1e6))
    def test_equal_ratios_are_equal_distances_on_a_log_axis(self, low: float, ratio: float) -> None:
        low = min(low, 1e80)
        axis = log_axis(low, low * ratio)
        middle = axis.place(low * math.sqrt(ratio))
        assert middle == pytest.approx((axis.place(low) + axis.place(low * ratio)) / 2)

    @QUICK
    @given(low=reals, high=reals)
    def test_labels_say_what_the_ticks_are(self, low: float, high: float) -> None:
        axis = linear_axis(*sorted((low, high)))
        step = axis.ticks[1] - axis.ticks[0]
        for tick, label in zip(axis.ticks, axis.labels, strict=True):
            assert float(label) == pytest.approx(tick, abs=step / 100)
            assert label != "-0"

    def test_ticks_are_round(self) -> None:
        assert linear_axis(0, 1).ticks == (0, 0.2, 0.4, 0.6, 0.8, 1.0)
        assert linear_axis(0.3, 0.6).labels == ("0.30", "0.35", "0.40", "0.45", "0.50", "0.55", "0.60")
        assert linear_axis(-3, 17).ticks == (-5, 0, 5, 10, 15, 20)
        assert linear_axis(0, 3, least_step=1.0).ticks == (0, 1, 2, 3)
        assert linear_axis(0, 2.5e6).labels == ("0", "5e5", "1e6", "1.5e6", "2e6", "2.5e6")

    @pytest.mark.parametrize("value", [0.0, 2.5, -1e-3, 1e100, 1e-95])
    def test_a_range_of_one_value_gets_room_on_both_sides(self, value: float) -> None:
        low, high = widened(value, value)
        assert low < value < high
        assert 0.3 < linear_axis(value, value).place(value) < 0.7

    def test_trimmed_keeps_ticks_inside_and_a_close_one_outside(self) -> None:
        assert linear_axis(0, 1990).trimmed(0, 1990).high == 2000
        assert linear_axis(10, 2000).trimmed(10, 2000).low == 0
        trimmed = linear_axis(0, 1600, count=4).trimmed(0, 1600)
        assert trimmed == Axis(0, 1600, (0, 500, 1000, 1500), ("0", "500", "1,000", "1,500"))

    @QUICK
    @given(value=reals)
    def test_brief_keeps_four_digits(self, value: float) -> None:
        assert float(brief(value)) == pytest.approx(value, rel=6e-4)
        assert len(brief(value)) <= 11
        assert brief(value) != "-0"

    @QUICK
    @given(values=st.lists(reals, min_size=1, max_size=5))
    def test_alike_numbers_have_equally_many_decimals(self, values: list[float]) -> None:
        written = alike(values)
        if not any("e" in numeral for numeral in written):
            assert len({len(numeral.partition(".")[2]) for numeral in written}) == 1
        largest = max(map(abs, values))
        for value, numeral in zip(values, written, strict=True):
            assert float(numeral) == pytest.approx(value, rel=0.06, abs=largest * 0.06 + 1e-300)

    def test_typeset_leaves_the_value_readable(self) -> None:
        assert [typeset(t) for t in ("12", "-1.5e-10", "1e3")] == ["12", "−1.5×10⁻¹⁰", "10³"]


class TestColor:
    @pytest.mark.parametrize("page", ["light", "dark"])
    @pytest.mark.parametrize("scale", [ColorScale(0, 1), ColorScale(-1, 0)], ids=["positive", "negative"])
    def test_luminance_moves_away_from_the_ground_with_distance_from_zero(self, page: str, scale: ColorScale) -> None:
        lights = [luminance(getattr(shade, page)) for shade in shades(scale)][:: -1 if scale.is_negative else 1]
        steps = [after - before for before, after in itertools.pairwise(lights)]
        assert all(step < 0 for step in steps) if page == "light" else all(step > 0 for step in steps)

    @pytest.mark.parametrize("page", ["light", "dark"])
    @pytest.mark.parametrize("vision", VISION)
    @pytest.mark.parametrize("scale", [ColorScale(0, 1), ColorScale(-1, 0)], ids=["positive", "negative"])
    def test_lightness_is_even_for_every_kind_of_vision(self, page: str, vision: str, scale: ColorScale) -> None:
        lights = [lab(getattr(shade, page), vision)[0] for shade in shades(scale)]
        for index, light in enumerate(lights):
            even = lights[0] + (lights[-1] - lights[0]) * index / (LEVELS - 1)
            assert abs(light - even) < 6
        assert abs(lights[-1] - lights[0]) > 70

    @pytest.mark.parametrize("page", ["light", "dark"])
    def test_diverging_luminance_falls_away_from_zero_on_both_sides(self, page: str) -> None:
        lights = [luminance(getattr(shade, page)) for shade in shades(ColorScale(-1, 1))]
        sign = 1 if page == "light" else -1
        rising, falling = lights[: LEVELS // 2 + 1], lights[LEVELS // 2 :]
        assert all(sign * (b - a) > 0 for a, b in itertools.pairwise(rising))
        assert all(sign * (b - a) < 0 for a, b in itertools.pairwise(falling))

    @pytest.mark.parametrize("page", ["light", "dark"])
    @pytest.mark.parametrize("vision", VISION)
    def test_opposite_signs_look_different_for_every_kind_of_vision(self, page: str, vision: str) -> None:
        scale = ColorScale(-1, 1)
        for size in (0.25, 0.5, 1.0):
            pair = [lab(getattr(scale.shade(scale.level(value)), page), vision) for value in (-size, size)]
            assert math.dist(*pair) > 20

    @pytest.mark.parametrize("page", [LINES_LIGHT, LINES_DARK], ids=["light", "dark"])
    @pytest.mark.parametrize("vision", VISION)
    def test_lines_look_different_for_every_kind_of_vision(self, page: tuple[str, ...], vision: str) -> None:
        for one, other in itertools.combinations(page, 2):
            assert math.dist(lab(color(one), vision), lab(color(other), vision)) > 18

    def test_numbers_on_any_shade_can_be_read(self) -> None:
        for shade in every_shade():
            for ground in (shade.light, shade.dark):
                assert contrast(ground, ink_on(ground)) >= 4.5

    @pytest.mark.parametrize("page", [1, 2], ids=["light", "dark"])
    def test_text_and_lines_stand_out_from_the_ground(self, page: int) -> None:
        ground = color(THEME["ground"][page])
        assert contrast(color(THEME["ink"][page]), ground) >= 7
        assert contrast(color(THEME["soft"][page]), ground) >= 4.5
        for code in (LINES_LIGHT, LINES_DARK)[page - 1]:
            assert contrast(color(code), ground) >= 3

    def test_zero_is_the_middle_of_a_diverging_scale(self) -> None:
        scale = scale_of([-1.0, 3.0])
        assert (scale.low, scale.high, scale.is_diverging) == (-3, 3, True)
        assert scale.level(0.0) == LEVELS // 2
        assert scale.glyph(0.0) == " "

    def test_scales_start_at_zero_unless_a_span_says_otherwise(self) -> None:
        assert scale_of([0.4, 0.8]) == ColorScale(0.0, 0.8)
        assert scale_of([0.4, 0.8], (0.4, 1.0)) == ColorScale(0.4, 1.0)
        assert scale_of([-5.0, -2.0]) == ColorScale(-5.0, 0.0)
        assert scale_of([-5.0, -2.0], (-6.0, -1.0)) == ColorScale(-6.0, -1.0)
        assert scale_of([-5.0]) == ColorScale(-5.0, 0.0)
        assert scale_of([0.0, None]) == scale_of([]) == ColorScale(0.0, 1.0)

    @QUICK
    @given(values=st.lists(reals, min_size=2, max_size=8))
    def test_levels_and_glyphs_are_monotone_in_the_value(self, values: list[float]) -> None:
        scale = scale_of(values)
        order = scale.glyphs
        levels = [scale.level(value) for value in sorted(values)]
        glyphs = [order.index(scale.glyph(value)) for value in sorted(values)]
        assert levels == sorted(levels) and glyphs == sorted(glyphs)
        assert levels[0] >= 0 and levels[-1] <= LEVELS - 1 + scale.is_diverging

    def test_no_value_has_a_glyph_of_its_own(self) -> None:
        assert ColorScale(0, 1).glyph(None) not in SHADES + SIGNED_SHADES

    @QUICK
    @given(low=st.floats(-5, 5), width=st.floats(0.1, 5), share=st.floats(0, 1))
    def test_the_interval_of_a_shade_holds_the_value(self, low: float, width: float, share: float) -> None:
        scale = scale_of([], (low, low + width))
        value = scale.low + share * (scale.high - scale.low)
        start, end = map(float, scale.interval(scale.level(value)).split(" to "))
        assert start - 0.005 <= value <= end + 0.005


def contrast(one: Color, other: Color) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class TestWords:
    @QUICK
    @given(text=st.text(st.characters()))
    def test_visible_leaves_nothing_that_moves_a_cursor_or_turns_text(self, text: str) -> None:
        shown = visible(text)
        assert visible(shown) == shown
        assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
        assert not set(shown) & set(
            "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\ufeff\u200b"
        )
        assert not text or columns(shown) > 0
        shown.encode()

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("\x1b", r"\x1b"),
            ("\u202e", r"\u202e"),
            ("\U000e0041", r"\U000e0041"),
            ("\r\n\t", r"\x0d\x0a\x09"),
            ("\ud800", r"\ud800"),
            ("\u0301x", "◌\u0301x"),
            ("\u200c", r"\u200c"),
            ("می‌روم", "می‌روم"),
            ("👩‍🚀", "👩‍🚀"),
            ("a\\x1b", "a\\x1b"),
        ],
    )
    def test_visible(self, text: str, shown: str) -> None:
        assert visible(text) == shown

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("abc", 3),
            ("词语", 4),
            ("e\u0301", 1),
            ("ｆ", 2),
            ("\u2068گربه\u2069", 4),
            ("می‌روم", 5),
            ("❤\ufe0f", 2),
            ("🚀", 2),
        ],
    )
    def test_columns(self, text: str, count: int) -> None:
        assert columns(text) == count

    @QUICK
    @given(text=st.text(st.characters()).map(visible), width=st.integers(2, 20))
    def test_fit_cell_and_wrap_keep_to_the_width(self, text: str, width: int) -> None:
        assert columns(fit(text, width)) <= width
        assert columns(cell(text, width)) == columns(cell(text, width, right=True)) == width
        assert all(columns(line) <= width for line in wrap(text, width))

    @QUICK
    @given(text=st.text(st.characters()).map(visible), width=st.integers(2, 20))
    def test_wrap_loses_nothing_but_spaces(self, text: str, width: int) -> None:
        assert "".join(wrap(text, width)).replace(" ", "") == text.replace(" ", "")

    def test_fit_cuts_a_flood_of_marks(self) -> None:
        assert len(fit("a" + "\u0301" * 100_000, 10)) < 200
        assert fit("abc", 3) == "abc" and fit("abcd", 3) == "ab…" and fit("词语词", 5) == "词语…"

    def test_a_cut_never_parts_a_letter_from_its_mark(self) -> None:
        assert fit("ae\u0301bc", 3) == "ae\u0301…"

    def test_only_text_with_right_to_left_letters_is_isolated(self) -> None:
        assert isolated("abc 12") == "abc 12"
        assert isolated("abc گربه") == "\u2068abc گربه\u2069"
        assert (
            reads_right_to_left("(שלום) abc") and not reads_right_to_left("abc שלום") and not reads_right_to_left("12")
        )

    def test_padding_stands_outside_the_isolate(self) -> None:
        assert cell("گربه", 6) == "\u2068گربه\u2069  "
        assert cell("گربه", 6, right=True) == "  \u2068گربه\u2069"

    def test_very_long_text_says_how_long_it_is(self) -> None:
        assert shortened("x" * 1_000_000) == "x" * 200 + "… (1,000,000 characters)"


class TestRuler:
    def test_labels_that_would_touch_are_left_out(self) -> None:
        assert ruler({0: "100", 2: "200", 6: "300", 11: "400"}, 12) == "100  300 400"

    @QUICK
    @given(places=st.sets(st.integers(0, 39), min_size=1))
    def test_a_ruler_keeps_to_its_width_and_its_labels_apart(self, places: set[int]) -> None:
        line = ruler({place: str(place) for place in places}, 40)
        assert len(line) <= 40
        shown = line.split()
        assert shown and set(map(int, shown)) <= places
        assert all(
            abs(line.index(text) - int(text)) <= 1 for text in shown if shown.count(text) == 1 and len(text) == 2
        )


class TestMarkup:
    def test_only_markup_is_left_unescaped(self) -> None:
        inner = tag("b", "<i>")
        assert inner == "<b>&lt;i&gt;</b>"
        assert tag("p", inner, "<i>", title='"<') == '<p title="&quot;&lt;"><b>&lt;i&gt;</b>&lt;i&gt;</p>'
        assert together(["&", inner]) == "&amp;<b>&lt;i&gt;</b>"

    def test_text_taken_out_of_markup_is_text_again(self) -> None:
        assert tag("p", tag("b", "x")[:3]) == "<p>&lt;b&gt;</p>"

    @QUICK
    @given(value=st.floats(-1e6, 1e6))
    def test_numbers_have_at_most_two_decimals_and_no_negative_zero(self, value: float) -> None:
        written = tag("a", x=value).split('"')[1]
        assert float(written) == pytest.approx(value, abs=0.006)
        assert written not in ("-0", "") and len(written.partition(".")[2]) <= 2


def test_a_matrix_with_a_name_for_its_values_has_a_bar_with_the_ends_of_its_scale() -> None:
    plain = Matrix(title="Gates", rows=["a"], columns=["x", "y"], values=[[0.25, None]], span=(0.0, 1.0))
    named = replace(plain, value_label="how open")
    texts = [one.text for one in ElementTree.fromstring(named.svg()).iter(f"{SVG}text")]
    assert {"0", "1", "how open"} <= set(texts) and texts.index("how open") < texts.index("no value")
    assert "how open" not in plain.svg() and plain.text(60) == named.text(60)
