"""Dropout of single elements: y = x m / (1 - p), with m = 0 with probability p, else 1 (Srivastava et al. 2014).

torch draws a float for each element of a mask on the CPU, which can take half the time of a step of a small model.
16 random bits are enough for one element, so one 64-bit number decides four:

    drop if bits < round(p 2^16)          p is rounded to 2^-16, and the scale is made for the rounded p

Rates below RAREST, for which that is too coarse, other devices and other types use torch's kernel.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.ops.transforms import is_transformed

BITS, EACH = 16, 4  # of a number of 64 bits
RAREST = 1e-3


def dropout(x: Tensor, rate: float) -> Tensor:
    """The values with some of them zero, and the others scaled; random numbers come from torch's generator."""
    if rate < RAREST or rate >= 1 or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return F.dropout(x, rate)
    if is_transformed():
        return F.dropout(x, rate)
    dropped = round(rate * 2**BITS)
    return masked(x, drawn_mask(x, dropped), 2**BITS / (2**BITS - dropped))


def drawn_mask(x: Tensor, dropped: int) -> Tensor:
    """A tensor like x: 0 with probability dropped / 2^16, else 1."""
    count = x.numel()
    numbers = torch.empty(-(-count // EACH), dtype=torch.int64).random_(-(2**63), None)
    bits = numbers.view(torch.int16)[:count].view(x.shape)
    return torch.ge(bits, dropped - 2 ** (BITS - 1), out=torch.empty(x.shape, dtype=x.dtype))


def masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The product x * mask * scale in one pass, and the same for its gradient."""
    found: Tensor = _Masked.apply(x, mask, scale)  # type: ignore[no-untyped-call]
    return found


class _Masked(torch.autograd.Function):
    """A product with constants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.addcmul(x.new_zeros(()), x, mask, value=scale)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return torch.addcmul(upstream.new_zeros(()), upstream, mask, value=ctx.scale), None, None


class Dropout(nn.Dropout):
    """`dropout` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """The values, in training with some of them zero."""
        return dropout(x, self.p) if self.training and self.p else x
