"""What is counted and measured for the report: rows, labels, and lengths or values as five numbers and a histogram."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from seqloom.data.schema import Example, Schema, in_order
from seqloom.report.figures.frame import linear_axis

MOST_BINS = 12
TAIL = 0.99  # the first and the last bin of a histogram also hold what is beyond this quantile on either side


class NumberSummary(NamedTuple):
    """Five numbers about a part."""

    part: str
    least: float
    median: float
    mean: float
    p95: float  # 95 % are at most so much
    most: float


class HistogramBin(NamedTuple):
    """A bin of a histogram: one value, or all from `low` to `high`; of whole numbers `high` is the last one in it."""

    low: float
    high: float | None  # None where it has no end


class ColumnMeasure(NamedTuple):
    """A length or value: its summary and its histogram for each part."""

    name: str
    whole: bool  # all values are whole numbers
    summaries: tuple[NumberSummary, ...]
    bins: tuple[HistogramBin, ...]
    counts: tuple[tuple[int, ...], ...]  # of each part, of each bin


class LabelCount(NamedTuple):
    """A label and how often it occurs in each part, in the order of the parts."""

    label: str
    counts: tuple[int, ...]


class Measures:
    """Is fed all parts block by block; four bytes a row and measure are kept."""

    def __init__(self, schema: Schema) -> None:
        self.rows: Counter[str] = Counter()
        self._schema = schema
        self._labels: dict[str, Counter[str]] = {}
        self._values: dict[str, dict[str, list[np.ndarray]]] = {}  # by measure and part

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Count and measure further examples."""
        self.rows[part] += len(examples)
        kind, target = self._schema.input, self._schema.target
        targets = [example.target for example in examples]
        found = kind.measure([example.input for example in examples]) | target.measure(targets)
        for name, values in found.items():
            self._values.setdefault(name, {}).setdefault(part, []).append(values)
        if target.has_labels:
            self._labels.setdefault(part, Counter()).update(chain.from_iterable(map(target.labels, targets)))

    def label_counts(self) -> tuple[LabelCount, ...]:
        """All labels, those most frequent in the first part first."""
        by_part = in_order(self._labels)
        labels = dict.fromkeys(chain.from_iterable(by_part.values()))
        counts = [LabelCount(label, tuple(of[label] for of in by_part.values())) for label in labels]
        return tuple(sorted(counts, key=lambda entry: tuple(-count for count in entry.counts)))

    def finish(self, symbols: Mapping[str, np.ndarray]) -> tuple[ColumnMeasure, ...]:
        """All measures; with the lengths of the encoded inputs, those too."""
        values = {name: {part: np.concatenate(some) for part, some in of.items()} for name, of in self._values.items()}
        if symbols:
            values["symbols of an input"] = dict(symbols)
        known = {name: in_order({part: some for part, some in of.items() if len(some)}) for name, of in values.items()}
        return tuple(_measure(name, of) for name, of in known.items() if of)


def _measure(name: str, parts: Mapping[str, np.ndarray]) -> ColumnMeasure:
    summaries = tuple(_summary(part, values) for part, values in parts.items())
    every = np.concatenate(list(parts.values()))
    whole = bool(np.all(every == np.round(every)))
    bins = _bins(every, whole)
    edges = [*(one.low for one in bins), np.inf]
    counts = tuple(tuple(np.histogram(values, edges)[0].tolist()) for values in parts.values())
    return ColumnMeasure(name, whole, summaries, bins, counts)


def _summary(part: str, values: np.ndarray) -> NumberSummary:
    middle, most = np.quantile(values, [0.5, 0.95])
    return NumberSummary(
        part, values.min().item(), middle.item(), values.mean().item(), most.item(), values.max().item()
    )


def _bins(values: np.ndarray, whole: bool) -> tuple[HistogramBin, ...]:
    alone = _values_alone(values, whole)
    return tuple(HistogramBin(value, value) for value in alone) if alone else _ranges(values, whole)


def _values_alone(values: np.ndarray, whole: bool) -> list[float]:
    """Values that have a bin each: a few that come again and again, or a few neighbouring whole numbers; else none."""
    different = np.unique(values).astype(float)
    if whole and different[-1] - different[0] < MOST_BINS:
        different = np.arange(different[0], different[-1] + 1)  # with those that do not occur in between
    elif len(different) > max(1, min(MOST_BINS, len(values) // 2)):
        return []
    return list(map(float, different))


def _ranges(values: np.ndarray, whole: bool) -> tuple[HistogramBin, ...]:
    """Bins between round numbers: the first begins at the least value, and the last may have no end."""
    ticks = _ticks(values, 1.0 if whole else 0.0)
    least, most = float(values.min()), float(values.max())
    lows = [least, *(tick for tick in ticks[:-1] if tick > least)]
    highs = [*lows[1:], None if most >= ticks[-1] else ticks[-1]]
    return tuple(
        HistogramBin(low, high - 1 if whole and high is not None else high)
        for low, high in zip(lows, highs, strict=True)
    )


def _ticks(values: np.ndarray, least_step: float) -> tuple[float, ...]:
    """Round numbers around all but the tails, so that a stray value leaves no empty bins before the others."""
    low, high = np.quantile(values, [1 - TAIL, TAIL]).tolist()
    return linear_axis(low, high, count=MOST_BINS - 1, least_step=least_step).ticks
