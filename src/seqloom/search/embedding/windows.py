"""The rows of a file of inputs in windows that are always the same, and the vectors of a window.

A file is read twice: first all of it is checked and counted, so that nothing is embedded before every row is known to
be good; then its rows come in windows. A window depends on the file alone, so work that was stopped goes on with the
very batches that it would have had. Every worker makes its model for itself, from a few plain values.
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
from seqloom.data.checks.check import weight
from seqloom.data.inputs import InputColumns, arriving, read_inputs
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.readers.files import fingerprint, require_regular
from seqloom.data.schema import Example
from seqloom.errors import ConfigError
from seqloom.inference.model import LoadedModel, load
from seqloom.inference.prediction import PredictionNote, Reply
from seqloom.search.embedding.packed_linears import Precision, computing_in
from seqloom.search.lots import bounded
from seqloom.tasks.embed import VectorPrediction

ROWS, CHARACTERS = 2_048, 2_000_000  # of a window, whichever comes first
LINED = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}  # files in which a bad line spoils itself alone

Row = Example | Problem  # an input, or what is wrong with one


class CheckedSource(NamedTuple):
    """What is known of a file that was read once: its rows, how many of them are bad, and what was noticed."""

    rows: int
    bad: int
    sha256: str  # of its bytes, and of what is read of them
    notes: tuple[str, ...]


class InputSource(NamedTuple):
    """A file of inputs, and how it is read."""

    path: Path
    columns: InputColumns = InputColumns()
    reading: ReadingConfig = ReadingConfig()
    skip: bool = False  # whether bad rows are read over
    stream: str = ""  # what messages call it, if the file is the copy of a stream of lines

    def checked(self, kind: InputKind) -> CheckedSource:
        """What the file holds; RejectedError that names its bad rows, if they are not read over."""
        if kind.in_files:
            text = f"files of {kind.wanted} have no rows to embed"
            raise ConfigError(text, fix=f"seqloom.load(MODEL).embed({kind}s)")
        ledger = PredictionNote() if self.skip else Ledger()
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
        read = (fingerprint(self.path).sha256, self.columns, self.reading, self.skip, bool(self.stream))
        return CheckedSource(rows, bad, hashlib.sha256(msgspec.json.encode(read)).hexdigest(), notes)

    def windows(self, kind: InputKind) -> Iterator[list[Row]]:
        """The rows, some at a time."""
        rows = self._rows(kind, PredictionNote() if self.skip else Ledger())
        return bounded(((row, weight(row) if isinstance(row, Example) else 0) for row in rows), ROWS, CHARACTERS)

    def _rows(self, kind: InputKind, ledger: Ledger) -> Iterator[Row]:
        """The rows in the order of their lines. When an example comes, all that is wrong before it has been told."""
        kept = ledger.kept if isinstance(ledger, PredictionNote) else []
        for example in self._examples(kind, ledger):
            kept.sort(key=_line_of)
            while kept and _line_of(kept[0]) < (example.place.line or 0):
                yield kept.pop(0)[1]
            yield example
        yield from (problem for _, problem in sorted(kept, key=_line_of))
        kept.clear()

    def _examples(self, kind: InputKind, ledger: Ledger) -> Iterator[Example]:
        lined = self.reading.format or LINED.get(self.path.suffix.lower())
        alone = self.skip and lined in ("text", "jsonl") and self.reading == ReadingConfig(format=self.reading.format)
        if not self.stream and not alone:
            yield from read_inputs(self.path, kind, ledger, columns=self.columns, reading=self.reading)
            return
        format_ = cast(Any, self.reading.format if self.stream else lined)
        with self.path.open("rb") as stream:
            name = self.stream or str(self.path)
            yield from chain.from_iterable(arriving(stream, kind, ledger, format_, self.columns, name))


def _line_of(told: tuple[int, Problem]) -> int:
    return told[1].place.line or 0


class Bad(NamedTuple):
    """A row that has no vector: its number, the first is 1, its line, and what is wrong with it."""

    row: int
    line: int | None
    error: str


class Note(NamedTuple):
    """What was noticed, how often, and the first time in words."""

    code: str
    times: int
    first: str


class Work(NamedTuple):
    """A window of rows, the number of its first, and which of them are in the sample, counted from its first."""

    start: int
    rows: list[Row]
    sample: np.ndarray


class WindowVectors(NamedTuple):
    """What came of a window."""

    start: int
    vectors: np.ndarray  # [N,D] float32; NaN where a row has none
    exact: np.ndarray  # [S,D] those of the sample, computed in float32
    ids: list[str]
    bad: list[Bad]
    notes: list[Note]


class Setup(NamedTuple):
    """What a worker needs to know to make its model: plain values that travel."""

    model: str  # its folder
    device: str
    precision: Precision
    budget: int  # symbols of a batch
    skip: bool
    threads: int  # sums may depend on how many share one


class WindowWorker:
    """A model that makes vectors of windows."""

    def __init__(self, setup: Setup, loaded: LoadedModel | None = None) -> None:
        exact = load(setup.model, device=setup.device) if loaded is None else loaded
        self.setup, self.exact = setup, computing_in(exact, "float32")
        self.model = self.exact if setup.precision == "float32" else computing_in(exact, setup.precision)

    def made(self, work: Work) -> WindowVectors:
        """The vectors of a window."""
        ledger = PredictionNote() if self.setup.skip else Ledger()
        examples = [row for row in work.rows if isinstance(row, Example)]
        places = [place for place, row in enumerate(work.rows) if isinstance(row, Example)]
        ledger.rows = len(examples)
        bad = [_bad(work.start + place + 1, row) for place, row in enumerate(work.rows) if isinstance(row, Problem)]
        vectors = self._empty(len(work.rows))
        replies = self.model.vectors([examples], ledger, budget=self.setup.budget) if examples else ()
        for place, reply in zip(places, replies, strict=True):  # one for each example, in order
            if isinstance(reply, Problem):
                bad.append(_bad(work.start + place + 1, reply))
            else:
                vectors[place] = _vector(reply)
        notes = [Note(code, count, str(samples[0]._replace(fix=""))) for code, count, samples in ledger.warnings()]
        zeros = np.flatnonzero(~vectors.any(axis=1))
        if len(zeros):  # no cosine says anything of them
            text = "the vector is zeros: the model knows nothing of the text"
            told = Problem("warn", "vector.zero", text, work.rows[zeros[0]].place)
            notes.append(Note("vector.zero", len(zeros), str(told)))
        # the name that the data gives a row, else its line, else its number
        names = [row.id if isinstance(row, Example) else "" for row in work.rows]
        numbers = [row.place.line or number for number, row in enumerate(work.rows, work.start + 1)]
        ids = [name or str(number) for name, number in zip(names, numbers, strict=True)]
        return WindowVectors(work.start, vectors, self._exact(work, vectors), ids, sorted(bad), notes)

    def _exact(self, work: Work, vectors: np.ndarray) -> np.ndarray:
        """[S,D] the vectors of the sample in float32: those that there are, or computed once more."""
        if self.model is self.exact:
            return vectors.take(work.sample, axis=0)
        found = self._empty(len(work.sample))
        there = np.flatnonzero(np.isfinite(vectors[work.sample]).all(axis=1))
        asked: Any = [work.rows[place] for place in work.sample[there]]
        replies = self.exact.vectors([asked], Ledger(), budget=self.setup.budget) if asked else ()
        for place, reply in zip(there, replies, strict=True):
            found[place] = _vector(reply)
        return found

    def _empty(self, rows: int) -> np.ndarray:
        return np.full((rows, self.exact.vector_size), np.nan, np.float32)


def _vector(reply: Reply) -> np.ndarray:
    assert not isinstance(reply, Problem) and isinstance(reply[1], VectorPrediction), "a model of vectors was asked"
    return reply[1].vector


def _bad(row: int, problem: Problem) -> Bad:
    return Bad(row, problem.place.line, f"{problem.code}: {problem.text}")


def here(setup: Setup, loaded: LoadedModel, works: Iterable[Work]) -> Iterator[WindowVectors]:
    """What comes of the windows, one after the other, in this process."""
    return map(WindowWorker(setup, loaded).made, works)


def threads() -> int:
    """How many threads share a sum in this process."""
    return torch.get_num_threads()
