"""How good an order of documents is, by judgements of people: which documents answer which question, and how well.

    nDCG@10      sum of gain(d) / log2(1 + rank) over the first ten, as a share of the best order's (Järvelin 2002)
    recall@100   the share of what answers that stands among the first hundred
    MRR@10       1 / the rank of the first that answers, 0 if none of the first ten does

Each is the mean over the questions that have a document that answers, as in BEIR; intervals are those of the bootstrap
over questions. Judgements are lines of `question document gain`, as BEIR (with a header) and TREC write them.
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

Judgements = Mapping[str, Mapping[str, int]]  # by question, then by document
CUT, DEEP = 10, 100
GAIN = re.compile(r"-?[0-9]+")
NAMES = (f"ndcg@{CUT}", f"recall@{DEEP}", f"mrr@{CUT}")


class JudgedQuery(NamedTuple):
    """How well questions were answered."""

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    rows: int  # questions


def ndcg(order: Sequence[str], gains: Mapping[str, int], cut: int = CUT) -> float:
    """The discounted gain of the first documents, as a share of the best one there is.

    >>> round(ndcg(["x", "a"], {"a": 1}), 4), ndcg(["a"], {"a": 2})
    (0.6309, 1.0)
    """
    best = sorted((gain for gain in gains.values() if gain > 0), reverse=True)
    return _discounted([max(0, gains.get(one, 0)) for one in order[:cut]]) / _discounted(best[:cut])


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(1 + rank) for rank, gain in enumerate(gains, 1))


def recall(order: Sequence[str], gains: Mapping[str, int], cut: int = DEEP) -> float:
    """The share of the documents that answer which stands among the first.

    >>> recall(["a", "x"], {"a": 1, "b": 1, "c": 0})
    0.5
    """
    wanted = {one for one, gain in gains.items() if gain > 0}
    return len(wanted.intersection(order[:cut])) / len(wanted)


def reciprocal_rank(order: Sequence[str], gains: Mapping[str, int], cut: int = CUT) -> float:
    """1 / the rank of the first document that answers.

    >>> reciprocal_rank(["x", "a"], {"a": 1})
    0.5
    """
    return next((1 / rank for rank, one in enumerate(order[:cut], 1) if gains.get(one, 0) > 0), 0.0)


def judged(
    answer: Callable[[str], Sequence[str]], questions: Mapping[str, str], judgements: Judgements
) -> Work[JudgedQuery]:
    """How well questions are answered; `answer` gives ids, the best one first."""
    asked = {name: gains for name, gains in judgements.items() if any(gain > 0 for gain in gains.values())}
    missing = [name for name in asked if name not in questions]
    if missing or not asked:
        found = f"no question has the id '{missing[0]}', which is judged" if missing else "nothing is judged relevant"
        raise ConfigError(found, fix="give the file of questions that the judgements are for")
    made = []
    for name, gains in asked.items():
        order = answer(questions[name])
        made.append((ndcg(order, gains), recall(order, gains), reciprocal_rank(order, gains), 1.0))
        yield Progress("questions", len(made), len(asked))

    def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {name: sums[..., place] / sums[..., -1] for place, name in enumerate(NAMES)}

    rows = np.array(made)  # [N,4], of which the last is 1
    metrics = {name: float(value) for name, value in measure(rows.sum(axis=0)).items()}
    return JudgedQuery(metrics, bootstrap.intervals(rows, measure, shares=NAMES), len(rows))


def unknown(judgements: Judgements, holds: Callable[[Iterable[str]], set[str]]) -> list[str]:
    """The documents that answer by the judgements and that nobody holds: no search can find them.

    >>> unknown({"1": {"a": 1, "b": 1, "c": 0}}, lambda names: {"a"}.intersection(names))
    ['b']
    """
    wanted = dict.fromkeys(one for gains in judgements.values() for one, gain in gains.items() if gain > 0)
    there = holds(wanted)
    return [one for one in wanted if one not in there]


def read_questions(collection: Collection) -> dict[str, str]:
    """The questions of a file by their ids."""
    collection.checked()
    return {one.id: one.text for one in collection.documents()}


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """The judgements in a file; RejectedError that names the lines that are none."""
    ledger, found = Ledger(), dict[str, dict[str, int]]()
    if not path.is_file():
        ledger.bad_file("file.missing", "there is no such file", Place(str(path)), "check the path")
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").split("\n"), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        triple = (cells[0], cells[2], cells[3]) if len(cells) == 4 else tuple(cells)
        if len(triple) == 3 and GAIN.fullmatch(triple[2].strip()):
            found.setdefault(triple[0], {})[triple[1]] = int(triple[2])
            ledger.rows += 1
        elif line.strip() and (number > 1 or GAIN.search(triple[-1])):  # the first may name the columns
            text = "expected a question, a document and a whole number"
            ledger.bad_row("qrels.line", text, Place(str(path), number), "put tabs between the three")
    ledger.close()
    return found
