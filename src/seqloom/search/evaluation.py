"""Evaluate rankings against relevance judgments (qrels): which documents are relevant to which query.

    nDCG@10      sum of gain(d) / log2(1 + rank) over the first ten, divided by that of the best ranking (Järvelin 2002)
    recall@100   share of the relevant documents that are among the first hundred
    MRR@10       1 / rank of the first relevant document, 0 if none of the first ten is relevant

Each metric is the mean over queries with a relevant document, as in BEIR; the intervals come from a bootstrap over
queries. Judgments are lines of `query document gain`, in the format of BEIR (with a header) or TREC.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.data.problems import Ledger, Place
from seqloom.errors import ConfigError
from seqloom.events import Progress, Work
from seqloom.metrics import bootstrap
from seqloom.metrics.bootstrap import Interval
from seqloom.search.documents import Collection

Judgments = Mapping[str, Mapping[str, int]]  # by query id, then by document id
CUT, DEEP = 10, 100
GAIN = re.compile(r"-?[0-9]+")
NAMES = (f"ndcg@{CUT}", f"recall@{DEEP}", f"mrr@{CUT}")


class SearchScores(NamedTuple):
    """Metrics of a search over several queries, and their intervals."""

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    queries: int  # that have a relevant document


def ndcg(order: Sequence[str], gains: Mapping[str, int], cut: int = CUT) -> float:
    """Return the discounted cumulative gain of the first documents, divided by the best possible one.

    >>> round(ndcg(["x", "a"], {"a": 1}), 4), ndcg(["a"], {"a": 2})
    (0.6309, 1.0)
    """
    best = sorted((gain for gain in gains.values() if gain > 0), reverse=True)
    return _discounted([max(0, gains.get(one, 0)) for one in order[:cut]]) / _discounted(best[:cut])


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(1 + rank) for rank, gain in enumerate(gains, 1))


def recall(order: Sequence[str], gains: Mapping[str, int], cut: int = DEEP) -> float:
    """Return the share of the relevant documents that are among the first.

    >>> recall(["a", "x"], {"a": 1, "b": 1, "c": 0})
    0.5
    """
    wanted = {one for one, gain in gains.items() if gain > 0}
    return len(wanted.intersection(order[:cut])) / len(wanted)


def reciprocal_rank(order: Sequence[str], gains: Mapping[str, int], cut: int = CUT) -> float:
    """Return 1 / rank of the first relevant document.

    >>> reciprocal_rank(["x", "a"], {"a": 1})
    0.5
    """
    return next((1 / rank for rank, one in enumerate(order[:cut], 1) if gains.get(one, 0) > 0), 0.0)


def evaluate_queries(
    search: Callable[[str], Sequence[str]], queries: Mapping[str, str], judgments: Judgments
) -> Work[SearchScores]:
    """Evaluate a search on queries with judgments.

    Args:
        search: Returns document ids for a query, best first.
        queries: Query texts by id.
        judgments: Gains by query id and document id; 0 or less is not relevant.
    """
    asked = {name: gains for name, gains in judgments.items() if any(gain > 0 for gain in gains.values())}
    missing = [name for name in asked if name not in queries]
    if missing or not asked:
        found = (
            f"the qrels contain the query '{missing[0]}', which is not in the file of queries"
            if missing
            else "the qrels contain no relevant document"
        )
        raise ConfigError(found, fix="give the queries that belong to these qrels")
    made = []
    for name, gains in asked.items():
        order = search(queries[name])
        made.append((ndcg(order, gains), recall(order, gains), reciprocal_rank(order, gains), 1.0))
        yield Progress("queries", len(made), len(asked))

    def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {name: sums[..., place] / sums[..., -1] for place, name in enumerate(NAMES)}

    rows = np.array(made)  # [N,4], the last column is 1
    metrics = {name: float(value) for name, value in measure(rows.sum(axis=0)).items()}
    return SearchScores(metrics, bootstrap.intervals(rows, measure, shares=NAMES), len(rows))


def missing_documents(judgments: Judgments, holds: Callable[[Iterable[str]], set[str]]) -> list[str]:
    """Return the relevant documents that are not in the index, so that no search can find them.

    >>> missing_documents({"1": {"a": 1, "b": 1, "c": 0}}, lambda names: {"a"}.intersection(names))
    ['b']
    """
    wanted = dict.fromkeys(one for gains in judgments.values() for one, gain in gains.items() if gain > 0)
    there = holds(wanted)
    return [one for one in wanted if one not in there]


def read_queries(collection: Collection) -> dict[str, str]:
    """Return the queries of a file by id."""
    collection.checked()
    return {one.id: one.text for one in collection.documents()}


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read judgments; RejectedError lists the lines that cannot be read."""
    ledger, found = Ledger(), dict[str, dict[str, int]]()
    if not path.is_file():
        ledger.bad_file("file.missing", "the file does not exist", Place(str(path)), "check the path")
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").split("\n"), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        triple = (cells[0], cells[2], cells[3]) if len(cells) == 4 else tuple(cells)
        if len(triple) == 3 and GAIN.fullmatch(triple[2].strip()):
            found.setdefault(triple[0], {})[triple[1]] = int(triple[2])
            ledger.rows += 1
        elif line.strip() and (number > 1 or GAIN.search(triple[-1])):  # the first line may be a header
            text = "expected a query id, a document id and a whole number"
            ledger.bad_row("qrels.line", text, Place(str(path), number), "separate the three with tabs")
    ledger.close()
    return found
