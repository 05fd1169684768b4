"""Makes labels safe to display, measures and truncates them.

A label may come from any file, so it may contain terminal escapes, line breaks or characters that reorder their
neighbors. `visible` turns those into escapes such as `\\x1b`; no other module of `report` inspects characters.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache

LEFT_ISOLATE, RIGHT_ISOLATE = "\u2068", "\u2069"
ELLIPSIS = "…"
SPACE, EMPTY = "␣", "∅"  # shown for spaces at the edges and for an empty token
LONGEST = 1000  # characters: no figure has room for more
EMOJI_SELECTOR = "\ufe0f"
# Format characters that are kept: joiners (Persian, emoji) and the visible Arabic and Syriac signs.
KEPT_FORMATS = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")
JOINERS = frozenset("\u200c\u200d")
JOINER, SKIN_TONES, FLAG_TAGS = "\u200d", ("\U0001f3fb", "\U0001f3ff"), ("\U000e0020", "\U000e007f")
HALF_FLAGS = ("\U0001f1e6", "\U0001f1ff")
LONGEST_CLUSTER = 64  # characters of a grapheme cluster; a longer one may be cut
MARKS = ("Mn", "Me", "Mc")
RIGHT_TO_LEFT = frozenset({"R", "AL"})
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HYPHEN = re.compile(r"(?:(?<=[\s(\[=])|^)-(?=\d)")  # not a hyphen in a word or in a quoted token

Measure = Callable[[str], float]


def visible(text: str) -> str:
    """Return the text with every control, bidi, line-breaking or unencodable character escaped.

    >>> visible("red \\x1b[31m, turned \\u202e, next\\r\\nline")
    'red \\\\x1b[31m, turned \\\\u202e, next\\\\x0d\\\\x0aline'
    """
    shown = text
    if not text.isprintable():
        shown = "".join(_escaped(letter) if _is_hidden(letter) else letter for letter in text)
    if shown and all(_columns_of(letter) == 0 for letter in shown):  # only joiners or marks: nothing would be visible
        return "".join(map(_escaped, text))
    return f"◌{shown}" if shown and unicodedata.category(shown[0]) in MARKS else shown  # not on a neighbor


@lru_cache(maxsize=4096)
def _is_hidden(letter: str) -> bool:
    category = unicodedata.category(letter)
    if category == "Cf":
        return letter not in KEPT_FORMATS
    noncharacter = category == "Cn" and (ord(letter) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(letter) <= 0xFDEF)
    return noncharacter or category in ("Cc", "Cs", "Zl", "Zp")


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """Return the number of terminal columns of the text: wide characters take two, combining marks zero.

    >>> columns("abc"), columns("词语"), columns("e\\u0301")
    (3, 4, 1)
    """
    total = last = 0
    for letter in text:
        if letter == EMOJI_SELECTOR:  # turns the narrow character before it into a wide emoji
            last = 1 if last == 1 else 0
        else:
            last = _columns_of(letter)
        total += last
    return total


@lru_cache(maxsize=4096)
def _columns_of(letter: str) -> int:
    category = unicodedata.category(letter)
    if letter in JOINERS or letter in (LEFT_ISOLATE, RIGHT_ISOLATE) or category in ("Mn", "Me"):
        return 0
    if category == "Cn":  # newer than this Python's tables, most likely an emoji: assume wide
        return 2
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def breadth(text: str) -> int:
    """Return the terminal columns of the visible form; of a very long text, only those of its beginning."""
    return columns(visible(text[:LONGEST]))


def ems(text: str) -> float:
    """Estimate the width of the text in a proportional sans-serif font, in ems; the estimate is rather too large."""
    return sum(map(_ems_of, text))


@lru_cache(maxsize=4096)
def _ems_of(letter: str) -> float:
    if _columns_of(letter) != 1:
        return 1.0 if _columns_of(letter) else 0.0
    if letter in "iljtfrI.,:;|!'()[]{}/\\ ":
        return 0.36
    if letter in "mwMW@%…—":
        return 0.95
    if unicodedata.bidirectional(letter) == "AL":
        return 0.75
    return 0.72 if letter.isupper() else 0.58 if letter.isascii() else 0.64


def edged(token: str) -> str:
    """Return the token with spaces at its edges made visible, and a sign for an empty token.

    >>> edged(" bad"), edged("not"), edged("")
    ('␣bad', 'not', '∅')
    """
    words = shortened(token)
    inner = words.strip(" ")
    if not inner:
        return SPACE * len(words) or EMPTY
    start = words.index(inner)
    return SPACE * start + inner + SPACE * (len(words) - start - len(inner))


def fit(text: str, width: float, measure: Measure = columns) -> str:
    """Return the text if it is at most `width` wide, else its beginning and an ellipsis.

    >>> fit("attention", 6)
    'atten…'
    """
    limit = int(8 * width) + 8  # also truncates long runs of zero-width marks
    if len(text) <= limit and measure(text) <= width:
        return text
    kept, room = "", width - measure(ELLIPSIS)
    for letter in text[:limit]:
        room -= measure(kept[-1:] + letter) - measure(kept[-1:])  # an emoji selector widens the character before it
        if room < 0:
            break
        kept += letter
    return kept + ELLIPSIS


def wrap(text: str, width: float, measure: Measure = columns) -> list[str]:
    """Wrap the text to lines at most `width` wide, at spaces; a word is broken only if it is too long for a line."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if measure(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        line = ""
        for letter in word:
            if line and measure(line + letter) > width:
                lines.append(line)
                line = ""
            line += letter
    return [*lines, line]


def stacked_cell(text: str, width: int, *, right: bool = False) -> list[str]:
    """Wrap the complete text to a stack of cells of this width."""
    return [cell(line, width, right=right) for line in wrap(text, width)]


def shortened(text: str, limit: int = 200) -> str:
    """Return the visible text, or the beginning of a very long one and its length."""
    return visible(text) if len(text) <= limit else f"{visible(text[:limit])}… ({len(text):,} characters)"


def reads_right_to_left(text: str) -> bool:
    """Whether the first letter with a direction is right-to-left."""
    directions = (unicodedata.bidirectional(letter) for letter in text)
    return next((d for d in directions if d == "L" or d in RIGHT_TO_LEFT), "L") in RIGHT_TO_LEFT


def isolated(text: str) -> str:
    """Wrap the text in isolate marks if it has right-to-left letters, so that it cannot reorder its neighbors."""
    turns = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in text)
    return f"{LEFT_ISOLATE}{text}{RIGHT_ISOLATE}" if turns else text


def cell(text: str, width: int, *, right: bool = False) -> str:
    """Truncate and pad the text to exactly `width` columns, isolated; the padding is outside the isolate."""
    short = fit(text, width)
    padding = " " * (width - columns(short))
    return padding + isolated(short) if right else isolated(short) + padding


def minus_signed(text: str) -> str:
    """Return the text for a figure: each negative number gets a true minus sign.

    >>> minus_signed("Together -0.75 (-2 to -1), not '-5' and not half-1")
    "Together −0.75 (−2 to −1), not '-5' and not half-1"
    """
    return HYPHEN.sub("−", text)


def typeset(numeral: str) -> str:
    """Return the number for a figure: with a true minus sign, and a power of ten instead of an `e`.

    >>> typeset("-2e-5"), typeset("1e6"), typeset("-0.5")
    ('−2×10⁻⁵', '10⁶', '−0.5')
    """
    mantissa, mark, power = numeral.partition("e")
    body = mantissa.replace("-", "−")
    if not mark:
        return body
    ten = f"10{power.translate(SUPERSCRIPTS)}"
    return ten if body == "1" else f"{body}×{ten}"


def excerpt(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis, in at most `width` columns; grapheme clusters stay intact.

    >>> excerpt("Strange \\x1b things happen", 14), excerpt("family 👨‍👩‍👧‍👦!", 12)
    ('Strange \\\\x1b …', 'family …')
    """
    limit = 8 * width + 8  # a long run of marks on one letter has no width but must end
    kept, room = "", width
    for cluster in _clusters(text[: limit + 1]):
        shown = visible(cluster)
        if columns(shown) > room or len(kept) + len(shown) > limit:
            clusters = list(_clusters(kept))
            while clusters and columns("".join(clusters)) >= width:  # the ellipsis needs a column
                clusters.pop()
            return "".join(clusters) + ELLIPSIS
        kept += shown
        room -= columns(shown)
    return kept


def excerpt_from(text: str, start: int, width: int) -> str:
    """Return an excerpt that begins at the grapheme cluster of character `start`, after an ellipsis.

    >>> excerpt_from("one two three four", 8, 8), excerpt_from("short", 0, 8)
    ('…three …', 'short')
    """
    before = 0
    for cluster in _clusters(text[: start + LONGEST_CLUSTER]):
        if before + len(cluster) > start:
            break
        before += len(cluster)
    return excerpt(text, width) if not before else ELLIPSIS + excerpt(text[before:], width - 1)


def _clusters(text: str) -> Iterator[str]:
    """Yield grapheme clusters: a letter with its marks, an emoji sequence, a flag."""
    cluster = ""
    for letter in text:
        if cluster and not _continues(cluster, letter):
            yield cluster
            cluster = ""
        cluster += letter
    if cluster:
        yield cluster


def _continues(cluster: str, letter: str) -> bool:
    if letter == JOINER or cluster[-1] == JOINER or unicodedata.category(letter) in MARKS:
        return True
    if any(first <= letter <= last for first, last in (SKIN_TONES, FLAG_TAGS)):
        return True
    return len(cluster) == 1 and all(HALF_FLAGS[0] <= half <= HALF_FLAGS[1] for half in (letter, cluster))
