"""The judged examples of all runs as numbers that add up: what every resampling works with.

A metric is a function of sums over examples. Where it is the mean of what each example alone scores, as accuracy is,
two numbers of each are enough, however many labels a task counts: the score and a one to divide by.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from seqloom.comparing.statistics import Measure
from seqloom.tasks.contract import Task


class Tables(NamedTuple):
    """[K,N,W] of each model: seeds, examples, and numbers that are added up for `measure`."""

    of: dict[str, np.ndarray]
    measure: Measure

    @classmethod
    def made(cls, task: Task, judged: Mapping[str, list[np.ndarray]]) -> "Tables":
        """The tables of the statistics [N,S] of each run."""
        name = task.metric.name

        def measure(sums: np.ndarray) -> np.ndarray:
            return np.asarray(task.measure(sums)[name])

        whole = {model: np.stack([additive(task, rows) for rows in runs]) for model, runs in judged.items()}
        values = {model: measure(table) for model, table in whole.items()}  # [K,N] each example alone
        means = all(_is_mean(values[model], measure(table.sum(axis=1))) for model, table in whole.items())
        if not means:
            return cls(whole, measure)
        return cls({model: np.stack([each, np.ones_like(each)], axis=-1) for model, each in values.items()}, _mean)


def additive(task: Task, rows: np.ndarray) -> np.ndarray:
    """[N,W] what each example [N,S] adds to the sums; for most tasks its own statistics."""
    first = task.summed(rows[:1])
    if first.shape == rows.shape[1:] and np.array_equal(first, rows[0]):
        return rows
    return np.stack([task.summed(row[None]) for row in rows])


def _is_mean(values: np.ndarray, found: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and np.allclose(values.mean(axis=1), found, rtol=1e-9, atol=1e-12))


def _mean(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums[..., 0] / sums[..., 1])
