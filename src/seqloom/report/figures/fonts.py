"""The faces of the letters in a PNG: one for all labels, and one for each script that it lacks.

resvg draws a whole label in some other face, of any weight and slant, as soon as one of its signs is missing in the
first. So the first is one that has `≤`, `␣`, `−` and superscripts, Hebrew and Arabic; condensed it is as wide as the
faces of browsers. Where a machine has no face for a script, its letters are boxes.
"""

import html
import re
import unicodedata

from seqloom.report.figures.markup import FONT

FACES = "'DejaVu Sans', Arial, 'Liberation Sans', 'Helvetica Neue', 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
EAST_ASIAN = "'Noto Sans CJK SC', 'Source Han Sans SC', 'PingFang SC', 'Microsoft YaHei'"
EAST_ASIAN_NAMES = {"CJK", "BOPOMOFO", "FULLWIDTH", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA"}
COVERED = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "COMBINING"}
LABEL = re.compile(r"<text\b([^>]*)>([^<]*)")


def with_faces(svg: str) -> str:
    """The picture with the faces of each label named."""
    named = f'font-family="{_quoted(FACES)}" font-stretch="condensed"'
    return LABEL.sub(_with_face, svg.replace(f'font-family="{_quoted(FONT)}"', named))


def _with_face(found: re.Match[str]) -> str:
    looks, text = found.groups()
    face = _special(html.unescape(text))
    return f'<text font-family="{_quoted(f"{face}, {FACES}")}"{looks}>{text}' if face else found.group()


def _special(text: str) -> str:
    """The faces that a text in this script needs before the common ones, if any."""
    names = {unicodedata.name(letter, "").split(" ")[0] for letter in text if letter > "\u0370" and _is_written(letter)}
    if names & EAST_ASIAN_NAMES:
        return EAST_ASIAN
    others = sorted(name for name in names - COVERED if name.isalpha())
    return f"'Noto Sans {others[0].title()}'" if others else ""


def _is_written(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LM" or unicodedata.east_asian_width(letter) in "WF"


def _quoted(text: str) -> str:
    return html.escape(text, quote=True)
