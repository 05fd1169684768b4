"""Building and asking an index in a folder, beside the vector library alone.

    OMP_NUM_THREADS=1 python benchmarks/searching.py [ROWS]

Vectors are drawn around centres, as those of texts lie; each is a document of one word. Ours writes lots of documents,
vectors and words, reads them back with their sums, links the graph, commits it and opens it; the library (usearch, the
same parameters, one thread) links the same vectors and saves a file. Both do a tenth of the links in turn, so that
whatever else the machine does falls on both; times are of the processor.

A question to ours is answered with passages in the order of exact cosines, or with the ids of their documents; one to
the library with what its half precision gives. All are asked all questions, in turn, and times are of the clock.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.events import Progress
from seqloom.search import index as folder_index
from seqloom.search.index import WritableIndex, open_index, writing
from seqloom.search.lots import DOCUMENTS, as_passages
from seqloom.search.store import LINKED, Lot, Settings, TextDocument
from seqloom.search.vectors import unit

WIDTH, CENTRES, TURNS, QUESTIONS, COUNT = 384, 1_000, 10, 1_000, 10


def drawn(draws: np.random.Generator, count: int, centres: np.ndarray) -> np.ndarray:
    """Vectors of length 1 around centres."""
    picks = draws.integers(len(centres), size=count)
    return unit(centres[picks] + 0.7 * draws.standard_normal((count, centres.shape[1])))


def timed(clock: Callable[[], float], call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a clock, and what came of it."""
    start = clock()
    found = call()
    return clock() - start, found


def write_lots(index: WritableIndex, vectors: np.ndarray) -> None:
    """Every vector as a document of one word."""
    settings = Settings("none", "0" * 64, WIDTH, 8)
    for at in range(0, len(vectors), DOCUMENTS):
        some = vectors[at : at + DOCUMENTS]
        documents = tuple(TextDocument(str(at + row), f"word{at + row}", {}) for row in range(len(some)))
        index.add(Lot(settings, documents, as_passages([(row, 0, 4) for row in range(len(some))]), some))


def linked(steps: Iterator[Any], least: int) -> None:
    """A graph grows until it has so many passages."""
    for step in steps:
        if isinstance(step, Progress) and step.stage == LINKED and step.done >= least:
            return


def built(folder: Path, vectors: np.ndarray) -> Any:
    """The library's graph, when both are built; it prints what each took."""
    from usearch.index import Index

    theirs, ours, alone = Index(ndim=WIDTH, metric="ip", dtype="f16"), list[float](), list[float]()
    turn = -(-len(vectors) // TURNS)
    with writing(folder / "index") as index:
        lots, _ = timed(time.process_time, lambda: write_lots(index, vectors))
        steps = index.finished()
        for at in range(0, len(vectors), turn):
            some = vectors[at : at + turn]
            calls = [
                (ours, lambda at=at, some=some: linked(steps, at + len(some))),
                (alone, lambda at=at, some=some: theirs.add(np.arange(at, at + len(some)), some, threads=1)),
            ]
            for spent, call in calls if at // turn % 2 else calls[::-1]:
                spent.append(timed(time.process_time, call)[0])
        rest, _ = timed(time.process_time, lambda: list(steps))
    saving, _ = timed(time.process_time, lambda: theirs.save(str(folder / "alone.usearch")))
    print(f"lots written {lots:.1f} s, linked {sum(ours):.1f} s (by the library {sum(alone):.1f} s), "
          f"committed and opened {rest:.1f} s (saved {saving:.1f} s)")  # fmt: skip
    median = statistics.median(mine / other for mine, other in zip(ours, alone, strict=True))
    whole = (lots + sum(ours) + rest) / (sum(alone) + saving)
    print(f"build, ours / the library: links {median:.2f}x (median of {TURNS} turns), everything {whole:.2f}x")
    return theirs


def asked(folder: Path, theirs: Any, vectors: np.ndarray, questions: np.ndarray) -> None:
    """It prints what a question took, and how many of the nearest were found."""
    index, other = (open_index(folder / "index") for _ in range(2))  # each with a graph that nobody else has just read
    allowed = np.ones(len(vectors), bool)
    calls: dict[str, Callable[[np.ndarray], list[int]]] = {
        "documents": lambda question: [int(one.id) for one in index.by_vector(question, (), COUNT)],
        "passages": lambda question: other.nearest.nearest(question, allowed, COUNT).passages.tolist(),
        "the library": lambda question: theirs.search(question, COUNT, threads=1).keys.tolist(),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for question in questions:
        for name, call in calls.items():
            spent[name].append(timed(time.perf_counter, lambda call=call, question=question: call(question))[0])
    nearest = [set(np.argpartition(vectors @ one, -COUNT)[-COUNT:].tolist()) for one in questions[::10]]
    for name, call in calls.items():
        right = statistics.mean(
            len(some.intersection(call(one))) for some, one in zip(nearest, questions[::10], strict=True)
        )
        median = 1e3 * statistics.median(spent[name])
        print(f"{name:12} {median:.3f} ms a question, {right / COUNT:.3f} of the nearest found")
    documents, passages, alone = map(statistics.median, spent.values())
    print(f"question, ours / the library: passages {passages / alone:.2f}x, documents {documents / alone:.2f}x")


def main(arguments: list[str]) -> None:
    rows = int(arguments[0]) if arguments else 100_000
    folder_index.GRAPH_FROM = min(rows, folder_index.GRAPH_FROM)
    draws = np.random.default_rng(0)
    centres = draws.standard_normal((CENTRES, WIDTH))
    vectors, questions = drawn(draws, rows, centres), drawn(draws, QUESTIONS, centres)
    print(f"{rows:,} vectors of {WIDTH} numbers")
    with tempfile.TemporaryDirectory() as place:
        asked(Path(place), built(Path(place), vectors), vectors, questions)


if __name__ == "__main__":
    main(sys.argv[1:])
