"""Rows 4, 6 and 13 of the table of concepts: optimizers, regularization, and truncated back-propagation, by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom.config.heads import NumberHeadConfig
from seqloom.config.inputs import VectorsConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.training import AdamConfig, AdamWConfig, AnyOptimizer, ConstantConfig, SgdConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.training.devices import Alone, Device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update
from update_common import HERE, Asked

FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}  # a step divides by a number of float32, whatever the weights are


def linear_regression() -> nn.Module:
    """A map from three numbers to one, the input's own map being the identity and held fast."""
    encoder = EncoderConfig(width=3, input=VectorsConfig(size=3))
    model = SequenceModelConfig(encoder=encoder, head=NumberHeadConfig()).build()
    with torch.no_grad():
        model.encoder.input.widen.weight.copy_(torch.eye(3))
        model.encoder.input.widen.bias.zero_()
    model.encoder.requires_grad_(False)
    return model.to(HERE)


class Vector(nn.Module):
    """One weight for each slope that is given: the loss is their product."""

    def __init__(self, *start: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))  # two axes: a matrix, so that it decays

    def loss(self, batch: Batch) -> Loss:
        return Loss((self.weight * batch.targets).sum(), torch.ones(()))


def stepped(model: nn.Module, optimizer: AnyOptimizer, batches: list[Batch], *, lr: float, clip: float = 0.0) -> None:
    config = TrainingConfig(optimizer=optimizer, schedule=ConstantConfig(), lr=lr, clip_norm=clip)
    update, run_state = Update(Asked(), model, config, Alone(), Device(HERE)), TrainingState()
    for batch in batches:
        update.step(batch, carried=False, run_state=run_state, lr=lr)
        run_state.step += 1


def slopes(*values: list[float]) -> list[Batch]:
    return [Batch(torch.zeros(1, 1), torch.tensor([value])) for value in values]


# --- 4: SGD, momentum, Adam, AdamW -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_row_04_sgd_on_linear_regression_reaches_the_closed_form() -> None:
    x, noise = torch.randn(40, 3), 0.1 * torch.randn(40, 1)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 + noise
    with_one = torch.cat([x, torch.ones(40, 1)], dim=1)
    closed = torch.linalg.solve(with_one.T @ with_one, with_one.T @ y)[:, 0]
    model = linear_regression()
    stepped(model, SgdConfig(momentum=0.0), [Batch(Padded.of(x[:, None]), y)] * 300, lr=0.1)
    found = torch.cat([model.head.linear.weight[0], model.head.linear.bias]).detach()
    assert_close(found, closed, **FLOAT32)


def test_row_04_minibatches_on_average_have_the_gradient_of_the_whole() -> None:
    x, y = torch.randn(12, 3), torch.randn(12, 1)
    model = linear_regression()
    whole = torch.autograd.grad(model.loss(Batch(Padded.of(x[:, None]), y)).mean, model.head.linear.weight)[0]
    parts = []
    for rows in torch.arange(12).view(4, 3):
        model = model.requires_grad_(True)
        stepped(model, SgdConfig(momentum=0.0), [Batch(Padded.of(x[rows, None]), y[rows])], lr=0.0)
        parts.append(model.head.linear.weight.grad.clone())
    assert_close(torch.stack(parts).mean(dim=0), whole, **FLOAT32)


@pytest.mark.parametrize("nesterov", [False, True])
def test_row_04_momentum_adds_up_slopes(nesterov: bool) -> None:
    g, rate, mu = [[1.0, -2.0], [0.5, 1.0], [2.0, 0.0]], 0.1, 0.9
    model = Vector(1.0, 1.0)
    stepped(model, SgdConfig(momentum=mu, nesterov=nesterov), slopes(*g), lr=rate)
    w, v = torch.ones(2), torch.zeros(2)
    for slope in torch.tensor(g):
        v = mu * v + slope
        w = w - rate * (slope + mu * v if nesterov else v)
    assert_close(model.weight[0].detach(), w, **FLOAT32)


@pytest.mark.parametrize("decoupled", [False, True])
def test_row_04_adam_follows_its_paper_and_adamw_its_own(decoupled: bool) -> None:
    g, rate, decay = [[1.0, -2.0], [0.5, 1.0], [2.0, 0.0], [-1.0, 3.0]], 0.1, 0.2
    model = Vector(1.0, -1.0)
    stepped(model, (AdamWConfig if decoupled else AdamConfig)(weight_decay=decay), slopes(*g), lr=rate)
    w, m, v = torch.tensor([1.0, -1.0]), torch.zeros(2), torch.zeros(2)
    for step, raw in enumerate(torch.tensor(g), start=1):
        slope = raw if decoupled else raw + decay * w
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        direction = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        w = w - rate * direction - (rate * decay * w if decoupled else 0)
    assert_close(model.weight[0].detach(), w, **FLOAT32)


# --- 6: L2 and decoupled decay ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_row_06_l2_on_linear_regression_reaches_the_ridge_and_leaves_the_bias_alone() -> None:
    x, y, decay = torch.randn(40, 3), torch.randn(40, 1), 0.3
    model = linear_regression()
    stepped(model, SgdConfig(momentum=0.0, weight_decay=decay), [Batch(Padded.of(x[:, None]), y)] * 400, lr=0.1)
    with_one = torch.cat([x, torch.ones(40, 1)], dim=1)
    ridge = torch.diag(torch.tensor([decay, decay, decay, 0.0])) / 2  # the slope of the squared error has a 2
    closed = torch.linalg.solve(with_one.T @ with_one / 40 + ridge, with_one.T @ y / 40)[:, 0]
    found = torch.cat([model.head.linear.weight[0], model.head.linear.bias]).detach()
    assert_close(found, closed, **FLOAT32)


def test_row_06_decay_through_adams_moments_does_not_know_its_own_strength_and_beside_them_it_does() -> None:
    """Coupled, Adam divides the decay by its own size: ten times the decay moves a weight as far (deck D's trap)."""
    moved = {}
    for kind in (AdamConfig, AdamWConfig):
        for decay in (0.1, 1.0):
            model = Vector(1.0)
            stepped(model, kind(weight_decay=decay), slopes([0.0]), lr=0.01)
            moved[kind, decay] = 1 - model.weight.item()
    assert moved[AdamConfig, 1.0] == pytest.approx(moved[AdamConfig, 0.1], rel=1e-4)
    assert moved[AdamWConfig, 1.0] == pytest.approx(10 * moved[AdamWConfig, 0.1], rel=1e-4)


# --- 13: clipping; truncation is in tests/training/test_truncation.py ------------------------------------------------


def test_row_13_a_clipped_step_is_as_long_as_allowed_in_the_same_direction() -> None:
    model = Vector(0.0, 0.0)
    stepped(model, SgdConfig(momentum=0.0), slopes([30.0, -40.0]), lr=1.0, clip=5.0)
    assert_close(model.weight[0].detach(), torch.tensor([-3.0, 4.0]), **FLOAT32)


def test_row_13_the_truncated_gradient_of_a_recurrence_equals_the_hand_unrolled_one() -> None:
    """h_t = w h_{t-1} + x_t, loss h_4: truncated after two steps, dh_4/dw = h_3 + w h_2, and not + w^2 h_1 + ..."""

    class Recurrence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(0.5))

        def initial_state(self, rows: int) -> tuple[Tensor]:
            return (torch.zeros(rows),)

        def continued_loss(self, batch: Batch, state: tuple[Tensor] | None) -> tuple[Loss, tuple[Tensor]]:
            h = torch.zeros(1) if state is None else state[0]
            for x in batch.targets[0]:
                h = self.w * h + x
            return Loss(h.sum(), torch.ones(())), (h,)

    class Reading(Asked):
        def loss(self, model: Recurrence, batch: Batch, state: tuple[Tensor] | None) -> tuple[Loss, tuple[Tensor]]:
            return model.continued_loss(batch, state)

    model = Recurrence().to(HERE)
    config = TrainingConfig(optimizer=SgdConfig(momentum=0.0), clip_norm=0.0)
    update = Update(Reading(), model, config, Alone(), Device(HERE))
    for number, batch in enumerate(slopes([1.0, 2.0], [3.0, 4.0])):
        update.step(batch, carried=number > 0, run_state=TrainingState(), lr=0.0)
    h1 = 1.0
    h2 = 0.5 * h1 + 2.0
    h3 = 0.5 * h2 + 3.0
    assert_close(model.w.grad.item(), h3 + 0.5 * h2, **ROUNDING)
    assert model.w.grad.item() != h3 + 0.5 * h2 + 0.25 * h1
