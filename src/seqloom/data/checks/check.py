"""What a check is: it is fed blocks of examples, and what it finds goes into the ledger.

    labels       spelling, rare, unseen, too many or too few      texts    odd characters; parallel text that is shifted
    duplicates   ids twice, one input with two labels, leaks               copied or out of proportion

Every check holds a few bytes a row, so a file larger than memory can be checked. One kind of finding is one code with a
count of rows and its first samples.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from seqloom.data.problems import Ledger, Place, Problem, Severity
from seqloom.data.schema import Example, Schema
from seqloom.errors import RejectedError

BLOCK_ROWS = 4_096
BLOCK_CHARACTERS = 4_000_000  # or bytes of arrays: rows may be as large as they like, a block may not


class ExampleBlock:
    """Some thousand examples of one part, which all checks look at together so that a row costs almost nothing."""

    def __init__(self, part: str, examples: Sequence[Example], schema: Schema) -> None:
        self.part, self.examples, self.schema = part, examples, schema

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
        arrays = (np.asarray(example.input) for example in self.examples)
        return hashes((array.shape, array.dtype.str, array.tobytes()) for array in arrays)


def hashes(values: Iterable[object], count: int = -1) -> np.ndarray:
    """[rows] int64 hashes of the values."""
    return np.fromiter(map(hash, values), np.int64, count)


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


class Check(Protocol):
    """Something that sees every block of every part, and says at the end what it found."""

    def see(self, block: ExampleBlock) -> None:
        """Look at further examples."""

    def finish(self, ledger: Ledger) -> None:
        """Write all findings; raise RejectedError where the data cannot be used."""


class FindingSample(NamedTuple):
    """One case of a finding: where, what, and the cure."""

    place: str
    text: str
    fix: str = ""


class DataFinding(NamedTuple):
    """One kind of finding: how many rows it concerns, and the first cases."""

    severity: Severity
    code: str
    rows: int  # 0 where it concerns the whole
    samples: tuple[FindingSample, ...]

    def shown(self) -> tuple[list[FindingSample], list[FindingSample]]:
        """The samples that are shown and the rest: the first, and the first of every further cure.

        A cure is told once, behind the last of the neighbours that have it.
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
    """What a check refuses at its end, if it does; what it only warns of is written into the ledger."""
    try:
        check.finish(ledger)
    except RejectedError as error:
        code = error.codes[-1]  # after the bad rows that the ledger knew before
        line = error.problem.split("\n")[len(error.codes) - 1]  # place: code: text. Fix: ...
        place, _, rest = line.partition(f": {code}: ")
        text, _, fix = rest.partition(" Fix: ")
        return DataFinding("reject", code, 0, (FindingSample(place, text, fix),))
    return None


def told(ledger: Ledger) -> tuple[DataFinding, ...]:
    """What stands in a ledger: bad rows, warnings and notes, in the order in which they came up."""
    found = []
    severity: Severity = "warn" if ledger.bad_rows.skip else "reject"
    for code in dict.fromkeys(problem.code for problem in ledger.refused):
        cases = [problem for problem in ledger.refused if problem.code == code]
        found.append(DataFinding(severity, code, ledger.counts[code], _samples(cases)))
    for code, count, problems in ledger.warnings():
        found.append(DataFinding(problems[0].severity, code, count, _samples(problems)))
    return tuple(found)


def _samples(problems: list[Problem]) -> tuple[FindingSample, ...]:
    return tuple(FindingSample(str(problem.place), problem.text, problem.fix) for problem in problems)
