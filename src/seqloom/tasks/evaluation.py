"""Evaluation: every example judged, and the metrics of all, with intervals that say how sure they are.

Statistics are kept row by row, answers of a few examples only: a sample that is decided by their ids, so it is the same
however the data was cut into batches and whoever looks; and, where they are asked for, the worst.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from seqloom.data.order import sample_order
from seqloom.data.values import is_number
from seqloom.errors import DataError
from seqloom.metrics import bootstrap
from seqloom.metrics.bootstrap import Interval
from seqloom.nn.types import Batch, Padded, places_of
from seqloom.tasks.task import Evaluator, Judged

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
    judge: Evaluator | None = None  # the task that judged them
    said: tuple[str, ...] = ()  # where the data was found and how it was read, where that is to be known

    def intervals(
        self, task: Evaluator, *, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Interval]:
        """Where each metric would lie with other examples of the same kind; without those of which nothing is known."""
        found = bootstrap.intervals(
            self.statistics,
            task.measure,
            summed=task.summed,
            rows=task.measure_rows,
            resamples=resamples,
            seed=seed,
            level=level,
        )
        undefined = task.undefined(self.statistics)
        return {name: interval for name, interval in found.items() if name not in undefined}

    def only(self, task: Evaluator, rows: np.ndarray) -> "Evaluation":
        """The evaluation of some of the rows, by their numbers here; without examples and without confusions."""
        statistics = self.statistics[rows]
        ids = tuple(self.ids[row] for row in rows)
        return Evaluation(self.task, _metrics(task, statistics), len(rows), statistics, (), ids=ids)


def evaluate(
    task: Evaluator, model: nn.Module, batches: Iterable[Batch[Any, Any]], *, keep: int = 20, worst: int = 0
) -> Evaluation:
    """The metrics of a model on batches, which lie on its device; the model is left as it was."""
    statistics: list[np.ndarray] = []
    ids: list[str] = []
    kept: list[Judged] = []
    bad: list[Judged] = []
    confusion, state = Counter[tuple[str, str]](), None
    with answering(model):
        for batch in batches:
            judged, state = task.judge(model, batch, state)
            statistics.extend(one.statistics for one in judged)
            ids.extend(one.id for one in judged)
            kept = heapq.nsmallest(keep, [*kept, *judged], key=lambda one: sample_order(one.id))
            bad = heapq.nsmallest(worst, [*bad, *judged], key=_rank)
            confusion.update(one.confused for one in judged if one.confused is not None)
    if not statistics:
        raise DataError("there is no example to judge", fix="give at least one batch")
    table = task.agreed(np.stack(statistics), np.stack(statistics))
    # Examples whose statistics follow what all rows decide.
    chosen, told = (
        tuple(one._replace(statistics=task.agreed(one.statistics[None], table)[0]) for one in some)
        for some in (kept, bad)
    )
    pairs = sorted(confusion.items(), key=lambda item: (-item[1], item[0]))
    counts = tuple((true, said, count) for (true, said), count in pairs)
    metrics = _metrics(task, table)
    return Evaluation(task.name, metrics, len(table), table, chosen, counts, tuple(ids), told, judge=task)


def _metrics(task: Evaluator, statistics: np.ndarray) -> dict[str, float]:
    """Every figure of the statistics [N,S]: those of sums, and those of all rows at once."""
    figures = {name: float(value) for name, value in task.measure(task.summed(statistics)).items()}
    return figures | task.measure_rows(statistics)


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


def document_numbers(inputs: Padded) -> np.ndarray:
    """[B,T] the document that each element belongs to, counted in reading order; rows are one each unless packed."""
    rows, time = inputs.values.shape[:2]
    if inputs.segments is None:
        return np.repeat(np.arange(rows), time).reshape(rows, time)
    within = places_of(inputs).segments.cpu().numpy()  # 1, 2, ... in each row, -1 in the padding
    counts = within.max(axis=1)
    before: np.ndarray = np.cumsum(counts) - counts - 1
    return np.asarray(within + before[:, None])


def badness(judged: Judged) -> float:
    """How far from right an answer is, for lists with the worst first: its mean loss."""
    loss, weight = judged.statistics[-2:]
    return float(loss / weight) if weight else math.inf


def _rank(one: Judged) -> tuple[bool, float, int, str]:
    """Wrong answers before right ones, the furthest from right first, and ids where two are equally bad."""
    far = badness(one)
    return one.right is True, -far if not math.isnan(far) else -math.inf, len(one.id), one.id


# Slices: how well a model does on each kind of example, by a column of the data or by the length of the input.
#
#     values   few different ones      a slice each
#              many                    the frequent ones a slice each, all others together, as "(others)"
#              many numbers            QUANTILES stretches with about as many rows each: "3 to 7"
#              none                    "(nothing)"
#
# A slice is an evaluation of its rows: it has the same metrics, and intervals that say how little few rows tell.

MOST_VALUES = 20  # slices of one column
LEAST_ROWS = 5  # of a value with a slice of its own, where there are more values than that
FEW_NUMBERS = 8  # different numbers up to here are names: stars, years
QUANTILES = 5
LONGEST_NAME = 60  # characters
OTHERS, NOTHING = "(others)", "(nothing)"


def sliced(task: Evaluator, evaluation: Evaluation, column: str, values: Sequence[Any]) -> tuple[Slice, ...]:
    """The evaluation of the rows that belong together; `values` are those of its rows, in their order."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names_of(values)):
        found.setdefault(name, []).append(row)
    last, numeric = {OTHERS: 1, NOTHING: 2}, all(_is_nothing(value) or is_number(value) for value in values)

    def rank(name: str) -> tuple[int, float, str]:  # stretches and numbers by their size, names by how often they come
        size = float(name.partition(" to ")[0]) if numeric and name not in last else -len(found[name])
        return last.get(name, 0), size, name

    return tuple(Slice(column, name, evaluation.only(task, np.array(found[name]))) for name in sorted(found, key=rank))


def names_of(values: Sequence[Any]) -> list[str]:
    """The name of the slice of each value.

    >>> names_of(["a", "b", "a", None])
    ['a', 'b', 'a', '(nothing)']
    >>> names_of([3, 1, 4, 1, 5, 9, 2, 6, 8, 7])
    ['2 to 3', '1', '4 to 5', '1', '4 to 5', '8 to 9', '2 to 3', '6 to 7', '8 to 9', '6 to 7']
    """
    there = [value for value in values if not _is_nothing(value)]
    if there and all(map(is_number, there)) and len({float(value) for value in there}) > FEW_NUMBERS:
        stretches = _stretches(np.array([float(value) for value in there]))
        return [NOTHING if _is_nothing(value) else _stretch(float(value), stretches) for value in values]
    named = [NOTHING if _is_nothing(value) else _shown(value) for value in values]
    counts = Counter(named)
    if len(counts) <= MOST_VALUES:
        return named
    often = [name for name, count in counts.most_common() if count >= LEAST_ROWS or name == NOTHING]
    kept = set(often[:MOST_VALUES])
    return [name if name in kept else OTHERS for name in named]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _stretches(numbers: np.ndarray) -> list[tuple[float, float]]:
    """The least and the largest number of each stretch; numbers that are equal stay together."""
    ends = [-(-len(numbers) * part // QUANTILES) - 1 for part in range(1, QUANTILES + 1)]
    edges = np.unique(np.sort(numbers)[ends])
    different = np.unique(numbers)
    groups = np.searchsorted(edges, different)
    return [(float(one.min()), float(one.max())) for one in (different[groups == at] for at in range(len(edges)))]


def _stretch(number: float, stretches: list[tuple[float, float]]) -> str:
    low, high = next((low, high) for low, high in stretches if number <= high)
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
