"""The interface of a check: it is updated with blocks of examples, and writes its findings into the ledger.

    labels       spelling, rare, unseen, too many or too few      texts    odd characters; parallel text that is
    duplicates   repeated ids, conflicting labels, leaks                   shifted, copied or of unlikely length

A check keeps a few bytes per row, so it can check files larger than memory. Findings are grouped by code, with the
number of rows and the first samples.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from seqloom.data.problems import Ledger, Place, Problem, Severity
from seqloom.data.schema import Example, Examples, Input, Schema, Target
from seqloom.errors import RejectedError

T = TypeVar("T")

BLOCK_ROWS = 4_096
BLOCK_CHARACTERS = 4_000_000  # or bytes of arrays: a row may be of any size, a block may not


class ExampleBlock:
    """A few thousand examples of one split; working in blocks keeps the cost per row small."""

    def __init__(self, split: str, examples: Sequence[Example], schema: Schema) -> None:
        self.examples = examples if isinstance(examples, Examples) else Examples.of(examples)
        self.split, self.schema = split, schema

    @cached_property
    def inputs(self) -> list[list[str]]:
        """The texts of the inputs: a list per text column, and none for vectors and pictures."""
        if self.schema.input.is_text:
            return [self.examples.inputs]  # type: ignore[list-item]
        texts = map(self.schema.input.texts, self.examples.inputs)
        return [list(side) for side in zip(*texts, strict=True)]

    @cached_property
    def targets(self) -> list[str]:
        """The targets that are texts."""
        return self.examples.targets if self.schema.target.is_text else []  # type: ignore[return-value]

    @cached_property
    def keys(self) -> np.ndarray:
        """[rows] int64, equal for equal inputs; valid only in this process, like Python's hash."""
        if len(self.inputs) == 1:
            return hashes(self.inputs[0])
        if self.inputs:
            return hashes(zip(*self.inputs, strict=True), len(self.examples))
        arrays = map(np.asarray, self.examples.inputs)
        return hashes((array.shape, array.dtype.str, array.tobytes()) for array in arrays)


def hashes(values: Iterable[object], count: int = -1) -> np.ndarray:
    """[rows] int64 hashes of the values."""
    return np.fromiter(map(hash, values), np.int64, count)


def weight(example: Example) -> int:
    """The approximate memory of an example, in characters or bytes."""
    return _input_weight(example.input) + _target_weight(example.target)


def weight_of(examples: Examples) -> int:
    """The sum of their weights."""
    return _sum(examples.inputs, _input_weight) + _sum(examples.targets, _target_weight)


def _sum(values: Sequence[T], weigh: Callable[[T], int]) -> int:
    """The sum of the weights of values; that of a text is its length."""
    return sum(map(len if set(map(type, values)) == {str} else weigh, values))  # type: ignore[arg-type]


def _input_weight(given: Input) -> int:
    if isinstance(given, str):
        return len(given)
    return sum(map(len, given)) if isinstance(given, tuple) else given.nbytes


def _target_weight(target: Target) -> int:
    return len(target) if isinstance(target, str | tuple) else 0


def bounded(sized: Iterable[tuple[T, int]], most: int, largest: int) -> Iterator[list[T]]:
    """Things with their sizes, in lists up to a number of them or to a sum of sizes, whichever comes first."""
    block: list[T] = []
    total = 0
    for one, size in sized:
        block.append(one)
        total += size
        if len(block) == most or total >= largest:
            yield block
            block, total = [], 0
    if block:
        yield block


def numbered_places(examples: Examples, files: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """[rows] int32 the file of each row, and uint32 its line, 0 if it has none; files are numbered as they appear."""
    for path in dict.fromkeys(examples.paths):
        files.setdefault(path, len(files))
    numbers = np.fromiter(map(files.__getitem__, examples.paths), np.int32, len(examples))
    return numbers, np.fromiter((line or 0 for line in examples.lines), np.uint32, len(examples))


class BlockPlaces:
    """The places of all rows of a split, in eight bytes per row."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._lines: list[np.ndarray] = []
        self._files: list[np.ndarray] = []
        self.rows = 0

    def add(self, examples: Examples) -> None:
        """Add the places of more rows."""
        files, lines = numbered_places(examples, self._paths)
        self._lines.append(lines)
        self._files.append(files)
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


class Check(Protocol):
    """Something that is updated with every block of every split, and reports its findings at the end."""

    def update(self, block: ExampleBlock) -> None:
        """Add more examples."""

    def finish(self, ledger: Ledger) -> None:
        """Write all findings to the ledger; raise RejectedError if the data cannot be used."""


class FindingSample(NamedTuple):
    """One case of a finding: the place, the problem and the fix."""

    place: str
    text: str
    fix: str = ""


class DataFinding(NamedTuple):
    """All findings of one code: the number of rows, and the first cases."""

    severity: Severity
    code: str
    rows: int  # 0 if it concerns the dataset as a whole
    samples: tuple[FindingSample, ...]

    def shown(self) -> tuple[list[FindingSample], list[FindingSample]]:
        """Return the samples to show and the rest: the first sample, and the first of every other fix.

        A fix that neighboring samples share is shown once, after the last of them.
        """
        fixes = [sample.fix for sample in self.samples]
        chosen = [at for at, fix in enumerate(fixes) if at == 0 or fix not in ("", *fixes[:at])]
        rest = [sample for at, sample in enumerate(self.samples) if at not in chosen]
        following = [*(fixes[at] for at in chosen[1:]), None]
        samples = [self.samples[at] for at in chosen]
        return [
            sample._replace(fix="") if sample.fix == after else sample
            for sample, after in zip(samples, following, strict=True)
        ], rest


def refusal(check: Check, ledger: Ledger) -> DataFinding | None:
    """Finish a check, and return the error that it raised, if any, as a finding."""
    try:
        check.finish(ledger)
    except RejectedError as error:
        code = error.codes[-1]  # after the bad rows that the ledger knew before
        line = error.problem.split("\n")[len(error.codes) - 1]  # place: code: text. Fix: ...
        place, _, rest = line.partition(f": {code}: ")
        text, _, fix = rest.partition(" Fix: ")
        return DataFinding("reject", code, 0, (FindingSample(place, text, fix),))
    return None


def findings_in(ledger: Ledger) -> tuple[DataFinding, ...]:
    """Return the bad rows, warnings and notes of a ledger, in the order of appearance."""
    found = []
    severity: Severity = "warn" if ledger.accepts else "reject"
    for code in dict.fromkeys(problem.code for problem in ledger.refused):
        cases = [problem for problem in ledger.refused if problem.code == code]
        found.append(DataFinding(severity, code, ledger.counts[code], _samples(cases)))
    for code, count, problems in ledger.warnings():
        found.append(DataFinding(problems[0].severity, code, count, _samples(problems)))
    return tuple(found)


def _samples(problems: list[Problem]) -> tuple[FindingSample, ...]:
    return tuple(FindingSample(str(problem.place), problem.text, problem.fix) for problem in problems)
