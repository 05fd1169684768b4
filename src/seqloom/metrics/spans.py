"""Spans found and missed, counted as conlleval counts them: a span is right if its borders and its type are."""

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.data.tags import spans


class SpanCounts(NamedTuple):
    """How many spans of a sentence were said, are true, and are both."""

    right: int
    said: int
    true: int


def count_spans(said: Sequence[str], true: Sequence[str]) -> SpanCounts:
    """The counts for one sentence, from a tag for each word.

    >>> count_spans(["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O", "B-ORG"])
    SpanCounts(right=1, said=2, true=2)
    """
    found, there = set(spans(said)), set(spans(true))
    return SpanCounts(len(found & there), len(found), len(there))
