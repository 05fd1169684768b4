"""Attention by torch's fused kernel; masks and biases become one dense matrix, unless the mask is only causal."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request, never
from seqloom.nn.ops.masks import Causal, Everything, Mask, compact
from seqloom.nn.ops.relations import NoBias, Shaw
from seqloom.nn.ops.scores import Additive, scaled
from seqloom.nn.types import Places

ALIGNMENT = 16  # numbers


def _sdpa_refuses(request: Request) -> str | None:
    if isinstance(request.score, Additive):
        return "it supports only dot product scores, not additive scores"
    if isinstance(request.bias, Shaw):
        return "it does not support Shaw's position vectors in the values"
    return None


def _sdpa(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive) and not isinstance(request.bias, Shaw)
    query, scale = scaled(request.score, request.query)

    def fused(mask: Tensor | None, *, causal: bool = False) -> Tensor:
        with without_plans(query, mask):
            return F.scaled_dot_product_attention(
                query, request.key, request.value, mask, dropout_p=request.dropout, is_causal=causal, scale=scale
            )

    if isinstance(request.bias, NoBias):
        if request.mask == Everything():
            return fused(None)
        if request.mask == Causal() and request.aligned:
            return fused(None, causal=True)
        mixed = fused(_penalties(request))
    else:
        bias = request.bias.term(request.query_places, request.key_places).to(query.dtype)
        mixed = fused(bias + _penalties(request))
    if request.heedless:
        return mixed
    allowed = compact(request.mask, request.query_places, request.key_places)
    return mixed.masked_fill(~allowed.any(dim=-1, keepdim=True), 0)


@contextmanager
def without_plans(query: Tensor, mask: Tensor | None) -> Iterator[None]:
    """Disable cuDNN attention for requests with a mask: it plans again, for up to a second, for every new shape.

    torch prefers it on newer GPUs, and ragged text has a new shape at nearly every step: on an H200, a translator made
    31 steps in bfloat16 in the time of 389 steps in float32, which cuDNN does not support. Compiled models have one
    shape.
    """
    if mask is None or not query.is_cuda or torch.compiler.is_compiling():
        yield
        return
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _penalties(request: Request) -> Tensor:
    """Return the mask as a term for the scores, [B,1,T,S] or [B,1,1,S], cached for all layers that share it."""
    mask, query, key, dtype = request.mask, request.query_places, request.key_places, request.query.dtype
    make = partial(_penalize, mask, query, key, dtype)
    return make() if request.shared is None else request.shared.once((mask, *query, *key, dtype), make)


def _penalize(mask: Mask, query: Places, key: Places, dtype: torch.dtype) -> Tensor:
    """Return 0 where the mask allows reading and half the lowest number elsewhere, so that nothing overflows.

    Finite, as in `plain`: a query that may read nothing then has no NaN to leak into gradients. The rows of the matrix
    begin at multiples of ALIGNMENT; otherwise the GPU kernel would copy the matrix for each layer.
    """
    allowed = compact(mask, query, key)  # [B,1,T or 1,S]
    time = allowed.shape[-1]
    room = allowed.new_zeros((*allowed.shape[:-1], -(-time // ALIGNMENT) * ALIGNMENT), dtype=dtype)
    penalties = room[..., :time]
    return penalties.masked_fill_(~allowed, torch.finfo(dtype).min / 2)


SDPA = Kernel("sdpa", _sdpa_refuses, never, _sdpa)
