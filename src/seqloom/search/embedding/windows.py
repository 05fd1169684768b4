"""Split the rows of a file into fixed windows, and compute the vectors of a window.

A file is read twice: first to check and count every row before anything is embedded, then in windows. A window depends
only on the file, so a job that resumes uses the same batches. Every worker loads its own model.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import torch

from seqloom.config.data import ReadingConfig
from seqloom.data.checks.check import bounded, weight
from seqloom.data.inputs import InputColumns, read_inputs, read_stream
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.readers.files import fingerprint, require_regular
from seqloom.data.schema import Example
from seqloom.errors import ConfigError
from seqloom.inference.model import LoadedModel, load
from seqloom.inference.prediction import BadRowLedger, Reply
from seqloom.search.embedding.packed_linears import Precision, with_precision
from seqloom.tasks.embed import VectorPrediction

ROWS, CHARACTERS = 2_048, 2_000_000  # of a window, whichever comes first
LINE_FORMATS = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}  # formats in which a bad line affects no other line

Row = Example | Problem  # an input, or its problem


class CheckedSource(NamedTuple):
    """The result of checking a file: rows, bad rows, and warnings."""

    rows: int
    bad: int
    sha256: str  # of its bytes and of how they are read
    notes: tuple[str, ...]


class InputSource(NamedTuple):
    """A file of inputs and how to read it."""

    path: Path
    columns: InputColumns = InputColumns()
    reading: ReadingConfig = ReadingConfig()
    skip_bad_rows: bool = False  # whether bad rows are skipped
    stream: str = ""  # its name in messages, if it is a copy of standard input

    def checked(self, kind: InputKind) -> CheckedSource:
        """Check the file; RejectedError lists its bad rows unless they are skipped."""
        if kind.in_files:
            text = f"{kind.noun} inputs are whole files, which seqloom embed cannot read"
            raise ConfigError(text, fix=f"seqloom.load(MODEL).embed({kind}s)")
        ledger = BadRowLedger() if self.skip_bad_rows else Ledger()
        if not self.stream:
            require_regular(self.path, ledger)
        bad = rows = 0
        for row in self._rows(kind, ledger):
            rows, bad = rows + 1, bad + isinstance(row, Problem)
        ledger.close()
        if not rows:
            place = Place(self.stream or str(self.path))
            ledger.bad_file("data.empty", "there are no rows to embed", place, "give another file")
        warnings = ((count, samples[0]) for _, count, samples in ledger.warnings())
        notes = tuple(f"{one} ({count:,} times)" if count > 1 else str(one) for count, one in warnings)
        read = (fingerprint(self.path).sha256, self.columns, self.reading, self.skip_bad_rows, bool(self.stream))
        return CheckedSource(rows, bad, hashlib.sha256(msgspec.json.encode(read)).hexdigest(), notes)

    def windows(self, kind: InputKind) -> Iterator[list[Row]]:
        """Yield the rows, one window at a time."""
        rows = self._rows(kind, BadRowLedger() if self.skip_bad_rows else Ledger())
        return bounded(((row, weight(row) if isinstance(row, Example) else 0) for row in rows), ROWS, CHARACTERS)

    def _rows(self, kind: InputKind, ledger: Ledger) -> Iterator[Row]:
        """Yield rows in line order; all problems before an example are yielded before it."""
        kept = ledger.kept if isinstance(ledger, BadRowLedger) else []
        for example in self._examples(kind, ledger):
            kept.sort(key=_line_of)
            while kept and _line_of(kept[0]) < (example.place.line or 0):
                yield kept.pop(0)[1]
            yield example
        yield from (problem for _, problem in sorted(kept, key=_line_of))
        kept.clear()

    def _examples(self, kind: InputKind, ledger: Ledger) -> Iterator[Example]:
        lined = self.reading.format or LINE_FORMATS.get(self.path.suffix.lower())
        alone = (
            self.skip_bad_rows
            and lined in ("text", "jsonl")
            and self.reading == ReadingConfig(format=self.reading.format)
        )
        if not self.stream and not alone:
            yield from read_inputs(self.path, kind, ledger, columns=self.columns, reading=self.reading)
            return
        reading = self.reading if self.stream else ReadingConfig(format=cast(Any, lined))
        with self.path.open("rb") as stream:
            name = self.stream or str(self.path)
            yield from chain.from_iterable(read_stream(stream, kind, ledger, reading, self.columns, name))


def _line_of(found: tuple[int, Problem]) -> int:
    return found[1].place.line or 0


class FailedRow(NamedTuple):
    """A row without a vector: its number from 1, its line, and the reason."""

    row: int
    line: int | None
    error: str


class EmbeddingNote(NamedTuple):
    """A warning: its code, how often it occurred, and the first message."""

    code: str
    times: int
    first: str


class Window(NamedTuple):
    """A window: the number of its first row, its rows, and which of them are in the sample."""

    start: int
    rows: list[Row]
    sample: np.ndarray


class WindowVectors(NamedTuple):
    """The vectors of a window."""

    start: int
    vectors: np.ndarray  # [N,D] float32; NaN for rows without a vector
    exact: np.ndarray  # [S,D] the sample, computed in float32
    ids: list[str]
    bad: list[FailedRow]
    notes: list[EmbeddingNote]


class WorkerSetup(NamedTuple):
    """What a worker needs to load its model; can be pickled."""

    model: str  # its folder
    device: str
    precision: Precision
    batch_tokens: int  # tokens of a batch
    skip_bad_rows: bool
    threads: int  # sums may depend on their number


class WindowWorker:
    """A model that computes the vectors of windows."""

    def __init__(self, setup: WorkerSetup, loaded: LoadedModel | None = None) -> None:
        exact = load(setup.model, device=setup.device) if loaded is None else loaded
        self.setup, self.exact = setup, with_precision(exact, "float32")
        self.model = self.exact if setup.precision == "float32" else with_precision(exact, setup.precision)

    def made(self, work: Window) -> WindowVectors:
        """Compute the vectors of a window."""
        ledger = BadRowLedger() if self.setup.skip_bad_rows else Ledger()
        examples = [row for row in work.rows if isinstance(row, Example)]
        places = [place for place, row in enumerate(work.rows) if isinstance(row, Example)]
        ledger.rows = len(examples)
        bad = [_bad(work.start + place + 1, row) for place, row in enumerate(work.rows) if isinstance(row, Problem)]
        vectors = self._empty(len(work.rows))
        replies = self.model.vectors([examples], ledger, batch_tokens=self.setup.batch_tokens) if examples else ()
        for place, reply in zip(places, replies, strict=True):  # one per example, in order
            if isinstance(reply, Problem):
                bad.append(_bad(work.start + place + 1, reply))
            else:
                vectors[place] = _vector(reply)
        notes = [
            EmbeddingNote(code, count, str(samples[0]._replace(fix=""))) for code, count, samples in ledger.warnings()
        ]
        zeros = np.flatnonzero(~vectors.any(axis=1))
        if len(zeros):  # cosines of zero vectors mean nothing
            text = "the vector is zero: no word of the text is in the vocabulary of the model"
            problem = Problem("warn", "vector.zero", text, work.rows[zeros[0]].place)
            notes.append(EmbeddingNote("vector.zero", len(zeros), str(problem)))
        # the id of the data, or the line, or the row number
        names = [row.id if isinstance(row, Example) else "" for row in work.rows]
        numbers = [row.place.line or number for number, row in enumerate(work.rows, work.start + 1)]
        ids = [name or str(number) for name, number in zip(names, numbers, strict=True)]
        return WindowVectors(work.start, vectors, self._exact(work, vectors), ids, sorted(bad), notes)

    def _exact(self, work: Window, vectors: np.ndarray) -> np.ndarray:
        """[S,D] the vectors of the sample in float32, computed again if needed."""
        if self.model is self.exact:
            return vectors.take(work.sample, axis=0)
        found = self._empty(len(work.sample))
        there = np.flatnonzero(np.isfinite(vectors[work.sample]).all(axis=1))
        asked: Any = [work.rows[place] for place in work.sample[there]]
        replies = self.exact.vectors([asked], Ledger(), batch_tokens=self.setup.batch_tokens) if asked else ()
        for place, reply in zip(there, replies, strict=True):
            found[place] = _vector(reply)
        return found

    def _empty(self, rows: int) -> np.ndarray:
        return np.full((rows, self.exact.vector_size), np.nan, np.float32)


def _vector(reply: Reply) -> np.ndarray:
    assert not isinstance(reply, Problem) and isinstance(reply[1], VectorPrediction), "the model returns vectors"
    return reply[1].vector


def _bad(row: int, problem: Problem) -> FailedRow:
    return FailedRow(row, problem.place.line, f"{problem.code}: {problem.text}")


def local_engine(setup: WorkerSetup, loaded: LoadedModel, works: Iterable[Window]) -> Iterator[WindowVectors]:
    """Compute windows one after the other in this process."""
    return map(WindowWorker(setup, loaded).made, works)


def num_threads() -> int:
    """Return the number of threads of this process."""
    return torch.get_num_threads()
