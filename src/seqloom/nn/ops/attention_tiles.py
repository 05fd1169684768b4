"""Attention over spans on a GPU: any mask that is a range of keys for each query, sparse patterns, ALiBi, Shaw.

The kernels are in `triton_tiles`. Memory is linear in the length, and keys out of range cost no time.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import KernelError
from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.kernels import on_its_device, triton_refuses
from seqloom.nn.ops.masks import Causal, Everything
from seqloom.nn.ops.relations import Alibi, NoBias, Shaw
from seqloom.nn.ops.scores import Additive, scaled
from seqloom.nn.ops.spans import KeySpans, spans_of, spans_refuse

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LOG2E = 1.4426950408889634
WIDEST = 128  # numbers in a head: a tile must fit on the chip
_SHORT = 512  # elements: below, a dense mask costs less than it saves
# Keys that a query reads: up to so many, small tiles are faster, because less of them is outside of the mask. A window
# of 512 in 2 rows of 16,384 elements on an H200 took 1.00 ms with the usual tiles, forward and backward.
_NARROW = 512


class TileSizes(NamedTuple):
    """The sizes of a kernel's tiles, its warps and pipeline stages."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 2


def ranges_refuse(request: Request, *biases: type) -> str | None:
    """Return why a request is not dot products over ranges of keys with no bias, or one of these."""
    if isinstance(request.score, Additive):
        return "it supports only dot product scores, not additive scores"
    if not isinstance(request.bias, (NoBias, *biases)):
        return f"of all biases it supports only {' and '.join(kind.__name__ for kind in biases)}"
    if not request.aligned:
        return "queries and keys are different sequences, so the visible keys are not a range"
    if reason := spans_refuse(request.mask, aligned=True):
        return reason
    if request.dropout:
        return "it does not support dropout of attention weights"
    if isinstance(request.bias, Alibi) and request.bias.slopes.requires_grad:
        return "it has no gradient for the slopes of ALiBi"
    return None


def _tiles_refuses(request: Request) -> str | None:
    return triton_refuses(request.query.device) or ranges_refuse(request, Alibi, Shaw) or sizes_refuse(request)


def sizes_refuse(request: Request) -> str | None:
    """Return why the Triton kernels do not support the dtype or the widths of a request."""
    if request.query.dtype not in DTYPES:
        return f"it does not support {str(request.query.dtype).removeprefix('torch.')}"
    width = request.query.shape[3]
    if max(width, request.value.shape[3]) > WIDEST:
        return f"a head has at most {WIDEST} numbers, found {width}"
    if width != request.value.shape[3]:
        return "values have another width than keys"
    return None


def _tiles_declines(request: Request) -> str | None:
    if isinstance(request.bias, NoBias) and request.mask in (Everything(), Causal()):
        return "sdpa needs no mask here and is faster"
    if request.query.shape[2] < _SHORT:
        return f"below {_SHORT} elements, sdpa with a dense mask is faster"
    return None


def spans(request: Request) -> KeySpans:
    """Return the mask of a request as ranges, once for all layers."""
    make = partial(spans_of, request.mask, request.query_places, request.key_places, aligned=request.aligned)
    key = ("spans", request.mask, *request.query_places, *request.key_places, request.aligned)
    return make() if request.shared is None else request.shared.once(key, make)


def cast(request: Request, *tensors: Tensor) -> list[Tensor]:
    """Return tensors in the dtype that torch's fused kernel would use, with their last axis contiguous."""
    device = request.query.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else request.query.dtype
    return [tensor.to(dtype) if tensor.stride(-1) == 1 else tensor.to(dtype).contiguous() for tensor in tensors]


def _tiles(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive)
    query, scale = scaled(request.score, request.query)
    query, key, value = cast(request, query, request.key, request.value)
    found, bias = spans(request), request.bias
    slopes = bias.slopes if isinstance(bias, Alibi) else None
    table = None
    if isinstance(bias, Shaw):  # of all distances: the product of each query with the vector for the keys
        table = (query @ (scale * bias.keys).to(query.dtype).T).float().contiguous()
    output: Tensor
    before, after = request.mask.reach()
    reach = None if before is None or after is None else before + 1 + after
    output, _, mass = _forward(query, key, value, *found[:5], slopes, table, *found.sparse, reach, scale)
    return output + mass.to(output.dtype) @ bias.values.to(output.dtype) if isinstance(bias, Shaw) else output


@torch.library.custom_op("seqloom::attention_tiles", mutates_args=())
@on_its_device
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    first: Tensor,
    last: Tensor,
    first_reader: Tensor,  # noqa: ARG001 for the backward pass
    last_reader: Tensor,  # noqa: ARG001
    origin: Tensor,
    slopes: Tensor | None,
    table: Tensor | None,  # [B,H,T,2R+1] terms of the scores by clipped distance
    local: int,
    stride: int,
    reach: int | None,  # keys that a query reads at most
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the logarithm of the sum of each query's exponentials, and its weight on each clipped distance."""
    from seqloom.nn.ops import triton_tiles

    (batch, heads, time, width), end = query.shape, key.shape[2]
    output, level, mass = _outputs(query, table)
    blocks, in_bits = forward_blocks(query.dtype, width, reach), level if table is None else table * LOG2E
    triton_tiles.forward_tiles[(-(-time // blocks.queries), batch * heads)](
        query, key, value, output, level, mass, first, last, origin, _given(slopes, level), in_bits, scale,
        *_strides(query, key, value, output), _by_row(first), _by_row(origin), heads, time, end,
        slopes is not None, local, stride, _radius(table), width, depth(width), blocks.queries, blocks.keys,
        precision(query.dtype), num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return output, level, mass


def _like(vectors: Tensor) -> Tensor:
    """Room for [B,H,T,D], laid out as [B,T,H,D] so that splitting and joining heads copies nothing."""
    batch, heads, time, width = vectors.shape
    return vectors.new_empty(batch, time, heads, width).transpose(1, 2)


def _outputs(query: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    level = query.new_empty(query.shape[:3], dtype=torch.float32)
    return _like(query), level, level.new_empty(0) if table is None else torch.zeros_like(table)


def _radius(table: Tensor | None) -> int:
    return 0 if table is None else table.shape[3] // 2


@_forward.register_fake
def _(query: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(query, more[8])


@torch.library.custom_op("seqloom::attention_tiles_backward", mutates_args=())
@on_its_device
def _backward(
    upstream: Tensor,
    pulls: Tensor | None,  # [B,H,T,2R+1] the gradient of the weights on distances
    offset: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    first: Tensor,
    last: Tensor,
    first_reader: Tensor,
    last_reader: Tensor,
    origin: Tensor,
    slopes: Tensor | None,
    table: Tensor | None,
    local: int,
    stride: int,
    reach: int | None,
    scale: float,
    output: Tensor,
    level: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and table; `offset` is the product of the weights on distances and `pulls`."""
    from seqloom.nn.ops import triton_tiles

    (batch, heads, time, width), end = query.shape, key.shape[2]
    of_query, of_key, of_value, offset = _like(query), _like(key), _like(value), offset.clone()
    _, _, of_table = _outputs(query, table)
    tables = (level if table is None else table * LOG2E, _given(pulls, level))
    settings = (slopes is not None, local, stride, _radius(table), width, depth(width))
    blocks = query_blocks(query.dtype, width, reach)
    triton_tiles.query_gradients[(-(-time // blocks.queries), batch * heads)](
        query, key, value, output, upstream, level, offset, of_query, first, last, origin, _given(slopes, level),
        *tables, of_table, scale, *_strides(query, key, value, output, upstream, of_query), _by_row(first),
        _by_row(origin), heads, time, end, *settings, blocks.queries, blocks.keys,
        precision(query.dtype), num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    blocks = key_blocks(query.dtype, width, reach)
    triton_tiles.key_gradients[(-(-end // blocks.keys), batch * heads)](
        query, key, value, upstream, level, offset, of_key, of_value, first_reader, last_reader, origin,
        _given(slopes, level), *tables, scale, *_strides(query, key, value, upstream, of_key), _by_row(first_reader),
        _by_row(origin), heads, time, end, *settings, blocks.queries, blocks.keys,
        precision(query.dtype), num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return of_query, of_key, of_value, of_table


@_backward.register_fake
def _(_: Any, __: Any, ___: Any, query: Tensor, key: Tensor, value: Tensor, *more: Any) -> tuple[Tensor, ...]:
    return _like(query), _like(key), _like(value), _outputs(query, more[6])[2]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.local, ctx.stride, ctx.reach, ctx.scale = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, upstream: Tensor | None, _: None, pulls: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative("tiles")
    *tensors, output, level, mass = ctx.saved_tensors
    table = tensors[-1]
    upstream = torch.zeros_like(output) if upstream is None else upstream
    upstream = upstream if upstream.stride(-1) == 1 else upstream.contiguous()
    offset = level  # not read
    if table is not None:
        pulls = torch.zeros_like(table) if pulls is None else pulls.contiguous()
        offset = (mass * pulls).sum(dim=-1)
    settings = (ctx.local, ctx.stride, ctx.reach, ctx.scale)
    *found, of_table = _backward(upstream, pulls, offset, *tensors, *settings, output, level)
    return (*found, *[None] * 6, None if table is None else of_table, *[None] * 4)


_forward.register_autograd(_gradients, setup_context=_save)


def refuse_second_derivative(name: str) -> None:
    """Raise KernelError inside a backward pass that builds a graph: its values would be treated as constants."""
    if torch.is_grad_enabled():
        raise KernelError(
            f"the attention kernel '{name}' has no second derivative",
            fix='choose another kernel: using(attention="plain")',
        )


def _strides(*tensors: Tensor) -> list[int]:
    """The strides of rows, heads and elements of each tensor [B,H,T,D]."""
    assert all(tensor.stride(-1) == 1 for tensor in tensors)
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _by_row(span: Tensor) -> int:
    return span.stride(0) if len(span) > 1 else 0


def _given(maybe: Tensor | None, other: Tensor) -> Tensor:
    """Any tensor in place of one that the kernel will not read."""
    return other if maybe is None else maybe


def depth(width: int) -> int:
    """The width of a tile for vectors of this width: a power of two, at least what the matrix units take."""
    return max(16, 1 << (width - 1).bit_length())


def precision(dtype: torch.dtype) -> str:
    """How the matrix units multiply: exactly, unless the user lets all products of float32 matrices be rounded."""
    # Some versions of torch warn when the older setting, allow_tf32, is read.
    return "tf32" if dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _is_narrow(reach: int | None) -> bool:
    return reach is not None and reach <= _NARROW


def forward_blocks(dtype: torch.dtype, width: int, reach: int | None) -> TileSizes:
    """The tiles of the forward pass, for queries that read so many keys at most."""
    if dtype == torch.float32:  # exact products keep whole tiles in registers
        return TileSizes(64, 32, 4, 2) if width <= 64 else TileSizes(32, 16, 4, 1)
    if width > 64:
        return TileSizes(128, 64, 8, 3)
    return TileSizes(64, 64, 4, 3) if _is_narrow(reach) else TileSizes(128, 64, 4, 3)


def query_blocks(dtype: torch.dtype, width: int, reach: int | None) -> TileSizes:
    """The tiles of the gradient of the queries."""
    if dtype == torch.float32:
        return TileSizes(32, 32, 4, 1) if width <= 64 else TileSizes(32, 16, 4, 1)
    return TileSizes(64, 64, 4, 3) if _is_narrow(reach) and width <= 64 else TileSizes(128, 64, 8, 3)


def key_blocks(dtype: torch.dtype, width: int, reach: int | None) -> TileSizes:
    """The tiles of the gradients of keys and values."""
    if dtype == torch.float32:
        return TileSizes(32, 32, 4, 1) if width <= 64 else TileSizes(16, 32, 4, 1)
    return TileSizes(64, 64, 4, 3) if _is_narrow(reach) and width <= 64 else TileSizes(64, 128, 8, 3)


TILES = Kernel("tiles", _tiles_refuses, _tiles_declines, _tiles)
