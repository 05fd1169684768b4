"""The one table of tolerances: differences relative to the largest entry of what is expected."""

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 7e-2}


def assert_equal_up_to_rounding(found: Tensor, expected: Tensor, claim: str) -> None:
    """Fail unless two tensors agree up to the rounding of their type of number."""
    assert found.shape == expected.shape, f"{claim}: shape {list(found.shape)} instead of {list(expected.shape)}"
    assert bool(torch.isfinite(found).all()), f"{claim}: not finite"
    if not found.is_floating_point():
        assert torch.equal(found, expected), claim
        return
    scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    gap = (found.double() - expected.double()).abs().max().item() if expected.numel() else 0.0
    allowed = TOLERANCE[found.dtype] * scale
    assert gap <= allowed, f"{claim}: differs by {gap:.3g}, {allowed:.3g} allowed"
