"""The health of layers: numbers are those of what passes them, and a layer that is ill stands out."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.errors import DataError
from seqloom.inspect.health import LayerHealth, health
from seqloom.inspect.layers import heard
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.taps import taps
from seqloom.tasks.task import Task

TEXTS = ("the cat sat on the mat", "a dog ran", "the big house")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


def _readings(subject: Subject) -> list[Reading]:
    return [read(subject, text) for text in TEXTS]


def _of(subject: Subject) -> dict[str, LayerHealth]:
    return {layer.name: layer for layer in health(subject, _readings(subject)).layers}


def test_numbers_are_those_of_what_passes_a_layer(task: Task) -> None:
    subject = subject_of(task, "transformer")
    name = "encoder.layers.0.feed_forward.hidden"
    values = np.concatenate([heard(subject, one, [name])[name][0][0].double() for one in _readings(subject)])
    found = _of(subject)[name]
    assert found.elements == len(values) == 12 and found.width == values.shape[1]
    assert (found.mean, found.std) == pytest.approx((values.mean(), values.std()))
    assert found.quantiles == pytest.approx(np.quantile(values, (0.05, 0.5, 0.95)).tolist())
    assert found.zeros == (values == 0).mean()


def test_the_gradient_of_a_layer_is_that_of_autograd_a_mean_over_readings(task: Task) -> None:
    subject = subject_of(task, "gru")
    outputs: list[Any] = []
    layer: Any = subject.model.get_submodule("encoder.layers.0.output")
    handle = layer.register_forward_hook(lambda *a: outputs.append(a[2]))
    norms = []
    for reading in _readings(subject):
        said = scores(subject, reading.inputs).amax()
        (slope,) = torch.autograd.grad(said, outputs[-1])
        norms.append(float(slope.norm()))
    handle.remove()
    assert _of(subject)["encoder.layers.0.output"].gradient_norm == pytest.approx(np.mean(norms), rel=1e-5)


def test_dead_and_saturated_units_are_said(task: Task) -> None:
    subject = subject_of(task, "self-attention")
    model: Any = subject.model
    model.encoder.layers[0].feed_forward.inward.bias.data.fill_(-1e6)
    (ill,) = (layer for layer in _of(subject).values() if layer.name.endswith("feed_forward.hidden"))
    assert ill.dead == ill.zeros == 1
    assert (
        "100 % of the units of encoder.layers.0.feed_forward.hidden are dead."
        in health(subject, _readings(subject)).sentences()
    )
    gated = subject_of(task, "lstm")
    mixer: Any = gated.model.get_submodule("encoder.layers.0.mixer")
    mixer.input_bias.data[: mixer.width] = 50.0
    assert _of(gated)["encoder.layers.0.mixer.gates.input"].saturated == 1


def test_a_layer_a_million_times_too_large_stands_out(task: Task) -> None:
    subject = subject_of(task, "transformer")
    with torch.no_grad():
        model: Any = subject.model
        model.encoder.layers[1].feed_forward.inward.weight.mul_(1e6)
    view = health(subject, _readings(subject))
    assert any("encoder.layers.1.feed_forward.hidden: activations" in said for said in view.sentences())
    healthy = subject_of(task, "transformer")
    assert health(healthy, _readings(healthy)).sentences() == ("No layer stands out (3 inputs).",)


def test_every_weight_is_counted_once_and_its_gradient_is_that_of_autograd(task: Task) -> None:
    subject = subject_of(task, "cnn")
    (reading, *_) = _readings(subject)
    view = health(subject, [reading])
    whole = math.sqrt(sum(weight.norm**2 for weight in view.weights))
    squares = [float(weight.detach().double().square().sum()) for weight in subject.model.parameters()]
    assert whole == pytest.approx(math.sqrt(sum(squares)))
    slopes = torch.autograd.grad(scores(subject, reading.inputs).amax(), list(subject.model.parameters()))
    expected = math.sqrt(sum(float(slope.double().square().sum()) for slope in slopes))
    assert math.sqrt(sum(weight.gradient_norm**2 for weight in view.weights)) == pytest.approx(expected, rel=1e-5)


def test_looking_changes_nothing(task: Task) -> None:
    subject = subject_of(task, "bilstm")
    subject.model.train()
    before, draws = copy.deepcopy(subject.model.state_dict()), torch.get_rng_state()
    first, second = (health(subject, _readings(subject)) for _ in range(2))
    assert first == second
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in subject.model.state_dict().items())
    assert all(weight.grad is None for weight in subject.model.parameters())
    assert all(module.training for module in subject.model.modules())
    assert not any(tap._listeners for tap in taps(subject.model).values())


def test_models_without_layers_show_their_weights_and_no_reading_is_refused(task: Task) -> None:
    subject = subject_of(task, "linear")
    view = health(subject, _readings(subject))
    assert view.layers == () and view.weights and view.svg() and view.text()
    with pytest.raises(DataError, match="no input was given"):
        health(subject, [])


def test_a_deep_model_is_drawn_as_colors(task: Task) -> None:
    subject = subject_of(task, "gru")
    view = health(subject, _readings(subject))
    assert {figure.kind for figure in view.figures()} == {"matrix", "bars"}
    deep = type(view)(title="", inputs=1, layers=view.layers * 10, weights=view.weights)
    assert {figure.kind for figure in deep.figures()} == {"heat_map", "bars"}
