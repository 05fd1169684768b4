"""Examples: what a model learns from, whatever file it came from.

input     text | a pair of texts | three texts | words | vectors [T,D] | a picture [H,W,C]
target    a label | labels | numbers | a tag per word or step | numbers per word or step | a text | nothing
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.data.problems import Place


class TextPair(NamedTuple):
    """Two texts that are judged together: premise and hypothesis, two questions."""

    first: str
    second: str


class TextTriple(NamedTuple):
    """A text, one that belongs to it, and one that does not."""

    anchor: str
    positive: str
    negative: str


class Words(NamedTuple):
    """A text cut into words: word i is text[start:stop] of its span. Tags belong to words, never to subwords."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def join(cls, words: Sequence[str], spaces: Sequence[bool] | None = None) -> "Words":
        """Words put together into a text, with a space after each but the last, or only where `spaces` says so.

        >>> Words.join(["No", "way", "!"], [True, False, False])
        Words(text='No way!', spans=((0, 2), (3, 6), (6, 7)))
        """
        pieces, spans, at = [], [], 0
        for number, word in enumerate(words):
            spans.append((at, at + len(word)))
            gap = " " if number + 1 < len(words) and (spaces is None or spaces[number]) else ""
            pieces.append(word + gap)
            at += len(word) + len(gap)
        return cls("".join(pieces), tuple(spans))

    @classmethod
    def cut(cls, text: str) -> "Words":
        """A text cut at its spaces, however many stand together.

        >>> Words.cut(" No  way !").spans
        ((1, 3), (5, 8), (9, 10))
        """
        return cls(text, tuple(found.span() for found in re.finditer("[^ ]+", text)))

    def words(self) -> list[str]:
        """The words themselves."""
        return [self.text[start:stop] for start, stop in self.spans]


Input = str | TextPair | TextTriple | Words | np.ndarray
Target = str | tuple[str, ...] | tuple[float, ...] | tuple[tuple[float, ...], ...] | None


class Example(NamedTuple):
    """One example and where it came from."""

    input: Input
    target: Target
    id: str  # empty where the data names none: then the place tells
    place: Place
