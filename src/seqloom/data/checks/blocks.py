"""Blocks: some thousand examples of one part that every check looks at together, so that a row costs almost nothing."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from seqloom.data.problems import Place
from seqloom.data.schema import Example, Schema

BLOCK_ROWS = 4_096
BLOCK_CHARACTERS = 4_000_000  # or bytes of arrays: rows may be as large as they like, a block may not


class ExampleBlock:
    """Examples of one part in the order of their files, and what several checks need of them."""

    def __init__(self, part: str, examples: Sequence[Example], schema: Schema) -> None:
        self.part = part
        self.examples = examples
        self.schema = schema

    @cached_property
    def inputs(self) -> list[list[str]]:
        """The texts of the inputs: one list for each text that an input has, none for vectors and pictures."""
        texts = [self.schema.input.texts(example.input) for example in self.examples]
        return [list(side) for side in zip(*texts, strict=True)]

    @cached_property
    def targets(self) -> list[str]:
        """The targets that are texts."""
        return [example.target for example in self.examples] if self.schema.target.is_text else []  # type: ignore[misc]

    @cached_property
    def keys(self) -> np.ndarray:
        """[rows] int64, equal for equal inputs; good inside this process only, as Python's hash is."""
        if len(self.inputs) == 1:
            return hashes(self.inputs[0])
        if self.inputs:
            return hashes(zip(*self.inputs, strict=True), len(self.examples))
        return hashes([_array_key(example.input) for example in self.examples])  # type: ignore[arg-type]


def _array_key(array: np.ndarray) -> tuple[object, ...]:
    return array.shape, array.dtype.str, array.tobytes()


def hashes(values: Iterable[object], count: int = -1) -> np.ndarray:
    """[rows] int64 hashes of the values."""
    return np.fromiter(map(hash, values), np.int64, count)


def blocks_of(examples: Iterable[Example], rows: int = BLOCK_ROWS) -> Iterator[list[Example]]:
    """The examples in lists of `rows`, the last one shorter."""
    stream = iter(examples)
    while block := list(islice(stream, rows)):
        yield block


def weight(example: Example) -> int:
    """About how much memory an example takes, in characters or bytes."""
    given, target = example.input, example.target
    size = len(target) if isinstance(target, str | tuple) else 0
    if isinstance(given, str):
        return size + len(given)
    return size + (sum(map(len, given)) if isinstance(given, tuple) else given.nbytes)


class BlockPlaces:
    """Where every row of a part stands: eight bytes a row instead of an object."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._lines: list[np.ndarray] = []
        self._files: list[np.ndarray] = []
        self.rows = 0

    def add(self, examples: Sequence[Example]) -> None:
        """Keep the places of further rows."""
        places = [example.place for example in examples]
        files = [self._paths.setdefault(place.path, len(self._paths)) for place in places]
        self._lines.append(np.array([place.line or 0 for place in places], np.uint32))
        self._files.append(np.array(files, np.int32))
        self.rows += len(examples)

    def file_keys(self) -> np.ndarray:
        """[rows] int64, equal for rows of one file."""
        return np.take(hashes(self._paths), np.concatenate(self._files))

    def __getitem__(self, row: int) -> Place:
        block = 0
        while row >= len(self._lines[block]):
            row -= len(self._lines[block])
            block += 1
        line = int(self._lines[block][row])
        return Place(list(self._paths)[self._files[block][row]], line or None)
