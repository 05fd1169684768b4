"""Numbers against torch's own losses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.tasks.judging import evaluate

Find = Callable[[str], Any]


@pytest.mark.parametrize("kind", ["numbers", "several numbers"])
def test_mse_and_mae_are_those_of_torch(small: Find, kind: str) -> None:
    found = small(kind)
    model, batches = found.model("bag").eval(), found.batches()
    with torch.no_grad():
        said = torch.cat([model(batch.inputs) for batch in batches])
    true = torch.cat([batch.targets for batch in batches])
    metrics = evaluate(found.task, model, batches).metrics
    assert metrics["mse"] == pytest.approx(F.mse_loss(said, true).item(), rel=1e-5)
    assert metrics["mae"] == pytest.approx(F.l1_loss(said, true).item(), rel=1e-5)
    assert metrics["loss"] == metrics["mse"]


def test_the_better_half_counts_as_right(small: Find) -> None:
    found = small("numbers")
    evaluation = evaluate(found.task, found.model("bag"), found.batches(), keep=1_000)
    errors = evaluation.statistics[:, 1]
    right = np.array([one.right for one in evaluation.judged])
    own = np.array([one.statistics[1] for one in evaluation.judged])
    assert right.sum() == -(-len(errors) // 2)
    assert own[right].max() <= own[~right].min()


def test_less_is_better_and_what_is_not_finite_is_never_best(small: Find) -> None:
    metric = small("numbers").task.metric
    assert metric.better(1.0, 2.0)
    assert not metric.better(2.0, 2.0)
    assert not metric.better(float("nan"), None)
    assert metric.better(1e9, None)
