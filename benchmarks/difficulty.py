"""The built-in datasets: train the models named for each, with three seeds, and compare with the required scores.

    python benchmarks/difficulty.py            the whole table, about an hour on one core
    python benchmarks/difficulty.py questions  one dataset

Scores are on a test set that was drawn after the settings were fixed; the worst seed must meet the requirement.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fitting_common import (
    Plan,
    fit_adding,
    fit_classes,
    fit_dates,
    fit_grammar,
    fit_movies,
    fit_pictures,
)

SEEDS = (0, 1, 2)


class Row(NamedTuple):
    """A dataset, a model, the score that every seed must reach, and the function that trains and returns the score."""

    name: str
    model: str
    bound: str  # ">= 0.95", "<= 0.3", or "" for no requirement
    fit: Callable[..., float]


def _classes(name: str, family: str, bound: str, plan: Plan, width: int | None = None, count: int | None = None) -> Row:
    return Row(name, family, bound, partial(fit_classes, name, family, plan, width=width, count=count))


ROWS = (
    _classes("questions", "bag", "<= 0.55", Plan(1e-2, 3)),
    *(_classes("questions", family, ">= 0.98", Plan(1e-2, 5)) for family in ("cnn", "gru", "lstm")),
    _classes("questions", "transformer", ">= 0.98", Plan(1e-2, 8)),
    _classes("reviews", "linear", "<= 0.8", Plan(1e-2, 5)),
    _classes("reviews", "bag", "<= 0.8", Plan(1e-2, 5)),
    _classes("reviews", "lstm", ">= 0.95", Plan(5e-3, 10), width=64),
    _classes("reviews", "transformer", ">= 0.95", Plan(2e-3, 8), width=64),
    Row("movies", "bilstm-crf", ">= 0.95", partial(fit_movies, Plan(1e-2, 5))),
    _classes("homographs", "bag", "", Plan(1e-2, 5)),
    _classes("homographs", "gru", ">= 0.95", Plan(5e-3, 5), width=48),
    Row("pictures", "conv2d", ">= 0.95", partial(fit_pictures, "conv2d", Plan(1e-2, 10))),
    Row("pictures", "patch-transformer", ">= 0.95", partial(fit_pictures, "patch-transformer", Plan(5e-3, 20))),
    Row("grammar", "bag, bits above floor", "", partial(fit_grammar, "bag", Plan(1e-2, 3))),
    Row("grammar", "lstm, bits above floor", "", partial(fit_grammar, "lstm", Plan(1e-2, 10))),
    Row("dates", "seq2seq-dot", ">= 0.98", partial(fit_dates, "seq2seq-dot", Plan(5e-3, 10))),
    _classes("copy", "rnn", "<= 0.3", Plan(2e-3, 4), width=64, count=5_000),
    _classes("copy", "transformer", ">= 0.95", Plan(2e-3, 8), width=64, count=5_000),
    _classes("brackets", "bag", "", Plan(1e-2, 2)),
    _classes("brackets", "lstm", "", Plan(5e-3, 10), width=64),
    _classes("arithmetic", "lstm", "", Plan(5e-3, 10), width=64),
    Row("adding", "gru, T = 30, error", "<= 0.01", partial(fit_adding, "gru", Plan(5e-3, 10))),
)


def meets(bound: str, scores: list[float]) -> str:
    """Return whether the worst seed meets the requirement."""
    if not bound:
        return "-"
    sign, _, number = bound.partition(" ")
    worst = min(scores) if sign == ">=" else max(scores)
    return "yes" if (worst >= float(number) if sign == ">=" else worst <= float(number)) else "NO"


def main(wanted: list[str]) -> None:
    """Print one line per dataset and model."""
    torch.set_num_threads(1)
    print(f"{'set':<12} {'model':<24} {'required':>9} {'met':>5}  {'seconds':>7}  scores of the seeds {SEEDS}")
    for row in ROWS:
        if wanted and row.name not in wanted:
            continue
        began = time.process_time()
        scores = [row.fit(seed=seed) for seed in SEEDS]
        seconds = (time.process_time() - began) / len(SEEDS)
        listed = "  ".join(f"{one:.4f}" for one in scores)
        print(
            f"{row.name:<12} {row.model:<24} {row.bound:>9} {meets(row.bound, scores):>5}  {seconds:>7.1f}  {listed}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
