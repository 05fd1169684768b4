"""Pooling: one vector for a sequence. An empty sequence gives zero.

mean  (1/n) sum_t x_t     sum  sum_t x_t     max  max_t x_t     last  x_n     first  x_1
attention  sum_t a_t x_t,  a = softmax(u . tanh(W x_t + b))           Yang et al. 2016
"""

from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.nn.ops.kernels import is_recorded
from seqloom.nn.ops.transforms import is_transformed
from seqloom.nn.types import Padded


def total(x: Padded) -> Tensor:
    """The sum of the real elements of each row, [B,D]."""
    return _wide_total(x).to(x.values.dtype)


def mean(x: Padded) -> Tensor:
    """The mean of the real elements of each row, [B,D]."""
    sums = _wide_total(x)
    return (sums / x.lengths.clamp(min=1)[:, None].to(sums.dtype)).to(x.values.dtype)


def _wide_total(x: Padded) -> Tensor:
    """The sum in float32 at least: a long one would overflow in float16. The padding need not be zero, nor finite.

    On a CPU, the product with a row of ones and zeros reads the values once, and zeroing the padding would copy them.
    It is not finite if a number of the padding is not.
    """
    wide = torch.promote_types(x.values.dtype, torch.float32)
    copied = x.values.device.type != "cpu" or x.values.dtype != wide or torch.is_autocast_enabled("cpu")
    if not (x.full or copied or is_transformed() or is_recorded()):
        sums = torch.bmm(x.valid[:, None].to(wide), x.values)[:, 0]
        if x.layout.is_zeroed(x.values) or bool(sums.isfinite().all()):
            return sums
    return x.with_values(x.values).values.sum(dim=1, dtype=wide)


def maximum(x: Padded) -> Tensor:
    """The maximum of the real elements in each dimension, [B,D]."""
    if x.values.shape[1] == 0:
        return total(x)
    lowest = torch.finfo(x.values.dtype).min
    peaks = x.values.masked_fill(~x.valid[:, :, None], lowest).amax(dim=1)
    return peaks.masked_fill((x.lengths == 0)[:, None], 0)


def last(x: Padded) -> Tensor:
    """The last real element, [B,D]."""
    return x.last()


def first(x: Padded) -> Tensor:
    """The first element, [B,D]."""
    return total(x.cut(0, min(1, x.values.shape[1])))


def attentive_weights(x: Padded, weight: Tensor, bias: Tensor, direction: Tensor) -> Tensor:
    """a = softmax(u . tanh(W x_t + b)) over the real elements of each row, [B,T]."""
    scores = torch.tanh(x.values @ weight.T + bias) @ direction
    scores = scores.masked_fill(~x.valid, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=1).masked_fill(~x.valid, 0)


def attentive(x: Padded, weight: Tensor, bias: Tensor, direction: Tensor) -> Tensor:
    """sum_t a_t x_t, [B,D]."""
    x = x.with_values(x.values)  # a weight of zero would keep NaN in the padding, in the gradients too
    weights = attentive_weights(x, weight, bias, direction)
    return (weights[:, :, None] * x.values).sum(dim=1)


SUMMARIES: dict[str, Callable[[Padded], Tensor]] = {
    "mean": mean,
    "sum": total,
    "max": maximum,
    "last": last,
    "first": first,
}
