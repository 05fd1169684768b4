"""Evaluation: what is kept, what is restored, and how sure a figure is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.errors import DataError
from seqloom.tasks.evaluation import answering, evaluate

Find = Callable[[str], Any]


def test_a_model_answers_without_dropout_and_is_left_as_it_was(small: Find) -> None:
    found = small("csv")
    model = found.model("mlp")
    model.dropout.eval()  # somebody froze a part
    modes = [module.training for module in model.modules()]
    first, second = (evaluate(found.task, model, found.batches()).metrics for _ in range(2))
    assert first == second
    assert [module.training for module in model.modules()] == modes
    assert True in modes and False in modes


def test_with_dropout_on_two_looks_would_differ(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the mode of the model is what makes an evaluation repeatable."""
    found = small("csv")
    model = found.model("mlp").train()
    monkeypatch.setattr(model, "eval", lambda: model)
    first, second = (evaluate(found.task, model, found.batches()).metrics["loss"] for _ in range(2))
    assert first != second


def test_a_model_is_left_as_it_was_when_a_batch_fails(small: Find) -> None:
    found = small("csv")
    model = found.model("mlp").train()
    seen = []

    def fail() -> None:
        with answering(model):
            seen.append((model.training, torch.is_grad_enabled()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [(False, False)]
    assert (model.training, torch.is_grad_enabled()) == (True, True)


def test_at_most_so_many_examples_are_kept_and_the_order_of_batches_does_not_matter(small: Find) -> None:
    found = small("csv")
    model, batches = found.model("bag"), found.batches()
    assert len(batches) > 1
    forwards, backwards = (evaluate(found.task, model, some, keep=4) for some in (batches, batches[::-1]))
    assert len(forwards.examples) == 4
    assert [one.id for one in forwards.examples] == [one.id for one in backwards.examples]
    assert len(forwards.statistics) == len(found.prepared.splits["dev"])


def test_nothing_to_judge_is_refused(small: Find) -> None:
    found = small("csv")
    with pytest.raises(DataError, match="no examples to evaluate"):
        evaluate(found.task, found.model("bag"), [])


def test_intervals_hold_the_figure_and_are_the_same_for_the_same_seed(small: Find) -> None:
    found = small("csv")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    found_twice = [evaluation.intervals(found.task, resamples=200) for _ in range(2)]
    assert found_twice[0] == found_twice[1] != evaluation.intervals(found.task, resamples=200, seed=1)
    for name, (low, high) in found_twice[0].items():
        assert low <= evaluation.metrics[name] <= high


@pytest.mark.parametrize("kind", ["csv", "labels", "numbers", "conll", "text", "parallel"])
def test_metrics_of_many_sums_at_once_are_those_of_each(small: Find, kind: str) -> None:
    task = small(kind).task
    nothing = task.summed(np.zeros((0, task.statistics)))
    sums = np.abs(np.random.default_rng(0).normal(size=(5, 2, len(nothing))))
    whole = task.measure(sums)
    assert {name: values.shape for name, values in whole.items()} == dict.fromkeys(whole, (5, 2))
    for name, value in task.measure(sums[3, 1]).items():
        assert value == whole[name][3, 1]
    assert all(np.isfinite(value) for value in task.measure(nothing).values())
