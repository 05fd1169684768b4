"""Attention by torch's fused kernel; masks and biases become one dense matrix, unless the mask is just causal."""

import torch.nn.functional as F
from torch import Tensor

from seqloom.operators.attention import Kernel, Request, always
from seqloom.operators.masks import Causal, Everything, dense
from seqloom.operators.relations import NoBias, Shaw
from seqloom.operators.scores import Additive


def _sdpa_refuses(request: Request) -> str | None:
    if isinstance(request.score, Additive):
        return "its score is a dot product, and an additive score is not one"
    if isinstance(request.bias, Shaw):
        return "Shaw's vectors enter the values too, which it has no place for"
    return None


def _sdpa(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive) and not isinstance(request.bias, Shaw)
    query, key, value = request.score.prepare(request.query), request.key, request.value

    def fused(mask: Tensor | None, *, causal: bool = False) -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=request.dropout, is_causal=causal, scale=1.0
        )

    if isinstance(request.bias, NoBias):
        if request.mask == Everything():
            return fused(None)
        if request.mask == Causal() and request.aligned:
            return fused(None, causal=True)
    allowed = dense(request.mask, request.query_places, request.key_places)
    nothing = ~allowed.any(dim=-1, keepdim=True)  # such a row would be NaN: let it read all, then forget what it read
    allowed = allowed | nothing
    if not isinstance(request.bias, NoBias):
        bias = request.bias.term(request.query_places, request.key_places).to(query.dtype)
        return fused(bias.masked_fill(~allowed, float("-inf"))).masked_fill(nothing, 0)
    return fused(allowed).masked_fill(nothing, 0)


SDPA = Kernel("sdpa", _sdpa_refuses, always, _sdpa)
