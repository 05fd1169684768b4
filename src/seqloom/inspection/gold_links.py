"""Links between the words of two sentences that are known to be right, and how well others fit them.

    "0-0 1-2 3?4"    source word - target word, as text.split() numbers them; one with ? is possible, others are sure

    A found    S sure    P sure or possible
    precision = |A n P| / |A|      recall = |A n S| / |S|      AER = 1 - (|A n S| + |A n P|) / (|A| + |S|)

The alignment error rate is that of Och and Ney (2003): a possible link is neither asked for nor held against anybody.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from operator import index
from typing import NamedTuple, SupportsIndex

from seqloom.errors import DataError

WordPair = tuple[int, int]  # a source word and a target word, from 0

WRITTEN = re.compile(r"(\d+)([-?])(\d+)")


class Gold(NamedTuple):
    """The links that are known."""

    sure: tuple[WordPair, ...]
    possible: tuple[WordPair, ...] = ()  # the others that may be there

    @property
    def every(self) -> tuple[WordPair, ...]:
        """All of them."""
        return (*self.sure, *self.possible)


class Fit(NamedTuple):
    """How well links fit those that are known; None where there is nothing to divide by."""

    error_rate: float | None
    precision: float | None
    recall: float | None
    found: int
    sure: int
    possible: int


def gold_links(given: str | Sequence[WordPair] | Gold) -> Gold:
    """The links of a text such as `0-0 1-2 3?4`, or of pairs, which are all sure.

    >>> gold_links("0-0 1-2 3?4")
    Gold(sure=((0, 0), (1, 2)), possible=((3, 4),))
    """
    if isinstance(given, Gold):
        return Gold(*(tuple(map(_pair, links)) for links in given))
    if not isinstance(given, str):
        return Gold(tuple(map(_pair, given)))
    parts = [_part(text) for text in given.split()]
    sure = {pair: None for mark, pair in parts if mark == "-"}  # in their order, each once
    possible = {pair: None for mark, pair in parts if mark == "?" and pair not in sure}
    return Gold(tuple(sure), tuple(possible))


def _part(text: str) -> tuple[str, WordPair]:
    found = WRITTEN.fullmatch(text)
    if found is None:
        raise DataError(f"'{text}' is no link", fix="write source-target, from 0, such as 0-0 1-2; possible ones 3?4")
    return found[2], (int(found[1]), int(found[3]))


def _pair(given: Iterable[SupportsIndex]) -> WordPair:
    """Two whole numbers, which numpy may have made; a truth is none."""
    try:
        one, other = given
        if isinstance(one, bool) or isinstance(other, bool):
            raise TypeError
        return index(one), index(other)
    except (TypeError, ValueError):
        fix = "give (number of the source word, number of the target word)"
        raise DataError(f"{given!r} is no link", fix=fix) from None


def require_inside(gold: Gold, source: Collection[int], target: Collection[int]) -> None:
    """Raise DataError for a link to a word that there is not: these are the numbers of those that there are."""
    for one, other in gold.every:
        if one not in source or other not in target:
            raise DataError(
                f"the link {one}-{other} leads outside {len(source)} source and {len(target)} target words",
                fix="words are those between spaces: give (number of the source word, of the target word), from 0",
            )


def fit_of(found: Collection[WordPair], gold: Gold) -> Fit:
    """How well the links that were found fit.

    >>> fit_of([(0, 0), (1, 2)], Gold(sure=((0, 0), (1, 1)))).error_rate
    0.5
    """
    links, sure, every = set(found), set(gold.sure), set(gold.every)
    right, allowed = len(links & sure), len(links & every)
    error = 1 - (right + allowed) / (len(links) + len(sure)) if links or sure else None
    precision, recall = (allowed / len(links) if links else None), (right / len(sure) if sure else None)
    return Fit(error, precision, recall, len(links), len(sure), len(every) - len(sure))
