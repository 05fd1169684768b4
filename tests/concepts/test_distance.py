"""Row 30 of the table of concepts: an Elman network forgets over a distance that attention reaches in one step.

The task is to name the token that was shown so many steps ago. Both families are trained at each distance and judged
on it, on as many tokens of the same rows, by the comparison of `seqloom compare`.
"""

from pathlib import Path

import pytest
import torch

from seqloom.config.data import DataConfig
from seqloom.experiments.compare.distances import Distances, run_distances
from seqloom.experiments.compare.plan import Budget, ComparisonPlan

CHANCE = 1 / 8  # there are eight tokens
ROWS, STEPS, BATCH, RATE = 3_000, 240, 1_000, 0.01  # 220 steps were enough, and 150 were not, for attention over 30


def refereed(out: Path, *distances: int) -> Distances:
    """The comparison at each distance."""
    torch.set_default_dtype(torch.float32)
    plan = ComparisonPlan(
        data=DataConfig(train=("copy",)),
        out=str(out),
        models=("rnn", "transformer"),
        budget=Budget(kind="tokens", amount=STEPS * BATCH),
        seeds=1,
        size="nano",
        settings={
            "lr": RATE,
            "batching": {"kind": "by-length", "batch_tokens": BATCH},
            "schedule": {"kind": "linear", "warmup": STEPS // 10},
            "patience": 0,
            "validate_every": STEPS,
        },
        model_settings={"dropout": 0.0},
        device="cpu",
    )
    *_, found = run_distances(plan, distances, rows=ROWS)
    assert isinstance(found, Distances)
    return found


def scores(found: Distances, name: str) -> list[float]:
    """The accuracy of a model at each distance, the nearest first."""
    return [one.model(name).score.value for one in found.comparisons]


@pytest.mark.slow
def test_row_30_the_elman_network_falls_with_distance_where_attention_does_not(tmp_path: Path) -> None:
    found = refereed(tmp_path, 6, 30)
    near, far = scores(found, "rnn")
    assert near >= 0.95
    assert far <= 2 * CHANCE
    assert min(scores(found, "transformer")) >= 0.95
