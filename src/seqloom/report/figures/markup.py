"""SVG and HTML text, escaped in one place: only `tag` makes elements, and it escapes whatever is not `Markup` already.

Colours are written twice: as plain attributes for a light page (every viewer, printer and converter understands those)
and as style classes that replace them where the reader prefers dark.
"""

import html
from collections.abc import Iterable, Mapping

from seqloom.report.figures.colors import Shade, code, every_shade, ink_on
from seqloom.report.figures.labels import LONGEST, ems, fit, reads_right_to_left, shortened, visible

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
# Blue, vermilion, green, purple, ochre, grey: apart for every kind of vision; after six the lines are dashed.
LINES_LIGHT = ("#1c66be", "#ab3b00", "#2a9a72", "#813181", "#b48d10", "#494e55")
LINES_DARK = ("#97bff5", "#e97a38", "#6fe0b0", "#ad6cd4", "#f3d261", "#9aa2ad")
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
BASE_RULES = (
    ".seqloom text{white-space:pre;unicode-bidi:isolate}.seqloom .sl-black,.seqloom .sl-white{pointer-events:none}"
)
FLIPPED = {"start": "end", "end": "start", "middle": "middle"}


class Markup(str):
    """Text that is markup already and must not be escaped again; made by `tag` and `together` only."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """One element; children that are not markup, and all attributes, are made visible and escaped.

    >>> tag("text", "a < b", x=1.50, text_anchor="end")
    '<text x="1.5" text-anchor="end">a &lt; b</text>'
    """
    opening = name + "".join(f' {_hyphened(key)}="{_escaped(_plain(value))}"' for key, value in attributes.items())
    if not children:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{together(children)}</{name}>")


def together(parts: Iterable[str]) -> Markup:
    """The parts one after the other as markup."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=True)


def _hyphened(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def look(name: str) -> dict[str, str]:
    """The attributes of a named part of the theme."""
    key, light, _ = THEME[name]
    return {"class_": f"sl-{name}", key: light}


def filled(shade: Shade) -> dict[str, str]:
    """The attributes of a shape in this shade."""
    return {"class_": shade.name, "fill": code(shade.light)}


def inked(shade: Shade) -> dict[str, str]:
    """The attributes of text on a shape in this shade."""
    return {"class_": "sl-black" if ink_on(shade.dark) == (0, 0, 0) else "sl-white", "fill": code(ink_on(shade.light))}


def stroked(index: int) -> dict[str, str]:
    """The attributes of the line with this number."""
    place, turn = index % len(LINES_LIGHT), index // len(LINES_LIGHT)
    dash = {"stroke_dasharray": DASHES[turn % len(DASHES)]} if turn else {}
    return {"class_": f"sl-line{place}", "stroke": LINES_LIGHT[place], **dash}


def hover(text: str) -> Markup:
    """The note a browser shows over an element."""
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
    """A line of text at a place, cut to `room` with the whole on hover; right-to-left text keeps the same edge."""
    if not text:
        return Markup("")
    whole = visible(text)
    short = fit(whole, room / size, ems)
    attributes: dict[str, str | float] = {"x": x, "y": y, "font_size": size, **(looks or look(theme))}
    if reads_right_to_left(whole):
        attributes |= {"direction": "rtl", "unicode_bidi": "isolate"}
        anchor = FLIPPED[anchor]  # "start" is the right end now
    if anchor != "start":
        attributes["text_anchor"] = anchor
    if turn:
        attributes["transform"] = f"rotate({turn:g} {_plain(x)} {_plain(y)})"
    return tag("text", short, *([hover(shortened(text, LONGEST))] if short != whole else []), **attributes)


def axis_name(text: str, left: float, right: float, y: float) -> Markup:
    """The name of a horizontal axis, in the middle below it."""
    return label(text, (left + right) / 2, y, anchor="middle", theme="soft", room=right - left)


def width_of(text: str, size: float) -> float:
    """The estimated width of the text in pixels; of a very long text, that of its beginning."""
    return ems(visible(text[:LONGEST])) * size


def rule(x1: float, y1: float, x2: float, y2: float, theme: str = "rule") -> Markup:
    """A thin straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, **look(theme))


def hatched(boxes: Iterable[tuple[float, float, float, float]]) -> Markup:
    """One path that hatches all the boxes (x, y, width, height): places without a value, never the colour of zero."""
    strokes = (f"M{_plain(x)} {_plain(y + h)}L{_plain(x + w)} {_plain(y)}" for x, y, w, h in boxes)
    drawn = "".join(strokes)
    return tag("path", hover("no value"), d=drawn, **look("hatch")) if drawn else Markup("")


def style_sheet(drawn: str) -> Markup:
    """The rules for the classes in the markup; a class means the same in every figure, so figures can share a page."""
    rules = {f"sl-{name}": f"{key}:{dark}" for name, (key, _, dark) in THEME.items()}
    rules |= {shade.name: f"fill:{code(shade.dark)}" for shade in every_shade()}
    rules |= {f"sl-line{index}": f"stroke:{dark}" for index, dark in enumerate(LINES_DARK)}
    rules |= {"sl-black": "fill:#000", "sl-white": "fill:#fff"}
    dark = "".join(f".seqloom .{name}{{{rule}}}" for name, rule in rules.items() if f'class="{name}"' in drawn)
    return Markup(f"{BASE_RULES}@media (prefers-color-scheme:dark){{{dark}}}")
