"""Several figures together: in rows as one picture for an SVG or PNG file, or as one HTML page.

resvg, which makes PNG, falls back to another font of any weight and slant for the complete label if one of its
characters is missing in the first font. So the first one has `≤`, `␣`, `−` and superscripts, Hebrew and Arabic;
condensed, it is as wide as browser fonts. Scripts without an installed font are shown as boxes.
"""

import html
import re
import unicodedata
from collections.abc import Sequence

from seqloom.errors import needing
from seqloom.report.figures.figure import NAMESPACE, Figure, checked_instances, checked_text, require_some
from seqloom.report.figures.markup import FLIPPED, FONT, look, style_sheet, tag, together

GAP = 8.0
ALMOST = 0.75
WASTE = 0.85  # relative height: tighter packing that saves less is not worth the mixed order
TALLEST = 2.2  # times its width: a taller picture gets two columns
MOST_FIGURES = 1000  # of a page
ZOOM = 2.0  # pixels per unit of a picture, for sharp text on high-resolution screens
RIGHT_TO_LEFT = re.compile(r'<text\b[^>]* direction="rtl"[^>]*>')
ANCHORED = re.compile(r' text-anchor="(\w+)"')
Size = tuple[float, float]
FACES = "'DejaVu Sans', Arial, 'Liberation Sans', 'Helvetica Neue', 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
EAST_ASIAN = "'Noto Sans CJK SC', 'Source Han Sans SC', 'PingFang SC', 'Microsoft YaHei'"
EAST_ASIAN_NAMES = {"CJK", "BOPOMOFO", "FULLWIDTH", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA"}
COVERED = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "COMBINING"}
LABEL = re.compile(r"<text\b([^>]*)>([^<]*)")
VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def page(title: str, figures: Sequence[Figure]) -> str:
    """Return one self-contained HTML document with the figures, side by side where they fit.

    >>> from seqloom.report.figures import Bars
    >>> document = page("Results", [Bars(title="Accuracy", labels=["a"], values=[0.9])])
    >>> document.startswith("<!DOCTYPE html>") and "<script" not in document
    True
    """
    from seqloom.report.document import Document, Pictures

    checked_text(title, "title")
    shown = checked_instances(figures, Figure, "figures")  # type: ignore[type-abstract]
    require_some(shown, "figures", largest=MOST_FIGURES)
    return Document(title, [Pictures([figure]) for figure in shown]).html()


def stacked(figures: Sequence[Figure]) -> str:
    """Return one SVG element with the figures in order, in rows as wide as the widest; many of them in two columns."""
    if len(figures) == 1:
        return figures[0].svg()
    drawn = [figure.drawn(styled=False) for figure in figures]
    sizes = [(float(found[1]), float(found[2])) for one in drawn if (found := VIEW_BOX.search(one))]
    places = _places(sizes)
    width, height = _reach(places, sizes)
    placed = [tag("g", one, transform=f"translate({x:g} {y:g})") for one, (x, y) in zip(drawn, places, strict=True)]
    body = together([tag("rect", width=width, height=height, **look("ground")), *placed])
    box: dict[str, str | float] = {"viewBox": f"0 0 {width:g} {height:g}", "width": width, "height": height}
    return tag("svg", tag("style", style_sheet(body)), body, xmlns=NAMESPACE, **box, class_="seqloom")


def _places(sizes: Sequence[Size]) -> list[Size]:
    """Return the corner of each figure: one column, two if that is too tall, tightly packed if rows waste space."""
    places = _in_rows(sizes, columns=1)
    width, height = _reach(places, sizes)
    if height <= TALLEST * width:
        return places
    places, packed = _in_rows(sizes, columns=2), []
    widest, ends = max(wide for wide, _ in sizes), [0.0, 0.0]
    for _, tall in sizes:  # each goes to the end of the shorter of two columns
        column = ends.index(min(ends))
        packed.append((column * widest, ends[column]))
        ends[column] += tall + GAP
    return packed if _reach(packed, sizes)[1] < WASTE * _reach(places, sizes)[1] else places


def _in_rows(sizes: Sequence[Size], columns: int) -> list[Size]:
    """Return the corner of each figure, filling rows as wide as `columns` of the widest figures."""
    places: list[Size] = []
    x = y = tallest = 0.0
    widest = max(wide for wide, _ in sizes)
    for wide, tall in sizes:
        if x and x + wide > columns * widest:
            x, y, tallest = 0.0, y + tallest + GAP, 0.0
        places.append((x, y))
        x += widest if wide > ALMOST * widest else wide  # figures of similar width align in columns
        tallest = max(tallest, tall)
    return places


def _reach(places: Sequence[Size], sizes: Sequence[Size]) -> Size:
    """Return the width and the height of all figures together."""
    corners = [(x + wide, y + tall) for (x, y), (wide, tall) in zip(places, sizes, strict=True)]
    return max(x for x, _ in corners), max(y for _, y in corners)


def png(svg: str, *, zoom: float = ZOOM) -> bytes:
    """Convert a picture to PNG with resvg, without a browser, always on a white background."""
    with needing("png"):
        import resvg_py
    turned = with_faces(RIGHT_TO_LEFT.sub(_from_the_left, svg))
    return bytes(resvg_py.svg_to_bytes(svg_string=turned, zoom=zoom, background="#ffffff"))


def _from_the_left(found: re.Match[str]) -> str:
    """Convert a label for resvg, for which the start of a line is always its left end."""
    opening = found.group().replace(' direction="rtl"', "")
    anchor = ANCHORED.search(opening)
    turned = f' text-anchor="{FLIPPED[anchor.group(1) if anchor else "start"]}"'
    return ANCHORED.sub("", opening)[:-1] + turned + ">"


def with_faces(svg: str) -> str:
    """Add font names to each label of the picture."""
    named = f'font-family="{_quoted(FACES)}" font-stretch="condensed"'
    return LABEL.sub(_with_face, svg.replace(f'font-family="{_quoted(FONT)}"', named))


def _with_face(found: re.Match[str]) -> str:
    """Add the font that the label's script needs before the common ones, if any."""
    looks, text = found.groups()
    names = {  # of scripts
        unicodedata.name(letter, "").split(" ")[0]
        for letter in html.unescape(text)
        if letter > "\u0370"
        and (unicodedata.category(letter)[0] in "LM" or unicodedata.east_asian_width(letter) in "WF")
    }
    others = sorted(name for name in names - COVERED if name.isalpha())
    if not others and not names & EAST_ASIAN_NAMES:
        return found.group()
    face = EAST_ASIAN if names & EAST_ASIAN_NAMES else f"'Noto Sans {others[0].title()}'"
    return f'<text font-family="{_quoted(f"{face}, {FACES}")}"{looks}>{text}'


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)
