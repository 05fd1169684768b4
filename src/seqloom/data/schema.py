"""What examples of a set consist of: one kind of input and one kind of target, and the task that the two make.

Encoded, every example is a row in a few columns (`Ragged`), whatever it was; which, the kinds say (`data/kinds`).
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from seqloom.config.data import PARTS, Task
from seqloom.data.kinds.kind import InputKind, Kind, TargetKind
from seqloom.data.kinds.labels import LabelsTarget, LabelTarget, TagsTarget
from seqloom.data.kinds.nothing import MaskedTarget, NoTarget
from seqloom.data.kinds.numbers import NumbersTarget, SeriesTarget
from seqloom.data.kinds.picture import PictureInput
from seqloom.data.kinds.related import RelatedTarget, SimilarityTarget
from seqloom.data.kinds.target_text import TextTarget
from seqloom.data.kinds.text import PairInput, TextInput, TextPair, TextTriple, TripleInput
from seqloom.data.kinds.vectors import VectorsInput
from seqloom.data.kinds.words import Words, WordsInput
from seqloom.data.problems import Place
from seqloom.errors import DataError, did_you_mean

# All kinds by what a file or a person calls them. The order decides between two that claim one thing: usual names of
# columns are looked for in it, and the first kind that `holds` a column, or `matches` a value from Python, has it. So
# a kind whose values are arrays of two axes stands before vectors, which hold any of them.
INPUT_KINDS: dict[str, InputKind] = {
    kind.name: kind for kind in (WordsInput(), VectorsInput(), PictureInput(), TextInput(), PairInput(), TripleInput())
}
TARGET_KINDS: dict[str, TargetKind] = {
    kind.name: kind
    for kind in (
        LabelTarget(),
        LabelsTarget(),
        NumbersTarget(),
        TagsTarget(),
        SeriesTarget(),
        TextTarget(),
        NoTarget(),
        MaskedTarget(),
        RelatedTarget(),
        SimilarityTarget(),
    )
}

AnyKind = TypeVar("AnyKind", bound=Kind)


def kind_named(name: str, kinds: dict[str, AnyKind]) -> AnyKind:
    """The kind of a name; DataError for a name that no kind has."""
    if name not in kinds:
        raise DataError(f"no kind of data is called '{name[:40]}'", fix=did_you_mean(name, kinds))
    return kinds[name]


Value = TypeVar("Value")


def in_order(parts: Mapping[str, Value]) -> dict[str, Value]:
    """The same by part, in the order train, dev, test, whatever came first in the file."""
    return {part: parts[part] for part in sorted(parts, key=lambda part: (*PARTS, part).index(part))}


class _Fields(NamedTuple):
    input: InputKind
    target: TargetKind
    labels: tuple[str, ...] = ()


class Schema(_Fields):
    """The kinds of input and target, and the names of the labels or tags in the order of their numbers."""

    __slots__ = ()

    def __new__(cls, input: InputKind | str, target: TargetKind | str, labels: tuple[str, ...] = ()) -> "Schema":
        """A schema of kinds, or of their names, as files hold them; DataError for a name that no kind has."""
        first = kind_named(input, INPUT_KINDS) if isinstance(input, str) else input
        second = kind_named(target, TARGET_KINDS) if isinstance(target, str) else target
        return super().__new__(cls, first, second, labels)

    @property
    def task(self) -> Task:
        """The task that these kinds make."""
        return self.target.task


Input = str | TextPair | TextTriple | Words | np.ndarray
Target = str | tuple[str, ...] | tuple[float, ...] | tuple[tuple[float, ...], ...] | None


class Example(NamedTuple):
    """One example and where it came from."""

    input: Input
    target: Target
    id: str  # empty where the data names none: then the place tells
    place: Place
