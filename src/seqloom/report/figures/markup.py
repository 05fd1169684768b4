"""SVG and HTML text, escaped in one place: only `tag` makes elements, and it escapes everything but `Markup`.

Colors are written twice: as plain attributes for a light page, which every viewer, printer and converter supports, and
as style classes that replace them in the dark theme.

A color scale maps a value to one of a fixed number of shades. Blue is above zero and orange below it, a pair that the
common forms of color blindness can distinguish. There are three maps, interpolated between a few stops: from the page
background to blue if no value is negative, to orange if no value is positive, and from orange over the background to
blue if both signs occur, with zero in the middle. In both themes, more contrast means farther from zero.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from seqloom.report.labels import LONGEST, ems, fit, reads_right_to_left, shortened, visible
from seqloom.report.numbers import number

Color = tuple[int, int, int]

# Each channel is monotone along the stops, so luminance is too; the stops have about equal steps of lightness.
# A map consists of the prefix of its classes, its stops on a light page and those on a dark one.
POSITIVE = (
    "s",
    ("#f3f5f5", "#a9c8de", "#5f96c2", "#2b62a0", "#162b62"),
    ("#1e242c", "#1f4f78", "#3a80b0", "#8ab6d8", "#eaf4fb"),
)
NEGATIVE = (
    "n",
    ("#5a2503", "#97500f", "#c98136", "#e9be8d", "#f3f3f0"),
    ("#ffe7c8", "#dca368", "#ac7134", "#6f4820", "#22272e"),
)
DIVERGING = (
    "d",
    ("#8c3c06", "#e0a164", "#f3f3f0", "#6d9fcf", "#14457f"),
    ("#ffcf9a", "#b5722f", "#22272e", "#3f7fb8", "#a6d3ff"),
)
LEVELS = 64  # even: a diverging scale has LEVELS + 1 shades, so that zero has its own
SHADES = " ░▒▓█"
NEGATIVE_SHADES = "#=~- "
SIGNED_SHADES = "#=~- ░▒▓█"
NO_VALUE = "╱"


class Shade(NamedTuple):
    """One step of a color scale: the name of its style class and its colors on a light and on a dark page."""

    name: str
    light: Color
    dark: Color

    def fill(self) -> dict[str, str]:
        """Return the attributes of a shape in this shade."""
        return {"class_": self.name, "fill": code(self.light)}

    def ink(self) -> dict[str, str]:
        """Return the attributes of text on a shape in this shade."""
        name = "sl-black" if ink_on(self.dark) == (0, 0, 0) else "sl-white"
        return {"class_": name, "fill": code(ink_on(self.light))}

    def behind(self, text: str) -> str:
        """Return the text in 24-bit terminal colors: this background, and a readable foreground."""
        return f"\x1b[48;2;{_triple(self.dark)}m{in_color(text, ink_on(self.dark))}"


@dataclass(frozen=True)
class ColorScale:
    """The range of values of a color scale; it diverges if zero is inside."""

    low: float
    high: float

    @property
    def is_diverging(self) -> bool:
        """Whether both signs occur, so that the color must distinguish them."""
        return self.low < 0 < self.high

    @property
    def is_negative(self) -> bool:
        """Whether no value is above zero and some are below."""
        return self.low < 0 and self.high <= 0

    @property
    def glyphs(self) -> str:
        """The characters for values in a terminal, the lowest first."""
        return SIGNED_SHADES if self.is_diverging else NEGATIVE_SHADES if self.is_negative else SHADES

    def place(self, value: float) -> float:
        """Return the position of the value in 0..1; on a diverging scale zero is at one half."""
        return (value - self.low) / (self.high - self.low)

    def level(self, value: float) -> int:
        """Return the index of the value's shade."""
        place = self.place(value)
        return round(place * LEVELS) if self.is_diverging else min(LEVELS - 1, int(place * LEVELS))

    def shade(self, level: int) -> Shade:
        """Return the shade with this index."""
        kind, light, dark = DIVERGING if self.is_diverging else NEGATIVE if self.is_negative else POSITIVE
        place = level / (LEVELS if self.is_diverging else LEVELS - 1)
        return Shade(f"sl-{kind}{level}", blend(light, place), blend(dark, place))

    def shade_of(self, value: float) -> Shade:
        """The shade of the value."""
        return self.shade(self.level(value))

    def interval(self, level: int) -> str:
        """Return the values of a shade as text."""
        width = (self.high - self.low) / LEVELS
        start = self.low + width * (level - 0.5 if self.is_diverging else level)
        return f"{number(max(self.low, start))} to {number(min(self.high, start + width))}"

    def glyph(self, value: float | None) -> str:
        """Return the block character of a value in a terminal; negative values have separate characters."""
        if value is None:
            return NO_VALUE
        count = len(self.glyphs)
        if self.is_diverging:
            return self.glyphs[round(self.place(value) * (count - 1))]
        return self.glyphs[min(count - 1, int(self.place(value) * count))]


def scale_of(values: Iterable[float | None], span: tuple[float, float] | None = None) -> ColorScale:
    """Return the scale of the given span, symmetric if it crosses zero; without a span, that of the values.

    If all values have one sign, zero is one end of the scale, so that the faintest color means zero.
    """
    known = [value for value in values if value is not None]
    low, high = span or (min([0.0, *known]), max([0.0, *known]))
    if low < 0 < high:
        reach = max(-low, high)
        return ColorScale(-reach, reach)
    if high - low <= max(1e-9 * abs(low), 1e-90):
        return ColorScale(0.0, 1.0)
    return ColorScale(low, high)


@cache
def every_shade() -> tuple[Shade, ...]:
    """Return all shades of the three maps, for a style sheet."""
    scales = ColorScale(0.0, 1.0), ColorScale(-1.0, 0.0), ColorScale(-1.0, 1.0)
    return tuple(scale.shade(level) for scale in scales for level in range(LEVELS + scale.is_diverging))


def blend(stops: Sequence[str], place: float) -> Color:
    """Interpolate the color at `place` in 0..1 along the stops."""
    at = min(max(place, 0.0), 1.0) * (len(stops) - 1)
    index = min(int(at), len(stops) - 2)
    start, end = color(stops[index]), color(stops[index + 1])
    red, green, blue = (round(a + (b - a) * (at - index)) for a, b in zip(start, end, strict=True))
    return red, green, blue


def color(code: str) -> Color:
    """Return red, green and blue of a `#rrggbb` code."""
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def code(value: Color) -> str:
    """Return the `#rrggbb` code of a color."""
    return "#{:02x}{:02x}{:02x}".format(*value)


def luminance(value: Color) -> float:
    """Return the relative luminance in 0..1, as WCAG 2 defines it for sRGB."""
    linear = [(c / 255 / 12.92) if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in value]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(ground: Color) -> Color:
    """Return black or white, whichever has more contrast on this background."""
    return (0, 0, 0) if luminance(ground) > 0.179 else (255, 255, 255)


def in_color(text: str, ink: Color) -> str:
    """Return the text in a 24-bit terminal color."""
    return f"\x1b[38;2;{_triple(ink)}m{text}\x1b[0m"


def _triple(value: Color) -> str:
    return ";".join(map(str, value))


def tinted(text: str, name: str) -> str:
    """Return the text in the terminal color of a theme entry; blank text is unchanged."""
    return in_color(text, color(THEME[name][2])) if text.strip() else text


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
THEME = {  # name: (property, on a light page, on a dark page)
    "ground": ("fill", "#ffffff", "#14171c"),
    "ink": ("fill", "#1c2026", "#e6e8eb"),
    "soft": ("fill", "#59616d", "#a2abb8"),
    "rule": ("stroke", "#e1e4e8", "#2d333c"),
    "axis": ("stroke", "#737b87", "#8a93a0"),
    "hatch": ("stroke", "#9aa2ad", "#5b6470"),
    "whisker": ("stroke", "#1c2026", "#f2f4f6"),
    "bar": ("fill", "#336d9c", "#3f86b8"),
    "fall": ("fill", "#b5621b", "#c17a35"),
}
# Blue, vermilion, green, purple, ochre, gray: distinguishable with color blindness; after six the lines are dashed.
LINES_LIGHT = ("#1c66be", "#ab3b00", "#2a9a72", "#813181", "#b48d10", "#494e55")
LINES_DARK = ("#97bff5", "#e97a38", "#6fe0b0", "#ad6cd4", "#f3d261", "#9aa2ad")
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
BASE_RULES = (
    ".seqloom text{white-space:pre;unicode-bidi:isolate}.seqloom .sl-black,.seqloom .sl-white{pointer-events:none}"
)
FLIPPED = {"start": "end", "end": "start", "middle": "middle"}


class Markup(str):
    """Text that is already markup and must not be escaped again; made only by `tag` and `together`."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """Return one element; attributes and children that are not markup are made visible and escaped.

    >>> tag("text", "a < b", x=1.50, text_anchor="end")
    '<text x="1.5" text-anchor="end">a &lt; b</text>'
    """
    named = {key.rstrip("_").replace("_", "-"): _escaped(_plain(value)) for key, value in attributes.items()}
    opening = name + "".join(f' {key}="{value}"' for key, value in named.items())
    if not children:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{together(children)}</{name}>")


def together(parts: Iterable[str]) -> Markup:
    """Concatenate the parts as markup."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=True)


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def look(name: str) -> dict[str, str]:
    """Return the attributes of a theme entry."""
    key, light, _ = THEME[name]
    return {"class_": f"sl-{name}", key: light}


def stroked(index: int) -> dict[str, str]:
    """Return the attributes of the line with this index."""
    place, turn = index % len(LINES_LIGHT), index // len(LINES_LIGHT)
    dash = {"stroke_dasharray": DASHES[turn % len(DASHES)]} if turn else {}
    return {"class_": f"sl-line{place}", "stroke": LINES_LIGHT[place], **dash}


def hover(text: str) -> Markup:
    """Return the tooltip of an element."""
    return tag("title", text)


def label(
    text: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    anchor: str = "start",
    theme: str = "ink",
    looks: Mapping[str, str] | None = None,
    room: float = 1e9,
    turn: float = 0,
) -> Markup:
    """Return a line of text, cut to `room` with the full text as tooltip; right-to-left text keeps the same edge."""
    if not text:
        return Markup("")
    whole = visible(text)
    short = fit(whole, room, lambda text: ems(text) * size)  # as `width_of`: a text fits into its own width
    attributes: dict[str, str | float] = {"x": x, "y": y, "font_size": size, **(looks or look(theme))}
    if reads_right_to_left(whole):
        attributes |= {"direction": "rtl", "unicode_bidi": "isolate"}
        anchor = FLIPPED[anchor]  # in right-to-left text, "start" is the right end
    if anchor != "start":
        attributes["text_anchor"] = anchor
    if turn:
        attributes["transform"] = f"rotate({turn:g} {_plain(x)} {_plain(y)})"
    return tag("text", short, *([hover(shortened(text, LONGEST))] if short != whole else []), **attributes)


def axis_name(text: str, left: float, right: float, y: float) -> Markup:
    """Return the name of a horizontal axis, centered below it."""
    return label(text, (left + right) / 2, y, anchor="middle", theme="soft", room=right - left)


def width_of(text: str, size: float) -> float:
    """Estimate the width of the text in pixels; of a very long text, only that of its beginning."""
    return ems(visible(text[:LONGEST])) * size


def rule(x1: float, y1: float, x2: float, y2: float, theme: str = "rule") -> Markup:
    """Return a thin straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **look(theme))


def hatched(boxes: Iterable[tuple[float, float, float, float]]) -> Markup:
    """Return one path that hatches all boxes (x, y, width, height), which mark missing values."""
    drawn = "".join(f"M{_plain(x)} {_plain(y + h)}L{_plain(x + w)} {_plain(y)}" for x, y, w, h in boxes)
    return tag("path", hover("no value"), d=drawn, **look("hatch")) if drawn else Markup("")


def style_sheet(drawn: str) -> Markup:
    """Return the style rules for the classes in the markup; classes are global, so figures can share a page."""
    rules = {f"sl-{name}": f"{key}:{dark}" for name, (key, _, dark) in THEME.items()}
    rules |= {shade.name: f"fill:{code(shade.dark)}" for shade in every_shade()}
    rules |= {f"sl-line{index}": f"stroke:{dark}" for index, dark in enumerate(LINES_DARK)}
    rules |= {"sl-black": "fill:#000", "sl-white": "fill:#fff"}
    dark = "".join(f".seqloom .{name}{{{rule}}}" for name, rule in rules.items() if f'class="{name}"' in drawn)
    return Markup(f"{BASE_RULES}@media (prefers-color-scheme:dark){{{dark}}}")
