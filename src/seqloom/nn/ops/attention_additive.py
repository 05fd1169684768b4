"""Attention with the additive score on a GPU, in memory that is linear in the length.

`plain` stores a vector for every pair of query and key. The kernels in `triton_additive` compute its tanh where it is
needed: once in the forward pass, and three times in the backward pass, for the scores, the queries and the keys.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.attention_tiles import cast, depth, precision, refuse_second_derivative, sizes_refuse, spans
from seqloom.nn.ops.kernels import on_its_device, triton_interpreted, triton_refuses
from seqloom.nn.ops.relations import NoBias
from seqloom.nn.ops.scores import Additive
from seqloom.nn.ops.spans import spans_refuse, sparse_of

_FEW = 16  # queries: a tile has this many at least
_ROOM = 2**25  # numbers: gradients of scores that are stored at a time


class AdditiveSizes(NamedTuple):
    """The sizes of tiles: of scores, and of the gradients of one side."""

    queries: int = 64
    keys: int = 64
    rows: int = 16
    dimensions: int = 128
    unroll: int = 4


BLOCKS = AdditiveSizes()
_EXACT = 32  # queries and keys in a tile at most, if sums are exact: more would not fit into registers


def _additive_refuses(request: Request) -> str | None:
    if reason := triton_refuses(request.query.device):
        return reason
    if not isinstance(request.score, Additive):
        return "it supports only the additive score"
    if not isinstance(request.bias, NoBias) or request.dropout:
        return "it supports neither a bias nor dropout of attention weights"
    if reason := spans_refuse(request.mask, aligned=request.aligned):
        return reason
    if any(sparse_of(part) for part in request.mask.parts()):
        return "it does not support sparse patterns"
    return sizes_refuse(request)


def _additive_declines(request: Request) -> str | None:
    if request.query.shape[2] < _FEW:
        return f"below {_FEW} queries, plain is faster"
    return None


def _additive(request: Request) -> Tensor:
    scoring = request.score
    assert isinstance(scoring, Additive)
    query, key, value, left, right, direction = cast(request, request.query, request.key, request.value, *scoring)
    found = spans(request)
    output: Tensor
    output, _ = _forward(query @ left, key @ right, direction, value, *found[:4])
    return output


def _how(dtype: torch.dtype) -> str:
    """Which tanh keeps the digits of a dtype."""
    if dtype == torch.float32 or triton_interpreted():
        return "exact"
    return "packed" if dtype == torch.bfloat16 else "fast"


class _Sides(NamedTuple):
    """Both sides of the sum in the tanh as the kernels read them, and the direction in float32."""

    left: Tensor  # [B,H,T,A], or [B,H,T,A/2] words of two dimensions
    right: Tensor  # [B,H,S,A] or words
    direction: Tensor  # [H,A]
    how: str

    @property
    def words(self) -> int:
        return self.left.shape[3]

    @property
    def blocks(self) -> AdditiveSizes:
        """The tiles of the kernels."""
        if self.how != "exact":
            return BLOCKS
        return BLOCKS._replace(queries=min(_EXACT, BLOCKS.queries), keys=min(_EXACT, BLOCKS.keys))


def _sides(left: Tensor, right: Tensor, direction: Tensor) -> _Sides:
    how, direction = _how(left.dtype), direction.float()
    if how != "packed":
        return _Sides(left.contiguous(), right.contiguous(), direction.contiguous(), how)
    if odd := left.shape[3] % 2:
        left, right, direction = (F.pad(tensor, (0, odd)) for tensor in (left, right, direction))
    left, right = (tensor.contiguous().view(torch.int32) for tensor in (left, right))
    return _Sides(left, right, direction.contiguous(), how)


@torch.library.custom_op("seqloom::additive_attention", mutates_args=())
@on_its_device
def _forward(
    left: Tensor,
    right: Tensor,
    direction: Tensor,
    value: Tensor,
    first: Tensor,
    last: Tensor,
    first_reader: Tensor,
    last_reader: Tensor,
) -> tuple[Tensor, Tensor]:
    from seqloom.nn.ops import triton_additive

    (batch, heads, time, _), end, width = left.shape, right.shape[2], value.shape[3]
    sides = _sides(left, right, direction)
    blocks = sides.blocks
    output, level = _outputs(left, value)
    triton_additive.additive_forward[(-(-time // blocks.queries), batch * heads)](
        *_dimensions_first(sides), sides.direction, value, output, level, first, last, first_reader, last_reader,
        *value.stride()[:3], *output.stride()[:3], _by_row(first), _by_row(first_reader), heads, time, end,
        sides.words, sides.direction.shape[1], width, depth(width), blocks.queries, blocks.keys, sides.how,
        precision(value.dtype), num_warps=4,
    )  # fmt: skip
    return output, level


def _dimensions_first(sides: _Sides) -> tuple[Tensor, Tensor]:
    """[B,H,words,T] and [B,H,words,S]: neighboring threads read neighboring elements."""
    return sides.left.transpose(2, 3).contiguous(), sides.right.transpose(2, 3).contiguous()


def _outputs(left: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, time, _ = left.shape
    output = value.new_empty(batch, time, heads, value.shape[3]).transpose(1, 2)
    return output, value.new_empty(batch, heads, time, dtype=torch.float32)


@_forward.register_fake
def _(left: Tensor, right: Tensor, direction: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return _outputs(left, value)


@torch.library.custom_op("seqloom::additive_attention_backward", mutates_args=())
@on_its_device
def _backward(
    left: Tensor,
    right: Tensor,
    direction: Tensor,
    value: Tensor,
    output: Tensor,
    level: Tensor,
    upstream: Tensor,
    first: Tensor,
    last: Tensor,
    first_reader: Tensor,
    last_reader: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from seqloom.nn.ops import triton_additive

    (batch, heads, time, _), end, width = left.shape, right.shape[2], value.shape[3]
    sides = _sides(left, right, direction)
    blocks = sides.blocks
    upstream = upstream if upstream.stride(-1) == 1 else upstream.contiguous()
    offset = (upstream.float() * output.float()).sum(dim=-1)
    dimensions, flat = sides.direction.shape[1], batch * heads
    of_left, of_right = (value.new_zeros(batch, heads, size, dimensions, dtype=torch.float32) for size in (time, end))
    of_value = value.new_zeros(batch, heads, end, width, dtype=torch.float32)
    of_direction = torch.zeros_like(sides.direction)
    dimensions_first = _dimensions_first(sides)
    key_room = _whole(end, blocks.keys)
    query_room = _whole(min(time, max(1, _ROOM // (flat * key_room))), blocks.queries)
    chunk = min(blocks.dimensions // (2 if sides.how == "packed" else 1), 1 << (sides.words - 1).bit_length())
    by_query, by_key = (value.new_empty(flat * query_room * key_room, dtype=torch.float32) for _ in range(2))
    for start in range(0, time, query_room):
        stop = min(start + query_room, time)
        by_query.zero_()
        by_key.zero_()
        triton_additive.additive_scores_backward[(-(-end // blocks.keys), flat)](
            *dimensions_first, sides.direction, value, upstream, level, offset, of_value, by_query, by_key,
            first, last, first_reader, last_reader, *value.stride()[:3], *upstream.stride()[:3],
            _by_row(first), _by_row(first_reader), heads, time, end, start, stop, query_room, key_room,
            sides.words, dimensions, width, depth(width), blocks.queries, blocks.keys, sides.how,
            precision(value.dtype), num_warps=4,
        )  # fmt: skip
        groups = -(-(stop - start) // blocks.rows)
        sums = sides.direction.new_zeros(batch, heads, groups, dimensions)
        settings = (sides.words, blocks.rows, chunk, blocks.unroll, sides.how)
        parts = -(-sides.words // chunk)
        triton_additive.additive_side_gradients[(groups, flat, parts)](
            sides.left, sides.right, by_key, of_left, sums, first, last, _by_row(first), heads,
            start, stop, time, 0, end, end, query_room, key_room, *settings, True, num_warps=1,
        )  # fmt: skip
        of_direction += sums.sum(dim=(0, 2))
        triton_additive.additive_side_gradients[(-(-end // blocks.rows), flat, parts)](
            sides.right, sides.left, by_query, of_right, sums, first_reader, last_reader, _by_row(first_reader), heads,
            0, end, end, start, stop, time, key_room, query_room, *settings, False, num_warps=1,
        )  # fmt: skip
    width = left.shape[3]
    of_left, of_right = (
        (found * sides.direction[:, None]).to(left.dtype)[..., :width].contiguous() for found in (of_left, of_right)
    )
    return of_left, of_right, of_direction[:, :width].to(direction.dtype).contiguous(), of_value.to(value.dtype)


@_backward.register_fake
def _(left: Tensor, right: Tensor, direction: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_left, of_right, of_direction, of_value = (
        tensor.new_empty(tensor.shape) for tensor in (left, right, direction, value)
    )
    return of_left, of_right, of_direction, of_value


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    refuse_second_derivative("additive")
    left, right, direction, value, *ranges, output, level = ctx.saved_tensors
    return (*_backward(left, right, direction, value, output, level, upstream, *ranges), *[None] * 4)


_forward.register_autograd(_gradients, setup_context=_save)


def _by_row(span: Tensor) -> int:
    return span.stride(0) if len(span) > 1 else 0


def _whole(count: int, size: int) -> int:
    """The smallest multiple of `size` that holds `count`."""
    return -(-count // size) * size


ADDITIVE = Kernel("additive", _additive_refuses, _additive_declines, _additive)
