"""The interface of a check: it is updated with blocks of examples, and writes its findings into the ledger.

    labels       spelling, rare, unseen, too many or too few      texts    odd characters; parallel text that is
    duplicates   repeated ids, conflicting labels, leaks                   shifted, copied or of unlikely length

A check keeps a few bytes per row, so it can check files larger than memory. Findings are grouped by code, with the
number of rows and the first samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from seqloom.data.problems import Ledger, Place, Problem, Severity
from seqloom.data.schema import Example, Schema
from seqloom.errors import RejectedError

T = TypeVar("T")

BLOCK_ROWS = 4_096
BLOCK_CHARACTERS = 4_000_000  # or bytes of arrays: a row may be of any size, a block may not


class ExampleBlock:
    """A few thousand examples of one split; working in blocks keeps the cost per row small."""

    def __init__(self, split: str, examples: Sequence[Example], schema: Schema) -> None:
        self.split, self.examples, self.schema = split, examples, schema

    @cached_property
    def inputs(self) -> list[list[str]]:
        """The texts of the inputs: a list per text column, and none for vectors and pictures."""
        texts = [self.schema.input.texts(example.input) for example in self.examples]
        return [list(side) for side in zip(*texts, strict=True)]

    @cached_property
    def targets(self) -> list[str]:
        """The targets that are texts."""
        return [example.target for example in self.examples] if self.schema.target.is_text else []  # type: ignore[misc]

    @cached_property
    def keys(self) -> np.ndarray:
        """[rows] int64, equal for equal inputs; valid only in this process, like Python's hash."""
        if len(self.inputs) == 1:
            return hashes(self.inputs[0])
        if self.inputs:
            return hashes(zip(*self.inputs, strict=True), len(self.examples))
        arrays = (np.asarray(example.input) for example in self.examples)
        return hashes((array.shape, array.dtype.str, array.tobytes()) for array in arrays)


def hashes(values: Iterable[object], count: int = -1) -> np.ndarray:
    """[rows] int64 hashes of the values."""
    return np.fromiter(map(hash, values), np.int64, count)


def weight(example: Example) -> int:
    """The approximate memory of an example, in characters or bytes."""
    given, target = example.input, example.target
    size = len(target) if isinstance(target, str | tuple) else 0
    if isinstance(given, str):
        return size + len(given)
    return size + (sum(map(len, given)) if isinstance(given, tuple) else given.nbytes)


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


class BlockPlaces:
    """The places of all rows of a split, in eight bytes per row."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._lines: list[np.ndarray] = []
        self._files: list[np.ndarray] = []
        self.rows = 0

    def add(self, examples: Sequence[Example]) -> None:
        """Add the places of more rows."""
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
