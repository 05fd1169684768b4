"""Rows 1 and 2 of the table of concepts: gradients and losses, as the lectures work them out."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, NextTokenHeadConfig, NumberHeadConfig
from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.config.mixers import AttentionConfig, LstmConfig
from seqloom.config.models import EncoderDecoderConfig, SequenceModelConfig
from seqloom.config.stacks import (
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    EncoderConfig,
    FeedForwardConfig,
)
from seqloom.nn.models import SequenceModel
from seqloom.nn.ops.losses import binary_cross_entropy, cross_entropy, squared_error
from seqloom.nn.stacks import FeedForward
from seqloom.nn.types import Batch, Padded, Pair

SLOPES = {"rtol": 1e-7, "atol": 1e-8}  # float64, central differences


def leaves(*values: float) -> list[Tensor]:
    return [torch.tensor(float(value), requires_grad=True) for value in values]


def assert_slopes(function: Callable[[], Tensor], *tensors: Tensor) -> None:
    """The gradient of a number by each tensor has the tensor's shape, and each entry equals its central difference."""
    gradients = torch.autograd.grad(function(), tensors)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        assert gradient.shape == tensor.shape
        differences = torch.zeros_like(gradient)
        with torch.no_grad():
            for place in itertools.product(*map(range, tensor.shape)):
                kept = tensor[place].item()
                tensor[place] = kept + 1e-5
                higher = function().item()
                tensor[place] = kept - 1e-5
                differences[place] = (higher - function().item()) / 2e-5
                tensor[place] = kept
        assert_close(gradient, differences, **SLOPES)


def network(head: Any, *, size: int, hidden: tuple[int, ...] = (), activation: str = "relu") -> SequenceModel:
    """A network over one vector of numbers: hidden layers and a head, the map of the input being the identity."""
    encoder = EncoderConfig(width=size, input=VectorsConfig(size=size))
    model = SequenceModelConfig(encoder=encoder, hidden=hidden, activation=activation, head=head).build()
    with torch.no_grad():
        model.encoder.input.widen.weight.copy_(torch.eye(size))
        model.encoder.input.widen.bias.zero_()
    model.encoder.requires_grad_(False)
    x = torch.randn(2, size)
    assert torch.equal(model.encoder(Padded.of(x[:, None])).values[:, 0], x)
    return model


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


# --- 1: forward, loss, backward, update ------------------------------------------------------------------------------


def test_row_01_c_times_a_plus_2b_has_the_gradients_that_deck_a_derives() -> None:
    a, b, c = leaves(3, 1, -2)
    d = 2 * b
    e = a + d
    loss = c * e
    assert (d.item(), e.item(), loss.item()) == (2, 5, -10)
    assert [slope.item() for slope in torch.autograd.grad(loss, [a, b, c, d, e])] == [-2, -4, 5, -2, -2]


def test_row_01_the_gradients_of_x_plus_y_times_z_are_z_z_and_x_plus_y() -> None:
    x, y, z = leaves(-2, 5, -4)
    assert [slope.item() for slope in torch.autograd.grad((x + y) * z, [x, y, z])] == [-4, -4, 3]
    assert_slopes(lambda: (x + y) * z, x, y, z)


def test_row_01_the_two_layer_net_of_deck_a_has_the_gradients_of_its_slides() -> None:
    model = network(LabelsHeadConfig(num_labels=1), size=3, hidden=(4,), activation="relu")
    x, y = torch.randn(1, 3), torch.tensor([[1.0]])
    batch = Batch(Padded.of(x[:, None]), y)
    assert_slopes(lambda: model.loss(batch).total, *trained(model))
    (first,), second = model.hidden, model.head.linear
    z1 = x @ first.weight.T + first.bias
    a1 = z1.clamp(min=0)
    a = 1 / (1 + (-(a1 @ second.weight.T + second.bias)).exp())
    by_z2 = a - y
    by_z1 = by_z2 @ second.weight * (z1 > 0)
    found = torch.autograd.grad(model.loss(batch).total, [first.weight, first.bias, second.weight, second.bias])
    assert_close(list(found), [by_z1.T @ x, by_z1[0], by_z2.T @ a1, by_z2[0]], **ROUNDING)


def test_row_01_the_two_layer_net_of_deck_d_has_the_gradients_of_its_slides() -> None:
    model = network(NumberHeadConfig(), size=3, hidden=(4,), activation="sigmoid")
    x, y = torch.randn(1, 3), torch.randn(1, 1)
    batch = Batch(Padded.of(x[:, None]), y)
    assert_slopes(lambda: model.loss(batch).total, *trained(model))
    (first,), second = model.hidden, model.head.linear
    z1 = 1 / (1 + (-(x @ first.weight.T + first.bias)).exp())
    z2 = z1 @ second.weight.T + second.bias
    assert_close(model.loss(batch).total, ((z2 - y) ** 2).sum(), **ROUNDING)
    by_z2 = 2 * (z2 - y)
    by_h1 = by_z2 @ second.weight * z1 * (1 - z1)
    found = torch.autograd.grad(model.loss(batch).total, [first.weight, first.bias, second.weight, second.bias])
    assert_close(list(found), [by_h1.T @ x, by_h1[0], by_z2.T @ z1, by_z2[0]], **ROUNDING)


def test_row_01_linear_regression_has_the_gradients_minus_2r_and_minus_2r_x() -> None:
    model = network(NumberHeadConfig(), size=3)
    x, y = torch.randn(1, 3), torch.randn(1, 1)
    batch = Batch(Padded.of(x[:, None]), y)
    r = (y - model(batch.inputs)).detach()
    by_w, by_b = torch.autograd.grad(model.loss(batch).total, [model.head.linear.weight, model.head.linear.bias])
    assert_close(by_b, -2 * r[0], **ROUNDING)
    assert_close(by_w, -2 * r * x, **ROUNDING)


def test_row_01_a_gradient_is_the_sum_over_paths_of_the_products_over_edges() -> None:
    first, second = (FeedForward(FeedForwardConfig(hidden=4, activation="tanh"), 3) for _ in range(2))
    a = torch.randn(3)
    b = first(a)

    def edges(layer: FeedForward, values: Tensor) -> list[Tensor]:
        """What each edge of the layer multiplies a change by: into the hidden units, through them, out of them."""
        slope = 1 - torch.tanh(layer.inward(values)) ** 2
        return [layer.inward.weight, slope.diag(), layer.outward.weight]

    steps = [*edges(first, a), *edges(second, b)]
    jacobian = torch.autograd.functional.jacobian(lambda value: second(first(value)), a)
    for end, start in itertools.product(range(3), range(3)):
        through = itertools.product(*(range(len(step)) for step in steps[:-1]))
        paths = [(start, *units, end) for units in through]
        products = [math.prod(step[path[i + 1], path[i]].item() for i, step in enumerate(steps)) for path in paths]
        assert_close(jacobian[end, start].item(), math.fsum(products), **ROUNDING)


def test_row_01_every_gradient_has_the_shape_of_its_value() -> None:
    tokens = TokensConfig(vocab_size=7)
    layers = (DecoderBlockConfig(mixer=AttentionConfig(num_heads=2), num_heads=2),)
    model = EncoderDecoderConfig(
        encoder=EncoderConfig(width=4, input=tokens, layers=(BlockConfig(mixer=LstmConfig()),)),
        decoder=ConditionedDecoderConfig(width=4, input=tokens, layers=layers, position="shaw"),
        head=NextTokenHeadConfig(vocab_size=7),
    ).build()
    source, target = (Padded.of(torch.randint(7, (3, 5)), torch.tensor([5, 2, 4])) for _ in range(2))
    model.loss(Batch(Pair(source, target), torch.randint(7, (3, 5)))).total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.shape == weight.shape, name


def test_row_01_one_update_subtracts_rate_times_gradient_and_lowers_the_loss() -> None:
    model = network(ClassHeadConfig(num_classes=3), size=4, hidden=(5,), activation="tanh")
    batch = Batch(Padded.of(torch.randn(8, 1, 4)), torch.randint(3, (8,)))
    before = model.loss(batch).mean
    before.backward()
    expected = [weight.detach() - 0.1 * weight.grad for weight in trained(model)]
    torch.optim.SGD(trained(model), lr=0.1).step()
    assert_close(trained(model), expected, **ROUNDING)
    assert model.loss(batch).mean < before


def test_row_01_the_slope_of_relu_at_zero_is_0_here_and_1_in_deck_a() -> None:
    z = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(torch.relu(z).sum(), z)
    printed = torch.tensor([0.0, 1.0, 1.0])  # "1 for z >= 0"
    assert slope.tolist() == [0, 0, 1]
    assert (slope != printed).tolist() == [False, True, False]


# --- 2: losses and a - y ---------------------------------------------------------------------------------------------


def test_row_02_each_loss_equals_its_formula() -> None:
    z = torch.randn(6, 4)
    y = torch.randint(4, (6,))
    softmax = z.exp() / z.exp().sum(dim=1, keepdim=True)
    by_hand = -sum(softmax[n, y[n]].log() for n in range(6))
    assert_close(cross_entropy(z, y).total, by_hand, **ROUNDING)
    a, b = 1 / (1 + (-z).exp()), torch.randint(2, (6, 4)).double()
    assert_close(binary_cross_entropy(z, b).total, -(b * a.log() + (1 - b) * (1 - a).log()).sum(), **ROUNDING)
    assert_close(squared_error(z, a).total, ((z - a) ** 2).sum(), **ROUNDING)


def test_row_02_the_slope_of_every_loss_by_its_scores_is_a_minus_y() -> None:
    z = torch.randn(6, 4, requires_grad=True)
    y, b, numbers = torch.randint(4, (6,)), torch.randint(2, (6, 4)).double(), torch.randn(6, 4)
    (by_softmax,) = torch.autograd.grad(cross_entropy(z, y).total, z)
    assert_close(by_softmax, z.softmax(dim=1) - F.one_hot(y, 4), rtol=0, atol=1e-15)
    (by_logistic,) = torch.autograd.grad(binary_cross_entropy(z, b).total, z)
    assert_close(by_logistic, z.sigmoid() - b, rtol=0, atol=1e-15)
    (by_square,) = torch.autograd.grad(squared_error(z, numbers).total, z)
    assert_close(by_square, 2 * (z - numbers), rtol=0, atol=1e-15)


def test_row_02_a_minus_y_reaches_the_bias_of_every_head() -> None:
    x = Padded.of(torch.randn(3, 2, 5), torch.tensor([2, 1, 2]))
    real = x.valid[:, :, None]
    classes, numbers = torch.randint(4, (3, 2)), torch.randn(3, 2, 4)
    one_hot = F.one_hot(classes, 4)
    cases: list[tuple[Any, Tensor, Callable[[Tensor], Tensor]]] = [
        (ClassHeadConfig(num_classes=4).build(5), classes, lambda z: z.softmax(dim=-1) - one_hot),
        (NextTokenHeadConfig(vocab_size=4, tied=False).build(5), classes, lambda z: z.softmax(dim=-1) - one_hot),
        (LabelsHeadConfig(num_labels=4).build(5), one_hot.double(), lambda z: z.sigmoid() - one_hot),
        (NumberHeadConfig(size=4).build(5), numbers, lambda z: 2 * (z - numbers)),
    ]
    for head, targets, slope in cases:
        bias = head.bias if hasattr(head, "bias") else head.linear.bias
        loss = head.loss(x, targets)
        assert loss.weight == 5 * targets[0, 0].numel()  # five real elements, each with one target or four
        (found,) = torch.autograd.grad(loss.total, bias)
        assert_close(found, (slope(head(x).values) * real).sum(dim=(0, 1)), **ROUNDING)
