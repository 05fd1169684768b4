"""The vectors of a window of rows, by a model that every worker makes for itself from a few plain values."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.data.problems import Ledger, Problem
from seqloom.data.schema import Example
from seqloom.inference.model import LoadedModel, load
from seqloom.inference.prediction import PredictionNote, Reply
from seqloom.search.embedding.packed_linears import Precision, computing_in
from seqloom.search.embedding.source import Row
from seqloom.tasks.predictions import VectorPrediction


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

    @property
    def stop(self) -> int:
        """The number behind its last row."""
        return self.start + len(self.rows)


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
        notes += _empty_ones(work.rows, vectors)
        ids = [_id(row, work.start + place) for place, row in enumerate(work.rows)]
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


def _empty_ones(rows: list[Row], vectors: np.ndarray) -> list[Note]:
    """A note of the rows whose vector is zeros, if there are any: no cosine says anything of them."""
    found = np.flatnonzero(~vectors.any(axis=1))
    if not len(found):
        return []
    text = "the vector is zeros: the model knows nothing of the text"
    return [Note("vector.zero", len(found), str(Problem("warn", "vector.zero", text, rows[found[0]].place)))]


def _id(row: Row, number: int) -> str:
    """The name that the data gives a row, else its line, else its number."""
    name = row.id if isinstance(row, Example) else ""
    return name or str(row.place.line or number + 1)


def here(setup: Setup, loaded: LoadedModel, works: Iterable[Work]) -> Iterator[WindowVectors]:
    """What comes of the windows, one after the other, in this process."""
    return map(WindowWorker(setup, loaded).made, works)


def threads() -> int:
    """How many threads share a sum in this process."""
    return torch.get_num_threads()
