"""Gradients by distance and depth are those of autograd, units that do nothing are counted, and nothing is changed."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from diagnosis_common import BareTask
from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import ConvolutionConfig, LstmConfig, RnnConfig
from seqloom.inspect import flow as flow_module
from seqloom.inspect.flow import Depth, depths, flow, flow_drawn, flows
from seqloom.inspect.health import units
from seqloom.nn.types import Batch, Padded

TASK: Any = BareTask()
FAMILIES = ["rnn", "gru", "lstm", "bilstm", "cnn", "transformer", "linear-attention", "window", "bag"]


def classifier(family: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return recipes.classifier(family, inputs=TokensConfig(vocab_size=20), num_classes=4, size="nano").build()


def batch(rows: int = 6, time: int = 24) -> Batch[Any, Any]:
    draws = torch.Generator().manual_seed(1)
    lengths = torch.randint(time // 2, time + 1, (rows,), generator=draws)
    tokens = Padded.of(torch.randint(20, (rows, time), generator=draws), lengths)
    return Batch(tokens, torch.randint(4, (rows,), generator=draws))


def rnn(radius: float, width: int = 16, activation: str = "tanh") -> nn.Module:
    """An Elman layer whose matrix from state to state is a rotation times a number."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = RnnConfig(activation=activation).build(width)
        layer.hidden_weight.data = radius * nn.init.orthogonal_(torch.empty(width, width))
        for bias in (layer.input_bias, layer.hidden_bias):
            bias.data.zero_()
    return layer


def test_the_flow_is_the_norm_of_the_jacobian_for_any_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = rnn(0.9, width=100)
    x = torch.randn(1, 5, 100, generator=torch.Generator().manual_seed(0))
    jacobian = torch.autograd.functional.jacobian(lambda values: layer(Padded.of(values)).values[0, -1], x)
    exact = jacobian[:, 0].square().sum(dim=(0, 2)).sqrt().flip(0)  # [time], by distance
    measured = flow(layer, Padded.of(x))
    assert measured.norms == pytest.approx(exact.tolist(), rel=1e-4) and measured.probes == 0
    assert flow(layer, Padded.of(x), seed=1) == measured
    assert "random vectors" not in flow_drawn([measured]).caption
    monkeypatch.setattr(flow_module, "EXACT", 1)
    estimated = flow(layer, Padded.of(x))
    assert estimated.norms == pytest.approx(exact.tolist(), rel=0.15) and estimated.norms != measured.norms
    assert f"estimated from {estimated.probes} random vectors" in flow_drawn([estimated]).caption


@pytest.mark.parametrize("radius", [0.5, 1.0, 1.5])
def test_a_rotation_times_a_number_has_that_number_as_its_factor_and_radius(radius: float) -> None:
    measured = flow(rnn(radius), Padded.of(torch.zeros(2, 30, 16)))  # at zero the slope of tanh is 1
    assert measured.factor == pytest.approx(radius, rel=1e-3)
    assert measured.radius == pytest.approx(radius, rel=1e-4)


def test_gates_have_no_radius_and_a_convolution_has_a_window() -> None:
    x = Padded.of(torch.randn(2, 30, 12, generator=torch.Generator().manual_seed(0)))
    assert flow(LstmConfig().build(12), x).radius is None
    convolution = flow(ConvolutionConfig(kernel_sizes=(3,)).build(12), x)
    assert convolution.has_window and convolution.left == 0
    faded = flow(rnn(0.01), Padded.of(torch.zeros(2, 60, 16)))
    assert 0 in faded.norms and not faded.has_window  # lost to rounding, step by step


def _looked(model: nn.Module) -> tuple[Any, ...]:
    return flows(TASK, model, [batch()]), depths(TASK, model, batch()), units(TASK, model, [batch()])


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_inside_any_family_changes_nothing(family: str) -> None:
    model = classifier(family).train()
    before, draws = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    first, second = (_looked(model) for _ in range(2))
    assert first == second
    assert first[0] and all(math.isfinite(norm) for one in first[0] for norm in one.norms)
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_packed_documents_are_measured_inside_the_first_one() -> None:
    model = classifier("lstm")
    packed = Padded.of(torch.ones(2, 12, dtype=torch.int64), segments=torch.tensor([[0] * 8 + [1] * 4] * 2))
    heard = flows(TASK, model, [Batch(packed, torch.zeros(4, dtype=torch.int64))])
    assert {len(one.norms) for one in heard} <= {8, 12}


def test_the_gradient_by_layer_is_that_of_autograd() -> None:
    model, one = classifier("transformer").eval(), batch()
    (measured,) = depths(TASK, model, one)
    outputs = []
    handles = [layer.output.register_forward_hook(lambda *a: outputs.append(a[2])) for layer in model.encoder.layers]
    loss = model.loss(one).mean
    for handle in handles:
        handle.remove()
    norms = [float(slope.norm()) for slope in torch.autograd.grad(loss, outputs)]
    assert measured.norms == pytest.approx(norms, rel=1e-5)


def test_a_stack_whose_layers_shrink_what_passes_gets_no_gradient_below() -> None:
    model = classifier("rnn")
    for layer in model.encoder.layers[1:]:
        layer.mixer.input_weight.data *= 1e-6
    (measured,) = depths(TASK, model, batch())
    assert isinstance(measured, Depth) and measured.left < 1e-3


# --- units -----------------------------------------------------------------------------------------------------------


def test_dead_units_are_counted() -> None:
    model = classifier("self-attention")
    feed_forward = model.encoder.layers[0].feed_forward
    feed_forward.inward.bias.data[: feed_forward.inward.out_features * 3 // 4] = -1e6
    (found,) = (one for one in units(TASK, model, [batch(rows=20)]) if one.name.endswith("feed_forward.hidden"))
    assert 0.75 <= found.dead < 1 and found.saturated == 0


@pytest.mark.parametrize("bias", [-50.0, 50.0])
def test_saturated_gates_are_counted_at_both_ends(bias: float) -> None:
    model = classifier("lstm")
    width = model.encoder.layers[0].mixer.width
    model.encoder.layers[0].mixer.input_bias.data[3 * width :] = bias  # show
    found = {one.name: one for one in units(TASK, model, [batch(rows=20)])}
    assert found["encoder.layers.0.mixer.gates.output"].saturated == 1
    assert found["encoder.layers.0.mixer.gates.input"].saturated == 0


def test_saturated_states_of_an_elman_network_are_counted() -> None:
    model = classifier("rnn")
    model.encoder.layers[0].mixer.input_bias.data += 50.0
    found = {one.name: one for one in units(TASK, model, [batch(rows=20)])}
    assert found["encoder.layers.0.mixer.hidden"].saturated == 1
