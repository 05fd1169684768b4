"""Numbers against torch and scipy, in the units of the data."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from sklearn.metrics import mean_squared_error, r2_score

from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import task_of

Find = Callable[..., Any]


def answers(found: Any, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What is said and what is true, [N,K] each."""
    said = [torch.tensor([one.numbers for one in found.task.predict(model, batch.inputs)]) for batch in found.batches()]
    return torch.cat(said), torch.cat([batch.targets for batch in found.batches()])


@pytest.mark.parametrize("kind", ["numbers", "several numbers"])
def test_mse_mae_and_spearman_are_those_of_torch_and_scipy(small: Find, kind: str) -> None:
    found = small(kind)
    model = found.model("bag").eval()
    said, true = answers(found, model)
    metrics = evaluate(found.task, model, found.batches()).metrics
    assert metrics["mse"] == pytest.approx(F.mse_loss(said, true).item(), rel=1e-5)
    assert metrics["mae"] == pytest.approx(F.l1_loss(said, true).item(), rel=1e-5)
    columns = zip(said.T.numpy(), true.T.numpy(), strict=True)
    assert metrics["spearman"] == pytest.approx(np.mean([spearmanr(*pair).statistic for pair in columns]))


@pytest.mark.parametrize("kind", ["numbers", "several numbers"])
def test_rmse_and_r2_are_those_of_scikit_learn_with_intervals_that_hold_them(small: Find, kind: str) -> None:
    found = small(kind)
    model = found.model("bag").eval()
    said, true = (one.double().numpy() for one in answers(found, model))
    evaluation = evaluate(found.task, model, found.batches())
    assert evaluation.metrics["rmse"] == pytest.approx(mean_squared_error(true, said) ** 0.5, rel=1e-5)
    assert evaluation.metrics["r2"] == pytest.approx(r2_score(true, said), rel=1e-5)
    intervals = evaluation.intervals(found.task, resamples=100)
    assert all(intervals[name][0] < evaluation.metrics[name] < intervals[name][1] for name in ("rmse", "r2"))


@pytest.mark.slow
@pytest.mark.parametrize("same", [1, 3])
def test_numbers_that_are_all_the_same_have_no_r2(small: Find, same: int) -> None:
    found = small("numbers")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    assert found.task.undefined(evaluation.statistics) == {}
    alike = evaluation.subset(found.task, np.zeros(same, np.int64))
    assert found.task.undefined(alike.statistics) == {"r2": "the expected numbers are all the same"}
    assert "r2" not in alike.intervals(found.task) and np.isfinite(alike.metrics["r2"])


@pytest.mark.parametrize("kind", ["numbers", "several numbers"])
def test_the_loss_of_training_is_the_loss_of_an_evaluation(small: Find, kind: str) -> None:
    found = small(kind)
    model = found.model("bag").eval()
    with torch.no_grad():
        losses = [found.task.loss(model, batch, None)[0] for batch in found.batches()]
    mean = sum(float(one.total) for one in losses) / sum(float(one.weight) for one in losses)
    assert evaluate(found.task, model, found.batches()).metrics["loss"] == pytest.approx(mean, rel=1e-5)


def table(scale: float, shift: float) -> str:
    lines = [f"word{n % 5} and {n % 3},{scale * (n % 5 + n % 3 + 1 / 3) + shift}" for n in range(40)]
    return "\n".join(["text,score", *lines]) + "\n"


def test_numbers_of_any_size_are_learned_alike(written: Find) -> None:
    """A model that answers in its own units has the same loss and the same error, scaled, whatever the units are."""
    plain, large = (written("a.csv", table(*units), table(*units)) for units in ((1, 0), (250, -4000)))
    model = plain.model("bag").eval()
    one, other = (evaluate(small.task, model, small.batches()).metrics for small in (plain, large))
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-3)
    assert other["mae"] == pytest.approx(250 * one["mae"], rel=1e-3)
    assert other["spearman"] == pytest.approx(one["spearman"])


def test_the_units_are_those_of_the_training_part_alone(written: Find) -> None:
    small = written("a.csv", "text,score\na,1\nb,3\n", "text,score\na,100\nb,200\n")
    assert small.task.spec.units == ((2.0, 1.0),)


def test_a_number_that_never_changes_is_no_division_by_nothing(written: Find) -> None:
    small = written("a.csv", "text,score\na b,7\nb c,7\n", "text,score\na,7\nb,7\n")
    metrics = evaluate(small.task, small.model("bag"), small.batches()).metrics
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["spearman"] == 0.0


def test_a_model_without_units_answers_in_those_of_the_data(small: Find) -> None:
    found = small("numbers")
    model, batch = found.model("bag").eval(), found.batches()[0]
    task = task_of(found.task.spec._replace(units=()))
    with torch.no_grad():
        raw = model(batch.inputs)
    assert [list(one.numbers) for one in task.predict(model, batch.inputs)] == raw.tolist()


def test_no_number_is_called_right_or_wrong(small: Find) -> None:
    found = small("numbers")
    evaluation = evaluate(found.task, found.model("bag"), found.batches(), worst=5)
    assert {one.correct for one in (*evaluation.examples, *evaluation.worst)} == {None}


def test_the_order_has_an_interval(small: Find) -> None:
    found = small("numbers")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    low, high = evaluation.intervals(found.task, resamples=100)["spearman"]
    assert low <= evaluation.metrics["spearman"] <= high


def test_pairs_of_texts_have_numbers(written: Find) -> None:
    rows = [{"sentence1": f"a {n % 4}", "sentence2": f"b {n % 3}", "score": n / 10} for n in range(30)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    small = written("a.jsonl", text, text)
    assert (small.prepared.schema.input.name, small.task.name) == ("pair", "regress")
    assert 0 < evaluate(small.task, small.model("cnn"), small.batches()).metrics["mse"] < 100


def test_less_is_better_and_what_is_not_finite_is_never_best(small: Find) -> None:
    metric = small("numbers").task.metric
    assert metric.better(1.0, 2.0)
    assert not metric.better(2.0, 2.0)
    assert not metric.better(float("nan"), None)
    assert metric.better(1e9, None)
