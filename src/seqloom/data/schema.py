"""What examples of a set consist of: one kind of input and one kind of target, and the task that the two make.

Encoded, every example is a row in a few columns (`Ragged`), whatever it was:

    input     column "input"                              target    column "target"
    text      symbols                                     label     one label number; -1: not seen in training
    pair      symbols of both, SEPARATOR between          labels    label numbers, any count; -1: not seen, each once
    words     symbols of all words, in order,             numbers   one number or several
              and "firsts": where each word begins        tags      a tag number per word or step; -1: not seen
    vectors   vectors [T,D]                               series    numbers [T,K]: one or several per word or step
    picture   rows of pixels [H,W,C]                      text      symbols, and "reference": the original in bytes
                                                          nothing   no column, or "bytes": those of the text
    triple    symbols of all three, with SEPARATORs       masked    no column: what is hidden is drawn later
                                                          related   no column: the texts of a row stand together
                                                          similarity  a number for a pair
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from seqloom.config.data import PARTS as PARTS
from seqloom.config.data import Part as Part
from seqloom.config.data import Task
from seqloom.data.problems import Place

InputKind = Literal["text", "pair", "words", "vectors", "picture", "triple"]
TargetKind = Literal[
    "label", "labels", "numbers", "tags", "series", "text", "nothing", "masked", "related", "similarity"
]

TASKS: dict[TargetKind, Task] = {
    "label": "classify",
    "labels": "classify",
    "numbers": "regress",
    "tags": "tag",
    "series": "regress",
    "text": "translate",
    "nothing": "lm",
    "masked": "masked",
    "related": "embed",
    "similarity": "embed",
}

TOGETHER: tuple[TargetKind, ...] = ("related", "similarity")  # each text of an input is read by itself
RUNNING: tuple[TargetKind, ...] = ("nothing", "masked")  # text alone: neighbouring lines belong together

Value = TypeVar("Value")


def in_order(parts: Mapping[str, Value]) -> dict[str, Value]:
    """The same by part, in the order train, dev, test, whatever came first in the file."""
    return {part: parts[part] for part in sorted(parts, key=lambda part: (*PARTS, part).index(part))}


class Schema(NamedTuple):
    """The kinds of input and target, and the names of the labels or tags in the order of their numbers."""

    input: InputKind
    target: TargetKind
    labels: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task that these kinds make."""
        return TASKS[self.target]


# -----------------------------------------------------------------------------
# Examples: what a model learns from, whatever file it came from.
#
# input     text | a pair of texts | three texts | words | vectors [T,D] | a picture [H,W,C]
# target    a label | labels | numbers | a tag per word or step | numbers per word or step | a text | nothing
# -----------------------------------------------------------------------------


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
