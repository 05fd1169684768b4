"""Simulated comparisons: two models with known scores, seeds that differ, and examples that are hard for both.

An answer is right if a latent number is below a threshold: a part of it belongs to the example, a part to the model
and the example, and a part to the seed and the example, so that seeds of one model err on much the same rows. The
answers become judged runs, and the comparison itself weighs them, as it does after training.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from seqloom.experiments.compare.results import ALPHA, Comparison, Interval, PairResult
from seqloom.experiments.compare.runs import RunEvaluation, RunFacts
from seqloom.experiments.compare.statistics import Estimate, ModelScores, SeedSpread, difference, holm
from seqloom.experiments.compare.verdicts import ComparedScores, largest_variance
from seqloom.tasks.task import Metric

SHARES = (0.5, 0.2, 0.3)  # of the example, of the model on it, of the seed on it
FACTS: dict[str, Any] = {"data": "simulated", "split": "dev", "budget": "nothing", "baseline": "small"}


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


class Shares:
    """As much of a task as weighing needs: right answers of all answers."""

    name = "classify"
    metric = Metric("accuracy")

    def summed(self, rows: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        return rows.sum(axis=0) if times is None else np.asarray(times @ rows)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"accuracy": accuracy(sums)}


class Spans(Shares):
    """F1 of spans: right ones [0], said ones [1] and true ones [2] are summed first, and divided then."""

    metric = Metric("f1")

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        right, said, true = np.moveaxis(sums, -1, 0)
        return {"f1": np.asarray(2 * right / np.maximum(said + true, 1))}


def run_evaluation(model: str, seed: int, statistics: np.ndarray, metric: str = "accuracy") -> RunEvaluation:
    facts = RunFacts(
        model=model,
        seed=seed,
        split="dev",
        task="classify",
        metric=metric,
        metrics={metric: float(accuracy(statistics.sum(axis=0))), "broken": None},
        rows=len(statistics),
        parameters=100 if model == "small" else 10_000,
        steps=7,
        tokens=1000,
        seconds=1.5,
        end_reason="done",
        device="cpu",
    )
    return RunEvaluation(facts, np.arange(len(statistics)), statistics)


def judged(
    tables: dict[str, np.ndarray], task: Any = None, lengths: np.ndarray | None = None, margin: float | None = None
) -> Comparison:
    """The comparison of the statistics [K,N,S] of each model."""
    runs = {
        name: [run_evaluation(name, seed, rows) for seed, rows in enumerate(table)] for name, table in tables.items()
    }
    first = next(iter(tables.values()))
    given = np.full(first.shape[1], 7) if lengths is None else lengths
    return ComparedScores(runs, task or Shares(), margin).comparison(given, seeds=len(first), **FACTS)


class Outcome(NamedTuple):
    """A comparison of `first`, which is better by the gap, and `second`."""

    comparison: Comparison

    @property
    def shown(self) -> bool:
        return self.comparison.verdict("first", "second") in ("better", "worse")

    @property
    def won(self) -> bool:
        return self.comparison.verdict("first", "second") == "better"

    @property
    def first(self) -> Interval:
        return self.comparison.model("first").score

    @property
    def difference(self) -> Interval:
        """The first less the second, whichever the table has first."""
        pair: PairResult = self.comparison.pairs[0]
        value, low, high = pair.difference.value, pair.difference.low, pair.difference.high
        return pair.difference if pair.one == "first" else Interval(-value, -high, -low)


def compared(world: World, seed: int) -> Outcome:
    """One simulated comparison of shares of right answers."""
    first, second = world.answers(np.random.default_rng(seed))
    return Outcome(judged({"first": first, "second": second}))


def compared_spans(world: World, seed: int) -> Outcome:
    """The same where sentences have none to four spans, and a span that is missed or wrong is one of a sentence.

    Of n spans that are true, as many are said, and a share of them is right: then F1 is that share.
    """
    draws = np.random.default_rng(seed)
    words = World(world.gap, world.spread, world.seeds, 4 * world.rows, world.accuracy).answers(draws)
    there = np.arange(4) < draws.integers(0, 5, world.rows)[:, None]  # [N,4]
    return Outcome(
        judged({name: _spans(each, there) for name, each in zip(("first", "second"), words, strict=True)}, Spans())
    )


def _spans(answers: np.ndarray, there: np.ndarray) -> np.ndarray:
    right = (answers[..., 0].reshape(len(answers), *there.shape) * there).sum(axis=-1)  # [K,N]
    every = np.broadcast_to(there.sum(axis=-1), right.shape)
    return np.stack([right, every, every], axis=-1).astype(np.float64)


def covers(found: Interval, truth: float) -> bool:
    return found.low <= truth <= found.high


OF_MODEL, OF_SEED = 0.026, 0.087  # variances of an answer's rightness at 80 % that SHARES make


def _hadamard(size: int) -> np.ndarray:
    """[size,size] of 1 and -1 with orthogonal columns, the first of ones (Sylvester)."""
    square = np.ones((1, 1))
    while len(square) < size:
        square = np.block([[square, square], [square, -square]])
    return square


class ScoreWorld(NamedTuple):
    """Scores of several models without single answers: a trial costs no resampling.

    What a model and a seed make of the examples is normal, and the resamples are orthogonal columns that have exactly
    these variances, so what is simulated is how the comparison decides, not how it resamples.
    """

    spreads: Sequence[float | None]  # between the seeds of each model; None: all seeds give the same answers
    seeds: int
    rows: int
    gaps: Sequence[float] = ()  # by how much each model is better than 0.8; nothing: all are equal

    def scores(self, draws: np.random.Generator) -> list[ModelScores]:
        """One comparison."""
        count = len(self.spreads)
        of_model, of_seed = ((variance / self.rows) ** 0.5 for variance in (OF_MODEL, OF_SEED))
        columns = _hadamard(1 + count * (1 + self.seeds))
        found = []
        for model, (spread, gap) in enumerate(zip(self.spreads, self.gaps or [0.0] * count, strict=True)):
            own = of_model * draws.standard_normal()
            noise = 0.0 if spread is None else of_seed
            each = ((spread or 0.0) ** 2 + noise**2) ** 0.5 * draws.standard_normal(self.seeds)
            first = 1 + count + model * self.seeds
            moved = of_model * columns[:, 1 + model, None] + noise * columns[:, first : first + self.seeds]
            found.append(ModelScores(0.8 + gap + own + each, 0.8 + gap + own + each + moved))
        return found

    def differences(self, trial: int) -> list[Estimate]:
        """The differences of all pairs in one comparison, the first model's with the others first."""
        scores = self.scores(np.random.default_rng(trial))
        pool = SeedSpread.pooled(scores, largest_variance("accuracy"))
        return [difference(one, other, pool) for one, other in combinations(scores, 2)]

    def shown(self, trial: int) -> list[bool]:
        """Whether each pair's difference is shown, after Holm's correction."""
        return [p < ALPHA for p in holm([one.p() for one in self.differences(trial)])]
