"""Building and asking the graph of an index, beside the vector library alone.

    python benchmarks/searching.py

Vectors are drawn around centres, as those of texts lie. Rounds alternate, and the ratios are those of medians of
processor time in one thread. Ours measures what the graph finds again in full precision, and looks at what is allowed.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from seqloom.search.vectors import Exact, Graph, grown, unit

ROWS, WIDTH, CENTRES = 100_000, 384, 1_000
LOT = 1_024  # passages that are stored together
QUESTIONS, ROUNDS, COUNT = 200, 5, 10


def drawn(draws: np.random.Generator, count: int, centres: np.ndarray) -> np.ndarray:
    """Vectors of length 1 around centres."""
    picks = draws.integers(len(centres), size=count)
    return unit(centres[picks] + 0.7 * draws.standard_normal((count, centres.shape[1])))


def timed(call: Callable[[], object]) -> float:
    """Seconds of the processor."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    from usearch.index import Index

    draws = np.random.default_rng(0)
    centres = draws.standard_normal((CENTRES, WIDTH))
    vectors, questions = drawn(draws, ROWS, centres), drawn(draws, ROUNDS * QUESTIONS, centres)
    lots, allowed = [vectors[at : at + LOT] for at in range(0, ROWS, LOT)], np.ones(ROWS, bool)
    walks, theirs = [], Index(ndim=WIDTH, metric="ip", dtype="f16")
    ours = timed(lambda: walks.extend(walk for _, walk in grown(None, lots, WIDTH)))
    alone = timed(lambda: theirs.add(np.arange(ROWS), vectors, threads=1))
    print(f"{ROWS:,} vectors of {WIDTH} numbers: built in {ours:.1f} s, by the library in {alone:.1f} s")
    graph = Graph(walks[-1], Exact(lots))
    calls: dict[str, Callable[[np.ndarray], object]] = {
        "ours": lambda question: graph.nearest(question, allowed, COUNT),
        "the library": lambda question: theirs.search(question, COUNT, threads=1),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for at in range(0, len(questions), QUESTIONS):
        for name, call in calls.items():
            some = questions[at : at + QUESTIONS]
            spent[name].append(timed(lambda call=call, some=some: [call(one) for one in some]) / QUESTIONS)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    for name, times in spent.items():
        print(f"{name:12} {1e3 * medians[name]:.3f} ms a question ({1e3 * min(times):.3f}-{1e3 * max(times):.3f})")
    build, query = ours / alone, medians["ours"] / medians["the library"]
    print(f"ours / the library: build {build:.2f}x, question {query:.2f}x")


if __name__ == "__main__":
    main()
