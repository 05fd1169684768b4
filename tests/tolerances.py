"""The one table of tolerances: differences relative to the largest entry of what is expected.

In bfloat16 both are root mean squares: a ReLU near zero may fall to either side there, and one entry of a gradient
with it.
"""

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 7e-2}


def assert_equal_up_to_rounding(found: Tensor, expected: Tensor, claim: str, *, floor: float = 0.0) -> None:
    """Fail unless two tensors agree up to the rounding of their type of number.

    `floor` is the size of what was summed, where that is larger than the sum: a gradient that is zero on paper is not
    zero in floating point, but small beside the others.
    """
    assert found.shape == expected.shape, f"{claim}: shape {list(found.shape)} instead of {list(expected.shape)}"
    assert bool(torch.isfinite(found).all()), f"{claim}: not finite"
    if not found.is_floating_point():
        assert torch.equal(found, expected), claim
        return
    measure = _root_mean_square if found.dtype == torch.bfloat16 else _largest_entry
    scale, gap = max(floor, measure(expected.double())), measure(found.double() - expected.double())
    allowed = TOLERANCE[found.dtype] * scale
    assert gap <= allowed, f"{claim}: differs by {gap:.3g}, {allowed:.3g} allowed"


def _largest_entry(tensor: Tensor) -> float:
    return tensor.abs().max().item() if tensor.numel() else 0.0


def _root_mean_square(tensor: Tensor) -> float:
    return tensor.square().mean().sqrt().item() if tensor.numel() else 0.0


def largest(tensors: list[Tensor]) -> float:
    """The largest entry of several tensors."""
    return max((tensor.abs().max().item() for tensor in tensors if tensor.numel()), default=0.0)
