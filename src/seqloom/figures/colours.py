"""Colour scales: a value becomes one of a fixed number of shades, each with a light, a dark and a printed form.

Two maps, written as a few stops and interpolated between them. Sequential runs from the ground of the page away from it
(in light mode to dark blue, in dark mode to pale yellow), so more ink is more value in both. Diverging runs from blue
over the ground to orange, a pair that the common forms of colour blindness keep apart; its middle is always zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqloom.figures.axis import brief

Colour = tuple[int, int, int]

# Each channel is monotone along the stops, hence luminance is too; the stops have about equal steps of lightness.
SEQUENTIAL_LIGHT = ("#f3f5f0", "#9fcbc0", "#5097ab", "#2d6094", "#1c2a5e")
SEQUENTIAL_DARK = ("#1e242c", "#20506b", "#2f8294", "#80bd9f", "#f4f3b6")
DIVERGING_LIGHT = ("#14457f", "#6d9fcf", "#f3f3f0", "#e0a164", "#8c3c06")
DIVERGING_DARK = ("#a6d3ff", "#3f7fb8", "#22272e", "#b5722f", "#ffcf9a")

LEVELS = 64  # even: a diverging scale has LEVELS + 1 shades, so that zero has one of its own
SHADES = " ░▒▓█"
SIGNED_SHADES = "#=~- ░▒▓█"
NO_VALUE = "╱"


class Shade(NamedTuple):
    """One step of a colour scale: the name of its style class and its colour on a light and on a dark page."""

    name: str
    light: Colour
    dark: Colour


@dataclass(frozen=True)
class Scale:
    """The range of values that the colours stand for; diverging exactly when it has zero inside."""

    low: float
    high: float

    @property
    def is_diverging(self) -> bool:
        """Whether both signs occur, so that colour must tell them apart."""
        return self.low < 0 < self.high

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
        return _shade("s", SEQUENTIAL_LIGHT, SEQUENTIAL_DARK, level, level / (LEVELS - 1))

    def interval(self, level: int) -> str:
        """The values that share this shade, in words."""
        width = (self.high - self.low) / LEVELS
        start = self.low + width * (level - 0.5 if self.is_diverging else level)
        return f"{brief(max(self.low, start))} to {brief(min(self.high, start + width))}"

    def glyph(self, value: float | None) -> str:
        """The block character that stands for the value in a terminal; negative values have characters of their own."""
        if value is None:
            return NO_VALUE
        if self.is_diverging:
            return SIGNED_SHADES[round(self.place(value) * (len(SIGNED_SHADES) - 1))]
        return SHADES[min(len(SHADES) - 1, int(self.place(value) * len(SHADES)))]


def scale_of(values: Iterable[float | None], span: tuple[float, float] | None = None) -> Scale:
    """The scale of the given span, symmetric if it crosses zero; without a span that of the values.

    Values that are never negative start at zero, so that the faintest colour means none of it.
    """
    known = [value for value in values if value is not None]
    low, high = span or (min(known, default=0.0), max(known, default=0.0))
    if low < 0 < high:
        reach = max(-low, high)
        return Scale(-reach, reach)
    if span is None and low >= 0:
        low = 0.0
    if high - low <= max(1e-9 * abs(low), 1e-90):  # one value: the scale ends at it and starts or ends at zero
        low, high = (low, 0.0) if low < -1e-90 else (0.0, 1.0)
    return Scale(low, high)


def _shade(kind: str, light: Sequence[str], dark: Sequence[str], level: int, place: float) -> Shade:
    return Shade(f"sl-{kind}{level}", blend(light, place), blend(dark, place))


def every_shade() -> list[Shade]:
    """All shades of both maps, for a style sheet."""
    sequential, diverging = Scale(0.0, 1.0), Scale(-1.0, 1.0)
    return [sequential.shade(n) for n in range(LEVELS)] + [diverging.shade(n) for n in range(LEVELS + 1)]


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
