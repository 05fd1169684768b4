"""Colour scales: a value becomes one of a fixed number of shades, each with a light, a dark and a printed form.

Blue is above zero and orange below it, in maps, strips, tiles and bars alike: a pair that the common forms of colour
blindness keep apart. Three maps, written as a few stops and interpolated between them: from the ground of the page to
blue where no value is negative, to orange where none is positive, and from orange over the ground to blue where both
signs occur, with zero in the middle. Away from the ground is away from zero, on a light page and on a dark one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqloom.report.numbers import number

Colour = tuple[int, int, int]

# Each channel is monotone along the stops, hence luminance is too; the stops have about equal steps of lightness.
POSITIVE_LIGHT = ("#f3f5f5", "#a9c8de", "#5f96c2", "#2b62a0", "#162b62")
POSITIVE_DARK = ("#1e242c", "#1f4f78", "#3a80b0", "#8ab6d8", "#eaf4fb")
NEGATIVE_LIGHT = ("#5a2503", "#97500f", "#c98136", "#e9be8d", "#f3f3f0")
NEGATIVE_DARK = ("#ffe7c8", "#dca368", "#ac7134", "#6f4820", "#22272e")
DIVERGING_LIGHT = ("#8c3c06", "#e0a164", "#f3f3f0", "#6d9fcf", "#14457f")
DIVERGING_DARK = ("#ffcf9a", "#b5722f", "#22272e", "#3f7fb8", "#a6d3ff")

LEVELS = 64  # even: a diverging scale has LEVELS + 1 shades, so that zero has one of its own
SHADES = " ░▒▓█"
NEGATIVE_SHADES = "#=~- "
SIGNED_SHADES = "#=~- ░▒▓█"
NO_VALUE = "╱"


class Shade(NamedTuple):
    """One step of a colour scale: the name of its style class and its colour on a light and on a dark page."""

    name: str
    light: Colour
    dark: Colour


@dataclass(frozen=True)
class ColorScale:
    """The range of values that the colours stand for; diverging exactly when it has zero inside."""

    low: float
    high: float

    @property
    def is_diverging(self) -> bool:
        """Whether both signs occur, so that colour must tell them apart."""
        return self.low < 0 < self.high

    @property
    def is_negative(self) -> bool:
        """Whether nothing lies above zero and something below it."""
        return self.low < 0 and self.high <= 0

    @property
    def glyphs(self) -> str:
        """The characters that stand for the values in a terminal, the lowest first."""
        return SIGNED_SHADES if self.is_diverging else NEGATIVE_SHADES if self.is_negative else SHADES

    def place(self, value: float) -> float:
        """Where the value lies between 0 and 1; zero is at one half of a diverging scale."""
        return (value - self.low) / (self.high - self.low)

    def level(self, value: float) -> int:
        """The number of the value's shade."""
        place = self.place(value)
        return round(place * LEVELS) if self.is_diverging else min(LEVELS - 1, int(place * LEVELS))

    def shade(self, level: int) -> Shade:
        """The shade with this number."""
        if self.is_diverging:
            return _shade("d", DIVERGING_LIGHT, DIVERGING_DARK, level, level / LEVELS)
        if self.is_negative:
            return _shade("n", NEGATIVE_LIGHT, NEGATIVE_DARK, level, level / (LEVELS - 1))
        return _shade("s", POSITIVE_LIGHT, POSITIVE_DARK, level, level / (LEVELS - 1))

    def interval(self, level: int) -> str:
        """The values that share this shade, in words."""
        width = (self.high - self.low) / LEVELS
        start = self.low + width * (level - 0.5 if self.is_diverging else level)
        return f"{number(max(self.low, start))} to {number(min(self.high, start + width))}"

    def glyph(self, value: float | None) -> str:
        """The block character that stands for the value in a terminal; negative values have characters of their own."""
        if value is None:
            return NO_VALUE
        count = len(self.glyphs)
        if self.is_diverging:
            return self.glyphs[round(self.place(value) * (count - 1))]
        return self.glyphs[min(count - 1, int(self.place(value) * count))]


def scale_of(values: Iterable[float | None], span: tuple[float, float] | None = None) -> ColorScale:
    """The scale of the given span, symmetric if it crosses zero; without a span that of the values.

    Values of one sign have zero at one end of their scale, so that the faintest colour means none of it.
    """
    known = [value for value in values if value is not None]
    low, high = span or (min([0.0, *known]), max([0.0, *known]))
    if low < 0 < high:
        reach = max(-low, high)
        return ColorScale(-reach, reach)
    if high - low <= max(1e-9 * abs(low), 1e-90):
        return ColorScale(0.0, 1.0)
    return ColorScale(low, high)


def _shade(kind: str, light: Sequence[str], dark: Sequence[str], level: int, place: float) -> Shade:
    return Shade(f"sl-{kind}{level}", blend(light, place), blend(dark, place))


def every_shade() -> list[Shade]:
    """All shades of the three maps, for a style sheet."""
    scales = ColorScale(0.0, 1.0), ColorScale(-1.0, 0.0), ColorScale(-1.0, 1.0)
    return [scale.shade(level) for scale in scales for level in range(LEVELS + scale.is_diverging)]


def blend(stops: Sequence[str], place: float) -> Colour:
    """The colour at `place` between 0 and 1 along the stops."""
    at = min(max(place, 0.0), 1.0) * (len(stops) - 1)
    index = min(int(at), len(stops) - 2)
    start, end = colour(stops[index]), colour(stops[index + 1])
    red, green, blue = (round(a + (b - a) * (at - index)) for a, b in zip(start, end, strict=True))
    return red, green, blue


def colour(code: str) -> Colour:
    """The red, green and blue of a `#rrggbb` code."""
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def code(value: Colour) -> str:
    """The `#rrggbb` code of a colour."""
    return "#{:02x}{:02x}{:02x}".format(*value)


def luminance(value: Colour) -> float:
    """The relative luminance between 0 and 1, as WCAG 2 defines it for sRGB."""
    linear = [(c / 255 / 12.92) if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in value]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(ground: Colour) -> Colour:
    """Black or white, whichever has the higher contrast on this ground."""
    return (0, 0, 0) if luminance(ground) > 0.179 else (255, 255, 255)


def on_ground(text: str, ground: Colour) -> str:
    """The text with 24-bit terminal colours around it: this ground, and ink that can be read on it."""
    return f"\x1b[48;2;{_triple(ground)}m\x1b[38;2;{_triple(ink_on(ground))}m{text}\x1b[0m"


def in_colour(text: str, ink: Colour) -> str:
    """The text with a 24-bit terminal colour around it."""
    return f"\x1b[38;2;{_triple(ink)}m{text}\x1b[0m"


def _triple(value: Colour) -> str:
    return ";".join(map(str, value))
