"""Build and search an index in a folder, against the vector library (usearch) alone.

    OMP_NUM_THREADS=1 python benchmarks/search.py [ROWS]

Vectors are drawn around centers, like those of texts; each is a document with one word. Seqloom writes segments of
documents, vectors and words, reads them back with checksums, builds the graph, commits it and opens it. The library,
with the same parameters and one thread, builds a graph of the same vectors and saves it. Both add a tenth of the
vectors in turn, so that other load on the machine affects both; build times are CPU time.

Seqloom returns passages in the order of exact cosines, or ids of documents; the library returns results in half
precision. All get the same queries in turn; query times are wall-clock time.
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
from seqloom.search.index import WritableIndex, open_index, open_writable_index
from seqloom.search.segments import DOCUMENTS, passage_array
from seqloom.search.store import LINKED, Segment, Settings, TextDocument
from seqloom.search.vectors import unit_vectors

WIDTH, CENTERS, TURNS, QUERIES, COUNT = 384, 1_000, 10, 1_000, 10


def drawn(draws: np.random.Generator, count: int, centers: np.ndarray) -> np.ndarray:
    """Return random unit vectors around centers."""
    picks = draws.integers(len(centers), size=count)
    return unit_vectors(centers[picks] + 0.7 * draws.standard_normal((count, centers.shape[1])))


def timed(clock: Callable[[], float], call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and its result."""
    start = clock()
    found = call()
    return clock() - start, found


def write_segments(index: WritableIndex, vectors: np.ndarray) -> None:
    """Write every vector as a document with one word."""
    settings = Settings("none", "0" * 64, WIDTH, 8)
    for at in range(0, len(vectors), DOCUMENTS):
        some = vectors[at : at + DOCUMENTS]
        documents = tuple(TextDocument(str(at + row), f"word{at + row}", {}) for row in range(len(some)))
        index.add(Segment(settings, documents, passage_array([(row, 0, 4) for row in range(len(some))]), some))


def linked(steps: Iterator[Any], least: int) -> None:
    """Run the build until the graph has this many passages."""
    for step in steps:
        if isinstance(step, Progress) and step.stage == LINKED and step.done >= least:
            return


def built(folder: Path, vectors: np.ndarray) -> Any:
    """Build both, print the times, and return the graph of the library."""
    from usearch.index import Index

    theirs, ours, alone = Index(ndim=WIDTH, metric="ip", dtype="f16"), list[float](), list[float]()
    turn = -(-len(vectors) // TURNS)
    with open_writable_index(folder / "index") as index:
        segments, _ = timed(time.process_time, lambda: write_segments(index, vectors))
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
    print(f"segments {segments:.1f} s, graph {sum(ours):.1f} s (library {sum(alone):.1f} s), "
          f"committed and opened {rest:.1f} s (library {saving:.1f} s)")  # fmt: skip
    median = statistics.median(mine / other for mine, other in zip(ours, alone, strict=True))
    whole = (segments + sum(ours) + rest) / (sum(alone) + saving)
    print(f"build, seqloom / library: graph {median:.2f}x (median of {TURNS} turns), everything {whole:.2f}x")
    return theirs


def asked(folder: Path, theirs: Any, vectors: np.ndarray, queries: np.ndarray) -> None:
    """Print the time per query and the recall of the nearest neighbors."""
    index, other = (
        open_index(folder / "index") for _ in range(2)
    )  # each with its own graph, so that neither warms the cache of the other
    allowed = np.ones(len(vectors), bool)
    calls: dict[str, Callable[[np.ndarray], list[int]]] = {
        "documents": lambda query: [int(one.id) for one in index.by_vector(query, (), COUNT)],
        "passages": lambda query: other.nearest.nearest(query, allowed, COUNT).passages.tolist(),
        "library": lambda query: theirs.search(query, COUNT, threads=1).keys.tolist(),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for query in queries:
        for name, call in calls.items():
            spent[name].append(timed(time.perf_counter, lambda call=call, query=query: call(query))[0])
    nearest = [set(np.argpartition(vectors @ one, -COUNT)[-COUNT:].tolist()) for one in queries[::10]]
    for name, call in calls.items():
        right = statistics.mean(
            len(some.intersection(call(one))) for some, one in zip(nearest, queries[::10], strict=True)
        )
        median = 1e3 * statistics.median(spent[name])
        print(f"{name:12} {median:.3f} ms per query, recall@{COUNT} {right / COUNT:.3f}")
    documents, passages, alone = map(statistics.median, spent.values())
    print(f"query, seqloom / library: passages {passages / alone:.2f}x, documents {documents / alone:.2f}x")


def main(arguments: list[str]) -> None:
    rows = int(arguments[0]) if arguments else 100_000
    folder_index.GRAPH_FROM = min(rows, folder_index.GRAPH_FROM)
    draws = np.random.default_rng(0)
    centers = draws.standard_normal((CENTERS, WIDTH))
    vectors, queries = drawn(draws, rows, centers), drawn(draws, QUERIES, centers)
    print(f"{rows:,} vectors with {WIDTH} dimensions")
    with tempfile.TemporaryDirectory() as place:
        asked(Path(place), built(Path(place), vectors), vectors, queries)


if __name__ == "__main__":
    main(sys.argv[1:])
