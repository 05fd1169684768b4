"""Evaluation: metrics of a model on a set of examples, with confidence intervals.

Statistics are kept for every example, predictions only for a sample and, on request, for the worst ones. The sample is
drawn by example ids, so it does not depend on how the data was batched.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from seqloom.data.order import sample_order
from seqloom.data.values import is_number
from seqloom.errors import ConfigError, DataError
from seqloom.metrics import bootstrap
from seqloom.metrics.bootstrap import Interval
from seqloom.nn.types import Batch, Padded, places_of
from seqloom.report.document import Document, Shown
from seqloom.report.frames import data_frame
from seqloom.report.numbers import counted
from seqloom.tasks.tables import brief_scores, evaluation_blocks, evaluation_json, evaluation_rows, square_table
from seqloom.tasks.task import EvaluatedExample, Evaluator


class ConfusionCount(NamedTuple):
    """One cell of a confusion matrix."""

    expected: str
    predicted: str
    rows: int


Confusion = tuple[ConfusionCount, ...]  # the most frequent first


class ConfusionMatrix(NamedTuple):
    """A confusion matrix as an array, with its labels.

    Attributes:
        labels: of the rows and of the columns, sorted.
        counts: [K,K] how often the label of a row was predicted as the label of a column.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    def document(self) -> Document:
        """The counts as a table: expected labels down, predicted labels across."""
        return Document("Confusion matrix", [square_table(self.labels, self.counts.tolist())])

    def to_pandas(self) -> Any:
        """The counts as a DataFrame; its index has the expected labels, its columns the predicted ones."""
        return data_frame(dict(zip(self.labels, self.counts.T.tolist(), strict=True)), index=self.labels)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The counts, so that NumPy and scikit-learn take the matrix as an array."""
        return np.array(self.counts, dtype=dtype)

    def __repr__(self) -> str:
        return self.document().text(REPR_COLUMNS).rstrip()

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()


class Unseen(NamedTuple):
    """Labels that are not in the training data: how many rows have one, and how often each occurs."""

    rows: int = 0
    labels: tuple[tuple[str, int], ...] = ()  # the most frequent first


class Slice(NamedTuple):
    """The metrics of the rows that share a value of a column, or a range of values."""

    column: str
    value: str
    evaluation: "Evaluation"


REPR_COLUMNS = 100
SLOW_ROWS = 20_000  # from here on, `repr` does not compute an interval, which takes a second or more


class EvaluationFields(NamedTuple):
    """The values of an evaluation.

    Attributes:
        task: the name of the task.
        metrics: every metric by name.
        rows: the number of examples.
        statistics: [N,S] the statistics of each example, from which all metrics are computed.
        examples: a sample of examples with their predictions and targets.
        confusion: the confusion matrix of labels or types of spans, as counts of (expected, predicted), if any.
        ids: the id of each row of `statistics`.
        worst: the worst predictions, the worst first, as many as requested.
        unseen: labels that are not in the training data.
        slices: metrics by the values of columns.
        evaluator: the task that computed the metrics.
        messages: how the data was found and read.
        unit: what a row is: an example, a document, or a piece of running text.
    """

    task: str
    metrics: dict[str, float]
    rows: int
    statistics: np.ndarray  # [N,S]
    examples: tuple[EvaluatedExample, ...]
    confusion: Confusion = ()
    ids: tuple[str, ...] = ()
    worst: tuple[EvaluatedExample, ...] = ()
    unseen: Unseen = Unseen()
    slices: tuple[Slice, ...] = ()
    evaluator: Evaluator | None = None
    messages: tuple[str, ...] = ()
    unit: str = "example"


class Evaluation(EvaluationFields, Shown):
    """The result of evaluating a model: its values are those of `EvaluationFields`."""

    def intervals(
        self, task: Evaluator | None = None, *, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Interval]:
        """Bootstrap confidence intervals of the metrics.

        Args:
            task: the task that computes the metrics (default: the one that computed `metrics`).
            resamples: how many resamples to draw.
            seed: the random seed of the resamples.
            level: the confidence level.

        Returns:
            (low, high) by name. Metrics that are undefined or never change under resampling have no interval.
        """
        if task is None and (resamples, seed, level) == (1000, 0, 0.95):
            return self._intervals
        task = task or self.known_evaluator
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

    @cached_property
    def _intervals(self) -> dict[str, Interval]:
        return self.intervals(self.known_evaluator)

    @property
    def known_evaluator(self) -> Evaluator:
        """The task that computed the metrics; ConfigError if it is not known."""
        if self.evaluator is None:
            raise ConfigError("this evaluation does not know its task", fix="pass the task, such as model.task")
        return self.evaluator

    def confusion_matrix(self) -> ConfusionMatrix:
        """The confusion matrix of a classifier, or of a tagger: rows are expected labels, columns predicted ones.

        Both are sorted. The labels of a tagger are the types of its spans, and (none) for a span that was missed or
        that is not in the data.
        """
        if not self.confusion:
            raise ConfigError(
                f"this evaluation of the task {self.task} has no confusion matrix",
                fix="it needs one label per example, or tags that mark spans; report() has the other scores",
            )
        labels = sorted({name for one in self.confusion for name in (one.expected, one.predicted)})
        at = {name: number for number, name in enumerate(labels)}
        counts = np.zeros((len(labels), len(labels)), np.int64)
        for one in self.confusion:
            counts[at[one.expected], at[one.predicted]] = one.rows
        return ConfusionMatrix(tuple(labels), counts)

    def to_json(self) -> dict[str, Any]:
        """The metrics, intervals, per-class scores, confusion matrix and slices as plain values."""
        return evaluation_json(self)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each metric: `metric`, `score`, and the ends `low` and `high` of its interval.

        With slices it has rows for them too, and the columns `column`, `value` and `rows`.
        """
        return data_frame(evaluation_rows(self))

    def document(self) -> Document:
        """The metrics with intervals, per-class scores, the confusion matrix and slices."""
        return Document(f"{self.task}: {counted(self.rows, self.unit)}", evaluation_blocks(self, evaluation_json(self)))

    def __repr__(self) -> str:
        main, ends = next(iter(self.metrics), ""), None
        if self.evaluator is not None:
            main = self.evaluator.metric.name
            if self.rows < SLOW_ROWS or "_intervals" in vars(self):
                ends = self.intervals().get(main)
        return f"Evaluation({self.task}, {counted(self.rows, 'row')}: {brief_scores(self.metrics, main, ends)})"

    def subset(self, task: Evaluator, rows: np.ndarray) -> "Evaluation":
        """The evaluation of some rows, given by index; without examples and confusion matrix."""
        statistics = self.statistics[rows]
        ids = tuple(self.ids[row] for row in rows)
        return Evaluation(self.task, _metrics(task, statistics), len(rows), statistics, (), ids=ids, evaluator=task)


def evaluate(
    task: Evaluator, model: nn.Module, batches: Iterable[Batch[Any, Any]], *, keep: int = 20, worst: int = 0
) -> Evaluation:
    """Evaluate a model on batches.

    Args:
        task: computes predictions, statistics and metrics.
        model: the model; its training mode is restored afterwards.
        batches: on the device of the model.
        keep: examples to keep as a sample.
        worst: how many of the worst predictions to keep.
    """
    statistics: list[np.ndarray] = []
    ids: list[str] = []
    kept: list[EvaluatedExample] = []
    bad: list[EvaluatedExample] = []
    confusion, state = Counter[tuple[str, str]](), None
    with answering(model):
        for batch in batches:
            evaluated, state = task.evaluate_batch(model, batch, state)
            statistics.extend(one.statistics for one in evaluated)
            ids.extend(one.id for one in evaluated)
            kept = heapq.nsmallest(keep, [*kept, *evaluated], key=lambda one: sample_order(one.id))
            bad = heapq.nsmallest(worst, [*bad, *evaluated], key=_rank)
            confusion.update(pair for one in evaluated for pair in one.confusion_pairs)
    if not statistics:
        raise DataError("there are no examples to evaluate", fix="give at least one batch")
    table = task.agreed(np.stack(statistics), np.stack(statistics))
    # The statistics of kept examples follow the rule chosen by all rows.
    chosen, worst_kept = (
        tuple(one._replace(statistics=task.agreed(one.statistics[None], table)[0]) for one in some)
        for some in (kept, bad)
    )
    pairs = sorted(confusion.items(), key=lambda item: (-item[1], item[0]))
    counts = tuple(ConfusionCount(*pair, count) for pair, count in pairs)
    metrics = _metrics(task, table)
    return Evaluation(task.name, metrics, len(table), table, chosen, counts, tuple(ids), worst_kept, evaluator=task)


def _metrics(task: Evaluator, statistics: np.ndarray) -> dict[str, float]:
    """All metrics of statistics [N,S]."""
    figures = {name: float(value) for name, value in task.measure(task.summed(statistics)).items()}
    return figures | task.measure_rows(statistics)


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode without gradients in the block; then restore its modes."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def document_numbers(inputs: Padded) -> np.ndarray:
    """[B,T] the index of the document of each element, in reading order; a row is one document unless packed."""
    rows, time = inputs.values.shape[:2]
    if inputs.segments is None:
        return np.repeat(np.arange(rows), time).reshape(rows, time)
    within = places_of(inputs).segments.cpu().numpy()  # 1, 2, ... in each row, -1 in the padding
    counts = within.max(axis=1)
    before: np.ndarray = np.cumsum(counts) - counts - 1
    return np.asarray(within + before[:, None])


def badness(evaluated: EvaluatedExample) -> float:
    """The mean loss of an example, by which the worst predictions are sorted."""
    loss, weight = evaluated.statistics[-2:]
    return float(loss / weight) if weight else math.inf


def _rank(one: EvaluatedExample) -> tuple[bool, float, int, str]:
    """The sort key of the worst predictions: wrong ones first, then by loss, then by id."""
    far = badness(one)
    return one.correct is True, -far if not math.isnan(far) else -math.inf, len(one.id), one.id


# Slices: metrics for groups of examples, by a column of the data or by the length of the input.
#
#     few different values     one slice each
#     many                     one slice for each frequent value, all others together as "(others)"
#     many numbers             QUANTILES ranges with about as many rows each: "3 to 7"
#     missing                  "(missing)"
#
# A slice is an evaluation of its rows, with the same metrics and with intervals.

MOST_VALUES = 20  # slices of one column
LEAST_ROWS = 5  # of a slice, where there are more values than MOST_VALUES
FEW_NUMBERS = 8  # up to this many different numbers are treated as categories: stars, years
QUANTILES = 5
LONGEST_NAME = 60  # characters
OTHERS, MISSING = "(others)", "(missing)"


def sliced(task: Evaluator, evaluation: Evaluation, column: str, values: Sequence[Any]) -> tuple[Slice, ...]:
    """The slices of an evaluation by a column; `values` are those of its rows, in order."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names_of(values)):
        found.setdefault(name, []).append(row)
    last, numeric = {OTHERS: 1, MISSING: 2}, all(_is_missing(value) or is_number(value) for value in values)

    def rank(name: str) -> tuple[int, float, str]:  # ranges and numbers by size, names by frequency
        size = float(name.partition(" to ")[0]) if numeric and name not in last else -len(found[name])
        return last.get(name, 0), size, name

    return tuple(
        Slice(column, name, evaluation.subset(task, np.array(found[name]))) for name in sorted(found, key=rank)
    )


def names_of(values: Sequence[Any]) -> list[str]:
    """The name of the slice of each value.

    >>> names_of(["a", "b", "a", None])
    ['a', 'b', 'a', '(missing)']
    >>> names_of([3, 1, 4, 1, 5, 9, 2, 6, 8, 7])
    ['2 to 3', '1', '4 to 5', '1', '4 to 5', '8 to 9', '2 to 3', '6 to 7', '8 to 9', '6 to 7']
    """
    there = [value for value in values if not _is_missing(value)]
    if there and all(map(is_number, there)) and len({float(value) for value in there}) > FEW_NUMBERS:
        ranges = _ranges(np.array([float(value) for value in there]))
        return [MISSING if _is_missing(value) else _range_of(float(value), ranges) for value in values]
    named = [MISSING if _is_missing(value) else _shown(value) for value in values]
    counts = Counter(named)
    if len(counts) <= MOST_VALUES:
        return named
    often = [name for name, count in counts.most_common() if count >= LEAST_ROWS or name == MISSING]
    kept = set(often[:MOST_VALUES])
    return [name if name in kept else OTHERS for name in named]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _ranges(numbers: np.ndarray) -> list[tuple[float, float]]:
    """The minimum and maximum of each range; equal numbers stay together."""
    ends = [-(-len(numbers) * part // QUANTILES) - 1 for part in range(1, QUANTILES + 1)]
    edges = np.unique(np.sort(numbers)[ends])
    different = np.unique(numbers)
    groups = np.searchsorted(edges, different)
    return [(float(one.min()), float(one.max())) for one in (different[groups == at] for at in range(len(edges)))]


def _range_of(number: float, ranges: list[tuple[float, float]]) -> str:
    low, high = next((low, high) for low, high in ranges if number <= high)
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
