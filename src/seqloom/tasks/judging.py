"""Evaluation: every example judged, and the metrics of all, with intervals that say how sure they are.

Statistics are kept row by row, answers of a few examples only: a sample that is decided by their ids, so it is the same
however the data was cut into batches and whoever looks; and, where they are asked for, the worst.
"""

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from seqloom.errors import DataError
from seqloom.metrics import bootstrap
from seqloom.metrics.bootstrap import Interval
from seqloom.tasks.contract import Judged, Task
from seqloom.types import Batch

Confusion = tuple[tuple[str, str, int], ...]  # what is true, what was said, how often; the most frequent first


class Unseen(NamedTuple):
    """Labels that training never saw, which no model can say: how many rows have one, and how often each stands."""

    rows: int = 0
    labels: tuple[tuple[str, int], ...] = ()  # the most frequent first


class Slice(NamedTuple):
    """The rows that share a value of a column, or whose value falls between two."""

    column: str
    value: str
    evaluation: "Evaluation"


class Evaluation(NamedTuple):
    """What came of judging a set of examples."""

    task: str
    metrics: dict[str, float]
    rows: int
    statistics: np.ndarray  # [N,S]
    judged: tuple[Judged, ...]  # a few
    confusion: Confusion = ()
    ids: tuple[str, ...] = ()  # of the rows of `statistics`, in their order
    worst: tuple[Judged, ...] = ()  # as many as were asked for, the worst first
    unseen: Unseen = Unseen()
    slices: tuple[Slice, ...] = ()
    judge: Task | None = None  # the task that judged them
    said: tuple[str, ...] = ()  # where the data was found and how it was read, where that is to be known

    def intervals(
        self, task: Task, *, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Interval]:
        """Where each metric would lie with other examples of the same kind; without those of which nothing is known."""
        how: Any = {"resamples": resamples, "seed": seed, "level": level}
        found = bootstrap.intervals(self.statistics, task.measure, summed=task.summed, rows=task.measure_rows, **how)
        undefined = task.undefined(self.statistics)
        return {name: interval for name, interval in found.items() if name not in undefined}

    def only(self, task: Task, rows: np.ndarray) -> "Evaluation":
        """The evaluation of some of the rows, by their numbers here; without examples and without confusions."""
        statistics = self.statistics[rows]
        ids = tuple(self.ids[row] for row in rows)
        return Evaluation(self.task, _metrics(task, statistics), len(rows), statistics, (), ids=ids)


def evaluate(
    task: Task, model: nn.Module, batches: Iterable[Batch[Any, Any]], *, keep: int = 20, worst: int = 0
) -> Evaluation:
    """The metrics of a model on batches, which lie on its device; the model is left as it was."""
    statistics: list[np.ndarray] = []
    ids: list[str] = []
    kept, bad, confusion, state = _Kept(keep), _Worst(task, worst), Counter[tuple[str, str]](), None
    with answering(model):
        for batch in batches:
            judged, state = task.judge_on(model, batch, state)
            statistics.extend(one.statistics for one in judged)
            ids.extend(one.id for one in judged)
            kept.add(judged)
            bad.add(judged)
            confusion.update(pair for one in judged for pair in task.confused(one))
    if not statistics:
        raise DataError("there is no example to judge", fix="give at least one batch")
    table = task.agreed(np.stack(statistics), np.stack(statistics))
    chosen, told = (_agreed(task, some, table) for some in (task.settled(kept.judged()), bad.judged()))
    found = Evaluation(
        task.name, _metrics(task, table), len(table), table, chosen, _ordered(confusion), tuple(ids), told
    )
    return found._replace(judge=task)


def _metrics(task: Task, statistics: np.ndarray) -> dict[str, float]:
    """Every figure of the statistics [N,S]: those of sums, and those of all rows at once."""
    figures = {name: float(value) for name, value in task.measure(task.summed(statistics)).items()}
    return figures | task.measure_rows(statistics)


def _agreed(task: Task, judged: Sequence[Judged], table: np.ndarray) -> tuple[Judged, ...]:
    """Examples whose statistics follow what all rows decide."""
    return tuple(one._replace(statistics=task.agreed(one.statistics[None], table)[0]) for one in judged)


def _ordered(confusion: Counter[tuple[str, str]]) -> Confusion:
    pairs = sorted(confusion.items(), key=lambda item: (-item[1], item[0]))
    return tuple((true, said, count) for (true, said), count in pairs)


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """Inside the `with`, a model answers: no dropout, no gradient; afterwards each of its parts is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class _Kept:
    """The examples whose ids have the smallest sums: a sample that does not depend on any order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.chosen: list[tuple[bytes, int, Judged]] = []
        self.seen = 0

    def add(self, judged: Sequence[Judged]) -> None:
        for one in judged:
            self.chosen.append((hashlib.sha256(one.id.encode()).digest(), self.seen, one))
            self.seen += 1
        self.chosen = sorted(self.chosen, key=lambda item: item[:2])[: self.most]

    def judged(self) -> list[Judged]:
        return [one for _, _, one in self.chosen]


class _Worst:
    """The answers that are furthest from right: wrong ones before right ones, and ids where two are equally bad."""

    def __init__(self, task: Task, most: int) -> None:
        self.task, self.most = task, most
        self.chosen: list[Judged] = []

    def add(self, judged: Sequence[Judged]) -> None:
        if self.most:
            told = self.task.settled(judged)
            self.chosen = heapq.nsmallest(self.most, [*self.chosen, *told], key=self._rank)

    def _rank(self, one: Judged) -> tuple[bool, float, int, str]:
        badness = self.task.badness(one)
        return one.right is True, -badness if not math.isnan(badness) else -math.inf, len(one.id), one.id

    def judged(self) -> tuple[Judged, ...]:
        return tuple(self.chosen)
