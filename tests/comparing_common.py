"""Simulated comparisons: two models with known scores, seeds that differ, and examples that are hard for both.

An answer is right if a latent number is below a threshold: a part of it belongs to the example, a part to the model
and the example, and a part to the seed and the example, so that seeds of one model err on much the same rows.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from seqloom.comparing.significance import randomisation
from seqloom.comparing.statistics import Estimate, difference, estimate, resampled

SHARES = (0.5, 0.2, 0.3)  # of the example, of the model on it, of the seed on it


class World(NamedTuple):
    """What is true in a simulation."""

    gap: float = 0.0  # by how much the first model is better
    spread: float = 0.0  # standard deviation of the accuracy between seeds
    seeds: int = 3
    rows: int = 1000
    accuracy: float = 0.8

    def answers(self, draws: np.random.Generator) -> list[np.ndarray]:
        """[K,N,2] for each model: right answers, and ones to divide by."""
        example = draws.standard_normal(self.rows)
        return [self._model(mean, example, draws) for mean in (self.accuracy + self.gap, self.accuracy)]

    def _model(self, mean: float, example: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        own = draws.standard_normal(self.rows)
        runs = []
        for _ in range(self.seeds):
            hit = min(0.99, max(0.01, mean + draws.normal(0.0, self.spread)))
            parts = (example, own, draws.standard_normal(self.rows))
            latent = sum(share**0.5 * part for share, part in zip(SHARES, parts, strict=True))
            runs.append(np.stack([latent < NormalDist().inv_cdf(hit), np.ones(self.rows)], axis=1))
        return np.stack(runs).astype(np.float64)


def accuracy(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums[..., 0] / sums[..., 1])


class Outcome(NamedTuple):
    difference: Estimate
    first: Estimate  # the score of the first model
    p: float  # what decides: the larger of both tests

    @property
    def shown(self) -> bool:
        return self.p < 0.05


def compared(world: World, seed: int, *, resamples: int = 200, shuffles: int = 200) -> Outcome:
    """One simulated comparison."""
    tables = world.answers(np.random.default_rng(seed))
    one, other = resampled(tables, accuracy, resamples=resamples, seed=seed)
    found = difference(one, other)
    p = max(found.p, randomisation(*tables, accuracy, shuffles=shuffles, seed=seed))
    return Outcome(found, estimate(one), p)


def covers(found: Estimate, truth: float) -> bool:
    return found.low <= truth <= found.high
