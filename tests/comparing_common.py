"""Simulated comparisons: two models with known scores, seeds that differ, and examples that are hard for both.

An answer is right if a latent number is below a threshold: a part of it belongs to the example, a part to the model
and the example, and a part to the seed and the example, so that seeds of one model err on much the same rows. The
answers become judged runs, and the referee itself weighs them, as it does after training.
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from seqloom.comparing.results import Comparison, Interval, PairResult
from seqloom.comparing.running import Facts, Judgement
from seqloom.comparing.weighing import Weighed
from seqloom.tasks.contract import Metric

SHARES = (0.5, 0.2, 0.3)  # of the example, of the model on it, of the seed on it
FACTS: dict[str, Any] = {"data": "simulated", "part": "dev", "budget": "nothing", "baseline": "small"}


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


def judgement(model: str, seed: int, statistics: np.ndarray, metric: str = "accuracy") -> Judgement:
    facts = Facts(
        model=model,
        seed=seed,
        part="dev",
        task="classify",
        metric=metric,
        metrics={metric: float(accuracy(statistics.sum(axis=0))), "broken": None},
        rows=len(statistics),
        parameters=100 if model == "small" else 10_000,
        steps=7,
        symbols=1000,
        seconds=1.5,
        ended="done",
        device="cpu",
    )
    return Judgement(facts, np.arange(len(statistics)), statistics)


def judged(tables: dict[str, np.ndarray], task: Any = None, lengths: np.ndarray | None = None) -> Comparison:
    """What the referee says of the statistics [K,N,S] of each model."""
    runs = {name: [judgement(name, seed, rows) for seed, rows in enumerate(table)] for name, table in tables.items()}
    first = next(iter(tables.values()))
    given = np.full(first.shape[1], 7) if lengths is None else lengths
    return Weighed(runs, task or Shares()).comparison(given, seeds=len(first), **FACTS)


class Outcome(NamedTuple):
    """A comparison of `first`, which is better by the gap, and `second`."""

    comparison: Comparison

    @property
    def shown(self) -> bool:
        return self.comparison.verdict("first", "second") != "no difference shown"

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
