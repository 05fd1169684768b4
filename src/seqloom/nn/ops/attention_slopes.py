"""ALiBi without a bias: the slopes ride in extra dimensions of the keys, so torch's fused causal kernel computes them.

Adding the same number to all scores of a query changes nothing, because a softmax only sees differences. Of the bias
m (j - i) of causal ALiBi only m j remains, and it is a dot product of the query with the key:

    [q_i, 1, 1, 1] . [k_j, high, middle, low]          high + middle + low = m j, each a number of the keys' dtype
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.attention_tiles import cast
from seqloom.nn.ops.masks import Causal
from seqloom.nn.ops.relations import Alibi
from seqloom.nn.ops.scores import Additive, scaled

EXTRA = 8  # dimensions: the width of a head must be a multiple of 8
_UNIT = 64.0  # in the query in place of 1, so that m j fits float16
_PARTS = {torch.bfloat16: 3, torch.float16: 3, torch.float64: 1}


def _slopes_refuses(request: Request) -> str | None:
    if not isinstance(request.bias, Alibi) or request.bias.slopes.requires_grad:
        return "it supports only ALiBi with constant slopes"
    if isinstance(request.score, Additive):
        return "it supports only dot product scores, not additive scores"
    if request.mask != Causal() or not request.aligned:
        return "it supports only the causal mask of one sequence"
    if request.query.dtype not in _PARTS:
        return "beside positions in the thousands, a float32 product would lose digits of the score"
    return None


def _slopes_declines(request: Request) -> str | None:
    if request.query.shape[3] + EXTRA > 128:
        return "heads of more than 128 numbers are slow"
    return None


def _slopes(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive) and isinstance(request.bias, Alibi)
    query, scale = scaled(request.score, request.query)
    query, key, value = cast(request, query, request.key, request.value)
    units, steps = extra_dimensions(request.bias.slopes, key.shape[2], scale, key.dtype)
    batch, heads, time, _ = query.shape
    query = torch.cat([query, units.expand(batch, heads, time, EXTRA)], dim=-1)
    key = torch.cat([key, steps.expand(batch, -1, -1, -1)], dim=-1)
    # Values keep their width, which cuDNN can read: 3.14 ms. With values as wide as keys it takes 3.44 ms, and flash
    # attention, which needs that, 5.39 ms (H200, 8 x 12 heads of 64, 4,096 elements, bfloat16, forward and backward).
    return F.scaled_dot_product_attention(query, key, value, dropout_p=request.dropout, is_causal=True, scale=scale)


def extra_dimensions(slopes: Tensor, time: int, scale: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The numbers [8] that follow a query and [H,T,8] that follow the keys; their scaled product is m j."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    index = torch.arange(time, device=slopes.device) - time // 2  # half as large, so half as coarse
    rest = slopes.to(wide)[:, None] * index.to(wide) / (scale * _UNIT)
    parts = []
    for _ in range(_PARTS[dtype]):
        parts.append(rest.to(dtype))
        rest = rest - parts[-1].to(wide)
    steps = F.pad(torch.stack(parts, dim=-1), (0, EXTRA - len(parts)))
    units = torch.zeros(EXTRA, dtype=dtype, device=slopes.device)
    units[: len(parts)] = _UNIT
    return units, steps


SLOPES = Kernel("slopes", _slopes_refuses, _slopes_declines, _slopes)
