"""The judged examples of all runs as numbers that add up: what every resampling works with.

A metric is a function of sums over examples. Where it is the mean of what each example alone scores, as accuracy is,
two numbers of each are enough, however many labels a task counts: the score and a one to divide by.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from seqloom.comparing.statistics import Measure
from seqloom.tasks.contract import Task

TOGETHER = 64  # examples of a block: each is asked for with zeros for all others


class Tables(NamedTuple):
    """[K,N,W] of each model: seeds, examples, and numbers that are added up for `measure`."""

    of: dict[str, np.ndarray]
    measure: Measure

    @property
    def is_mean(self) -> bool:
        """Whether the metric is the mean of what each example alone scores."""
        return self.measure is _mean

    @classmethod
    def made(cls, task: Task, judged: Mapping[str, list[np.ndarray]]) -> "Tables":
        """The tables of the statistics [N,S] of each run."""
        name = task.metric.name

        def measure(sums: np.ndarray) -> np.ndarray:
            return np.asarray(task.measure(sums)[name])

        means = {
            model: np.stack([np.concatenate([measure(block) for block in added(task, rows)]) for rows in runs])
            for model, runs in judged.items()
        }  # [K,N] each example alone
        sums = {model: np.stack([task.summed(rows) for rows in runs]) for model, runs in judged.items()}
        if all(_is_mean(each, measure(sums[model])) for model, each in means.items()):
            return cls({model: np.stack([each, np.ones_like(each)], axis=-1) for model, each in means.items()}, _mean)
        whole = {
            model: np.stack([np.concatenate([*added(task, rows)]) for rows in runs]) for model, runs in judged.items()
        }
        return cls(whole, measure)


def added(task: Task, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of [n,W]: what each example [N,S] adds to the sums, which has room for every label of a task."""
    for start in range(0, len(rows), TOGETHER):
        block = rows[start : start + TOGETHER]
        yield task.summed(block, np.eye(len(block)))


def _is_mean(values: np.ndarray, found: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and np.allclose(values.mean(axis=1), found, rtol=1e-9, atol=1e-12))


def _mean(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums[..., 0] / sums[..., 1])
