"""Two sides of one comparison: modules of torch and ours with the same weights."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from seqloom.config.inputs import VectorsConfig
from seqloom.nn.mixers.attention import Heads
from seqloom.nn.types import Padded

# Allowed error, as a share of the largest entry of the tensor that torch gives. Measured over tests/parity: at most
# 2.4e-6 in float32 (a gradient by a norm's shift, two layers deep) and 1.5e-14 in float64 (rotary scores 1,000 places
# away).
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}

WIDTH, ROWS, TIME, SOURCE = 12, 4, 6, 7
RAGGED, RAGGED_SOURCE = torch.tensor([4, 6, 1, 3]), torch.tensor([2, 5, 7, 1])
CAUSAL = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)  # true where torch must not look
VECTORS = VectorsConfig(size=WIDTH)

either_precision = pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "float64"])
full_and_ragged = pytest.mark.parametrize("lengths", [None, RAGGED], ids=["full", "ragged"])
either_kernel = pytest.mark.parametrize("kernel", ["plain", "fused"])


class Twins(NamedTuple):
    """A parameter of torch and the ones of ours that hold the same numbers: one below another they are its rows."""

    theirs: Tensor
    ours: tuple[Tensor, ...]


def copy_weights(theirs: nn.Module, ours: nn.Module, twins: Sequence[Twins]) -> None:
    """Torch's weights, moved at random so that no bias is zero and no norm one, on both sides; none may be left out."""
    assert {id(twin.theirs) for twin in twins} == {id(weight) for weight in theirs.parameters()}
    trained = [id(weight) for weight in ours.parameters() if weight.requires_grad]
    assert sorted(id(part) for twin in twins for part in twin.ours) == sorted(trained)
    with torch.no_grad():
        for twin in twins:
            twin.theirs.add_(torch.empty_like(twin.theirs).uniform_(-0.3, 0.3))
            for part, rows in zip(twin.ours, twin.theirs.split([len(part) for part in twin.ours]), strict=True):
                part.copy_(rows)


def assert_same(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
    largest = theirs.abs().max()
    assert largest > 0, f"{what}: nothing to compare"
    error = ((ours - theirs).abs().max() / largest).item()
    assert error <= TOLERANCES[theirs.dtype], f"{what}: off by {error:.1e} of the largest entry"


def assert_parity(
    ours: Iterable[Tensor], theirs: Iterable[Tensor], inputs: Sequence[Tensor], twins: Sequence[Twins] = ()
) -> None:
    """Equal values, and for one random upstream gradient equal gradients by the inputs and by every weight.

    Weights are compared as torch stores them. The gradient by a bias of keys alone is zero but for rounding, because
    softmax does not see what is added to all scores; beside those of queries and values it is compared to something.
    """
    ours, theirs = list(ours), list(theirs)
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert_same(mine, other, f"output {number}")
    upstream = [torch.randn_like(other) for other in theirs]
    parts = [part for twin in twins for part in twin.ours]
    found = iter(torch.autograd.grad(ours, [*inputs, *parts], upstream))
    expected = iter(torch.autograd.grad(theirs, [*inputs, *(twin.theirs for twin in twins)], upstream))
    for number, _ in enumerate(inputs):
        assert_same(next(found), next(expected), f"gradient by input {number}")
    for number, twin in enumerate(twins):
        joined = torch.cat([next(found) for _ in twin.ours])
        assert_same(joined, next(expected), f"gradient by weight {number} {list(twin.theirs.shape)}")


def leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def beyond(lengths: Tensor, time: int) -> Tensor:
    """[B,T] true in the padding, which is how torch's attention wants to be told."""
    return torch.arange(time) >= lengths[:, None]


def real(values: Tensor, lengths: Tensor | None) -> Tensor:
    """The values with zeros in the padding, where torch's attention leaves whatever came out."""
    return values if lengths is None else values.masked_fill(beyond(lengths, values.shape[1])[:, :, None], 0)


def read_as_it_is(stack: Any) -> Any:
    """The stack with the linear map of its input made the identity, so that its first layer reads what it is given."""
    with torch.no_grad():
        stack.input.widen.weight.copy_(torch.eye(WIDTH))
        stack.input.widen.bias.zero_()
    stack.input.requires_grad_(False)
    vectors = torch.randn(2, 3, WIDTH, dtype=stack.input.widen.weight.dtype)
    assert torch.equal(stack.input(Padded.of(vectors)).values, vectors)
    return stack


def attention_twins(theirs: nn.MultiheadAttention, ours: Heads) -> list[Twins]:
    projections = (ours.query, ours.key, ours.value)
    return [
        Twins(theirs.in_proj_weight, tuple(linear.weight for linear in projections)),
        Twins(theirs.in_proj_bias, tuple(linear.bias for linear in projections)),
        *pairs(theirs.out_proj, ours.output),
    ]


def pairs(theirs: nn.Module, ours: nn.Module) -> list[Twins]:
    """The weights of two modules of one kind, in order."""
    return [Twins(weight, (mine,)) for weight, mine in zip(theirs.parameters(), ours.parameters(), strict=True)]
