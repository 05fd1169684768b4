"""The schema of a dataset: one kind of input, one kind of target, and the task they make.

An encoded example is a row in a few columns (`Ragged`), which its kinds define (`data/kinds`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple, Self, TypeVar, overload

import numpy as np

from seqloom.config.data import SPLITS, Task
from seqloom.data.kinds.graph import Graph, GraphInput, VectorGraphInput
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

# All kinds by name. The order matters: column names are searched in this order, and the first kind that `holds` a
# column or `matches` a Python value is used. So a kind whose values are arrays with two axes must come before vectors.
INPUT_KINDS: dict[str, InputKind] = {
    kind.name: kind
    for kind in (
        WordsInput(),
        VectorsInput(),
        PictureInput(),
        GraphInput(),
        VectorGraphInput(),
        TextInput(),
        PairInput(),
        TripleInput(),
    )
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
    """Return the kind of this name; raise DataError if there is none."""
    if name not in kinds:
        raise DataError(f"no kind of data is called '{name[:40]}'", fix=did_you_mean(name, kinds))
    return kinds[name]


Value = TypeVar("Value")


def in_order(parts: Mapping[str, Value]) -> dict[str, Value]:
    """The same dict in the order train, dev, test."""
    return {part: parts[part] for part in sorted(parts, key=lambda part: (*SPLITS, part).index(part))}


class _Fields(NamedTuple):
    input: InputKind
    target: TargetKind
    labels: tuple[str, ...] = ()


class Schema(_Fields):
    """The kinds of input and target, and the labels or tags in the order of their numbers."""

    __slots__ = ()

    def __new__(cls, input: InputKind | str, target: TargetKind | str, labels: tuple[str, ...] = ()) -> "Schema":
        """Make a schema from kinds or their names; raise DataError for an unknown name."""
        first = kind_named(input, INPUT_KINDS) if isinstance(input, str) else input
        second = kind_named(target, TARGET_KINDS) if isinstance(target, str) else target
        return super().__new__(cls, first, second, labels)

    @property
    def task(self) -> Task:
        """The task of these kinds."""
        return self.target.task


Input = str | TextPair | TextTriple | Words | Graph | np.ndarray
Target = str | tuple[str, ...] | tuple[float, ...] | tuple[tuple[float, ...], ...] | None


class Example(NamedTuple):
    """One example and its place in the files."""

    input: Input
    target: Target
    id: str | None  # None if the data has no ids
    place: Place


class Examples(Sequence[Example]):
    """Examples by columns; a row becomes an `Example` only when it is asked for.

    Objects that are kept for each row would be visited by Python's search for cycles, again and again.

    >>> rows = Examples(["a b", "c"], ["x", "y"], [None, None], ["films", "films"], [2, 3])
    >>> rows[1].input, str(rows[1].place), len(rows)
    ('c', 'films:3', 2)
    """

    __slots__ = ("ids", "inputs", "lines", "paths", "targets")

    def __init__(
        self,
        inputs: list[Input],
        targets: list[Target],
        ids: list[str | None],
        paths: list[str],
        lines: list[int | None],
    ) -> None:
        self.inputs, self.targets, self.ids, self.paths, self.lines = inputs, targets, ids, paths, lines

    @classmethod
    def of(cls, examples: Iterable[Example]) -> Self:
        """The same examples by columns."""
        found = cls([], [], [], [], [])
        for example in examples:
            found.append(example)
        return found

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, row: int) -> Example: ...

    @overload
    def __getitem__(self, row: slice) -> Self: ...

    def __getitem__(self, row: int | slice) -> Example | Self:
        if isinstance(row, slice):
            return type(self)(*(column[row] for column in self._columns()))  # type: ignore[arg-type]
        return Example(self.inputs[row], self.targets[row], self.ids[row], self.place(row))

    def __iter__(self) -> Iterator[Example]:
        return map(Example, self.inputs, self.targets, self.ids, self.places())

    def _columns(self) -> tuple[list[Input], list[Target], list[str | None], list[str], list[int | None]]:
        return self.inputs, self.targets, self.ids, self.paths, self.lines

    def place(self, row: int) -> Place:
        """The place of a row in the files."""
        return Place(self.paths[row], self.lines[row])

    def places(self) -> Iterator[Place]:
        """The place of each row."""
        return map(Place, self.paths, self.lines)

    def append(self, example: Example) -> None:
        """Add one example."""
        self.inputs.append(example.input)
        self.targets.append(example.target)
        self.ids.append(example.id)
        self.paths.append(example.place.path)
        self.lines.append(example.place.line)

    def extend(self, others: "Examples") -> None:
        """Add the rows of others."""
        self.inputs += others.inputs
        self.targets += others.targets
        self.ids += others.ids
        self.paths += others.paths
        self.lines += others.lines

    def where(self, wanted: Sequence[bool]) -> Self:
        """The rows for which this is true."""
        return type(self)(*(list(compress(column, wanted)) for column in self._columns()))  # type: ignore[arg-type]
