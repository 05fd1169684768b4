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

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

from seqloom.config.data import Task

InputKind = Literal["text", "pair", "words", "vectors", "picture", "triple"]
TargetKind = Literal[
    "label", "labels", "numbers", "tags", "series", "text", "nothing", "masked", "related", "similarity"
]

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")

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
