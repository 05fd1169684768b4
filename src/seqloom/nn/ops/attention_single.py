"""Attention of one query for each row on a GPU, as in generation: any mask, and any bias on the scores.

The kernels are in `triton_single`. Keys that the mask forbids at both ends cost no time, so a buffer may be longer than
what is in it.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.attention_tiles import cast, depth, sizes_refuse
from seqloom.nn.ops.kernels import is_recorded, on_its_device, triton_refuses
from seqloom.nn.ops.masks import Everything, compact
from seqloom.nn.ops.relations import NoBias, Shaw
from seqloom.nn.ops.scores import Additive, scaled

_TILE = 16_384  # numbers in a tile of keys
_SCAN = 1024  # entries of the mask that are read at a time
_LONGEST = 1024  # keys of one program, if more programs find room
_PROGRAMS = 264  # two for each multiprocessor of an H200


def _single_refuses(request: Request) -> str | None:
    if reason := triton_refuses(request.query.device):
        return reason
    if request.query.shape[2] != 1:
        return "it supports one query for each row"
    if isinstance(request.score, Additive):
        return "it supports only dot product scores, not additive scores"
    if isinstance(request.bias, Shaw):
        return "it does not support Shaw's position vectors in the values"
    if request.dropout:
        return "it does not support dropout of attention weights"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in request.tensors()):
        return "it has no gradient"
    return sizes_refuse(request)


def _single_declines(_: Request) -> str | None:
    return None if is_recorded() else "outside of CUDA graphs its launch costs more than it saves"


def _single(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive) and not isinstance(request.bias, Shaw)
    query, scale = scaled(request.score, request.query)
    query, key, value = cast(request, query, request.key, request.value)
    bias = None
    if not isinstance(request.bias, NoBias):
        bias = request.bias.term(request.query_places, request.key_places)[:, :, 0].expand(key.shape[:3])
    output: Tensor = _forward(query, key, value, _allowed(request), bias, scale)
    return output


def _allowed(request: Request) -> Tensor | None:
    """[B,S] where the mask allows reading, once for all layers; None if it allows everything."""
    mask, query, key = request.mask, request.query_places, request.key_places
    if mask == Everything():
        return None
    make = partial(_table, request)
    return make() if request.shared is None else request.shared.once(("allowed", mask, *query, *key), make)


def _table(request: Request) -> Tensor:
    allowed = compact(request.mask, request.query_places, request.key_places)[:, 0, 0]
    return allowed.expand(len(request.key), request.key.shape[2]).contiguous()


@torch.library.custom_op("seqloom::attention_single", mutates_args=())
@on_its_device
def _forward(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float
) -> Tensor:
    from seqloom.nn.ops import triton_single

    (batch, heads, _, width), end = query.shape, key.shape[2]
    parts = max(1, min(_PROGRAMS // (batch * heads), -(-end // _LONGEST)))
    output = query.new_empty(batch, heads, parts, width, dtype=query.dtype if parts == 1 else torch.float32)
    level = output.new_empty(batch, heads, parts, dtype=torch.float32)
    mask = query if allowed is None else allowed.view(torch.uint8)
    term = query if bias is None else bias if bias.stride(-1) == 1 else bias.contiguous()
    triton_single.single_query[(batch * heads, parts)](
        query, key, value, mask, term, output, level, scale, *query.stride()[:2], *key.stride()[:3],
        *value.stride()[:3], *output.stride()[:3], end, *term.stride()[:2], heads, end, allowed is not None,
        bias is not None, parts, width, depth(width), max(16, _TILE // depth(width)), _SCAN, num_warps=8,
    )  # fmt: skip
    if parts == 1:
        return output
    shares = torch.softmax(level * 0.6931471805599453, dim=-1)  # to base 2
    return (output * shares[..., None]).sum(dim=2, keepdim=True).to(query.dtype)


@_forward.register_fake
def _(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape)


def write_plain(keys: Tensor, values: Tensor, column: Tensor, key: Tensor, value: Tensor) -> None:
    """Write a key and a value [B,H,1,D] into the column [B,1,1,1] of each row of the buffers [B,H,S,D]."""
    keys.scatter_(2, column.expand_as(key), key)
    values.scatter_(2, column.expand_as(value), value)


@on_its_device
def write_fused(keys: Tensor, values: Tensor, column: Tensor, key: Tensor, value: Tensor) -> None:
    """The same in one kernel."""
    from seqloom.nn.ops import triton_single

    batch, heads, _, width = key.shape
    key, value = (one if one.stride(-1) == 1 else one.contiguous() for one in (key, value))
    assert keys.stride(-1) == values.stride(-1) == 1 and key.dtype == keys.dtype and value.dtype == values.dtype
    triton_single.write_column[(batch * heads,)](
        keys, values, key, value, column.contiguous(), *keys.stride()[:3], *values.stride()[:3], *key.stride()[:2],
        *value.stride()[:2], heads, width, depth(width), num_warps=1,
    )  # fmt: skip


def write(keys: Tensor, values: Tensor, column: Tensor, key: Tensor, value: Tensor) -> None:
    """The same by the fused kernel, where its launch is free."""
    fused = is_recorded() and keys.is_cuda and triton_refuses(keys.device) is None
    (write_fused if fused else write_plain)(keys, values, column, key, value)


SINGLE = Kernel("single", _single_refuses, _single_declines, _single)
