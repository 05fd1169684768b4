"""Optimizers: torch's own numbers, decay only where it belongs, and a step that is held back changes no bit."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.testing import assert_close

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamConfig, AdamWConfig, AnyOptimizer, MuonConfig, SgdConfig
from seqloom.errors import ConfigError
from seqloom.training import muon, optimizers
from seqloom.training.optimizers import apply, build_optimizer, gradients_of, moments_of
from update_common import HERE, PLAIN

ALL: dict[str, AnyOptimizer] = {
    "sgd": SgdConfig(momentum=0.0),
    "momentum": SgdConfig(momentum=0.9, weight_decay=0.1),
    "nesterov": SgdConfig(momentum=0.9, nesterov=True),
    "adam": AdamConfig(weight_decay=0.1),
    "adamw": AdamWConfig(weight_decay=0.1, beta2=0.98),
    "muon": MuonConfig(weight_decay=0.1),
}
RATE = 0.05


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2)).to(HERE)


class Both:
    """Two optimizers that step together."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def theirs(config: AnyOptimizer, model: nn.Module) -> torch.optim.Optimizer | Both:
    """The optimizer as the documentation of torch would have it, not fused."""
    if isinstance(config, MuonConfig):
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        rest = [weight for weight in model.parameters() if weight.ndim == 1]
        decay, fitting = config.weight_decay, "match_rms_adamw"
        return Both(
            torch.optim.Muon(matrices, lr=RATE, weight_decay=decay, momentum=config.momentum, adjust_lr_fn=fitting),
            torch.optim.AdamW(rest, lr=RATE, weight_decay=0.0, foreach=False),
        )
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in model.parameters() if weight.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in model.parameters() if weight.ndim == 1], "weight_decay": 0.0},
    ]
    if isinstance(config, SgdConfig):
        return torch.optim.SGD(groups, lr=RATE, momentum=config.momentum, nesterov=config.nesterov, foreach=False)
    kind = torch.optim.Adam if isinstance(config, AdamConfig) else torch.optim.AdamW
    return kind(groups, lr=RATE, betas=(config.beta1, config.beta2), eps=config.eps, foreach=False)


def slopes(model: nn.Module, number: int) -> None:
    """Give the weights gradients, the same for the same number."""
    generator = torch.Generator("cpu").manual_seed(number)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator, device="cpu").to(HERE)


def numbers(*values: float) -> list[Tensor]:
    return [torch.tensor(value) for value in values]


@pytest.fixture(autouse=True)
def _as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Muon works in bfloat16 on every device, as torch's does."""
    monkeypatch.setattr(muon, "BF16", ("cpu", "cuda"))


@pytest.mark.parametrize("name", ALL)
def test_ten_steps_equal_those_of_torch(name: str) -> None:
    mine, other = network(), network()
    optimizer, reference = build_optimizer(replace(PLAIN, optimizer=ALL[name]), mine), theirs(ALL[name], other)
    for number in range(10):
        slopes(mine, number)
        slopes(other, number)
        for gradient in gradients_of(optimizer):
            gradient.mul_(7)
        apply(optimizer, RATE, *numbers(7.0, 0.0))
        reference.step()
    assert_close(list(mine.parameters()), list(other.parameters()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_a_step_that_is_held_back_changes_no_bit_even_if_it_is_the_first(name: str, first: bool) -> None:
    model = network()
    optimizer = build_optimizer(replace(PLAIN, optimizer=ALL[name]), model)
    if not first:
        slopes(model, 0)
        apply(optimizer, RATE, *numbers(1.0, 0.0))
    before = [tensor.clone() for tensor in [*model.parameters(), *moments_of(optimizer, model).values()]]
    slopes(model, 1)
    next(model.parameters()).grad.fill_(float("nan"))
    apply(optimizer, RATE, *numbers(float("nan"), 1.0))
    after = [*model.parameters(), *moments_of(optimizer, model).values()]
    assert len(before) == len(after)
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("fused", "holding"), [((), ()), (("cpu", "cuda"), ("cpu", "cuda"))], ids=["by the host", "by the kernel"]
)
@pytest.mark.parametrize("name", ALL)
def test_it_does_not_matter_who_divides_and_who_holds_back(
    name: str, fused: tuple[str, ...], holding: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "FUSED", fused)
    monkeypatch.setattr(optimizers, "HOLDING", holding)
    test_ten_steps_equal_those_of_torch(name)
    test_a_step_that_is_held_back_changes_no_bit_even_if_it_is_the_first(name, True)
    test_a_step_that_is_held_back_changes_no_bit_even_if_it_is_the_first(name, False)


def test_without_filled_moments_a_first_step_held_back_would_leave_what_was_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch's SGD allocates its momentum without filling it, and a held back kernel fills nothing."""
    monkeypatch.setattr(optimizers, "_fill", lambda _: None)
    monkeypatch.setattr(optimizers, "HOLDING", ("cpu", "cuda"))
    model = network()
    optimizer = build_optimizer(replace(PLAIN, optimizer=ALL["momentum"]), model)
    slopes(model, 0)
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda tensor: empty_like(tensor).fill_(float("inf")))
    apply(optimizer, RATE, *numbers(1.0, 1.0))
    assert any(not bool(value.isfinite().all()) for value in moments_of(optimizer, model).values())


def test_only_matrices_decay() -> None:
    model = network()
    optimizer = build_optimizer(replace(PLAIN, optimizer=AdamWConfig(weight_decay=0.5)), model)
    before = [weight.detach().clone() for weight in model.parameters()]
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    apply(optimizer, 0.1, *numbers(1.0, 0.0))
    for weight, old in zip(model.parameters(), before, strict=True):
        assert_close(weight.detach(), old * (1 - 0.1 * 0.5) if weight.ndim > 1 else old)


def test_frozen_weights_have_no_moments_and_nothing_to_train_is_refused() -> None:
    model = network()
    model[0].requires_grad_(False)
    assert not [name for name in moments_of(build_optimizer(PLAIN, model), model) if name.startswith("0.")]
    model.requires_grad_(False)
    with pytest.raises(ConfigError, match="all weights are frozen"):
        build_optimizer(PLAIN, model)


def test_moments_have_the_same_names_before_and_after_the_first_step() -> None:
    for config in ALL.values():
        model = network()
        optimizer = build_optimizer(replace(PLAIN, optimizer=config), model)
        before = {name: value.shape for name, value in moments_of(optimizer, model).items()}
        slopes(model, 0)
        apply(optimizer, RATE, *numbers(1.0, 0.0))
        assert {name: value.shape for name, value in moments_of(optimizer, model).items()} == before


def test_muon_makes_matrices_orthogonal() -> None:
    torch.manual_seed(0)
    for shape in ((6, 6), (4, 9), (9, 4)):
        values = torch.linalg.svdvals(muon.orthogonal(torch.randn(shape)).float())
        assert values.min() > 0.6 and values.max() < 1.3


def test_muon_leaves_tables_heads_and_filters_to_adamw() -> None:
    inputs = TokensConfig(vocab_size=11)
    model = recipes.classifier("transformer", inputs=inputs, num_classes=3, size="nano").build()
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {names[id(weight)].rpartition("layers.0.")[2] for weight in muon.hidden_matrices(model)}
    assert {name for name in found if "layers.1" not in name} == {
        *(f"mixer.heads.{part}.weight" for part in ("query", "key", "value", "output")),
        *(f"feed_forward.{part}.weight" for part in ("inward", "outward")),
    }


def test_muon_is_refused_where_it_has_nothing_to_train() -> None:
    model = recipes.classifier("bag", inputs=TokensConfig(vocab_size=11), num_classes=3, size="nano").build()
    with pytest.raises(ConfigError, match="matrices between hidden vectors, and this model has none"):
        build_optimizer(replace(PLAIN, optimizer=MuonConfig()), model)
