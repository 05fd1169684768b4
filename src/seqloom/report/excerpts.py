"""Beginnings of texts for people: nothing hidden in them, and cut only where a reader sees a gap."""

import unicodedata
from collections.abc import Iterator

from seqloom.report.figures.labels import ELLIPSIS, columns, visible

JOINER = "\u200d"
LONGEST_CLUSTER = 64  # characters; what is longer may be cut


def excerpt(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in at most `width` columns; emoji and accented letters stay whole.

    >>> excerpt("Strange \\x1b things happen", 14), excerpt("family 👨‍👩‍👧‍👦!", 12)
    ('Strange \\\\x1b …', 'family …')
    """
    limit = 8 * width + 8  # a flood of marks on one letter takes no width, but no reader either
    kept, room = "", width
    for cluster in _clusters(text[: limit + 1]):
        shown = visible(cluster)
        if columns(shown) > room or len(kept) + len(shown) > limit:
            return _cut(kept, width) + ELLIPSIS
        kept += shown
        room -= columns(shown)
    return kept


def excerpt_from(text: str, start: int, width: int) -> str:
    """The text from character `start` on, or from the beginning of what readers see there, with an ellipsis before it.

    >>> excerpt_from("one two three four", 8, 8), excerpt_from("short", 0, 8)
    ('…three …', 'short')
    """
    before = 0
    for cluster in _clusters(text[: start + LONGEST_CLUSTER]):
        if before + len(cluster) > start:
            break
        before += len(cluster)
    return excerpt(text, width) if not before else ELLIPSIS + excerpt(text[before:], width - 1)


def _cut(kept: str, width: int) -> str:
    """What is left when the ellipsis has its column."""
    clusters = list(_clusters(kept))
    while clusters and columns("".join(clusters)) >= width:
        clusters.pop()
    return "".join(clusters)


def _clusters(text: str) -> Iterator[str]:
    """The characters as readers see them: a letter with its marks, an emoji with all that is joined to it, a flag."""
    cluster = ""
    for letter in text:
        if cluster and not _continues(cluster, letter):
            yield cluster
            cluster = ""
        cluster += letter
    if cluster:
        yield cluster


def _continues(cluster: str, letter: str) -> bool:
    if letter == JOINER or cluster[-1] == JOINER or unicodedata.category(letter) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= letter <= "\U0001f3ff" or "\U000e0020" <= letter <= "\U000e007f":  # skin tones, flags' tags
        return True
    return _is_half_flag(letter) and len(cluster) == 1 and _is_half_flag(cluster)


def _is_half_flag(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"
