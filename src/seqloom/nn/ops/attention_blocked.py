"""Blockwise attention: one block of queries at a time against the keys in reach, recomputed in the backward pass.

It runs `plain` on each block, so it takes every score, mask and bias of one sequence: O(T w d) for a window w, and
memory linear in the length for any mask.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import KernelError
from seqloom.nn.ops.attention import Kernel, Request, plain
from seqloom.nn.ops.attention_sdpa import SDPA
from seqloom.nn.ops.masks import Causal, Everything
from seqloom.nn.ops.relations import NoBias
from seqloom.nn.ops.scores import Additive

_BLOCK = 256  # queries per block
_CELLS = 2**24  # numbers in one block's score matrix: 64 MiB of float32


def _blocked_refuses(request: Request) -> str | None:
    if not request.aligned:
        return "queries and keys are different sequences, so the visible keys are not a range"
    return None


def _blocked_declines(request: Request) -> str | None:
    batch, heads, time = request.query.shape[:3]
    if out_of_reach(request):
        return None
    if SDPA.refuses(request) is None and isinstance(request.bias, NoBias):
        if request.mask in (Everything(), Causal()):
            return "sdpa stores no mask here and is faster"
        cells, limit = batch * time * time, 4 * _CELLS  # of the mask, one byte each
    else:
        cells, limit = batch * heads * time * time * _inner(request), _CELLS  # scores or biases
    return None if cells > limit else "the sequence is short enough to store all scores or the mask"


def out_of_reach(request: Request) -> bool:
    """Whether most keys are out of reach of a query, so that most of the matrix need not be computed."""
    before, after = request.mask.reach()
    if before is None or after is None:
        return False
    return request.query.shape[2] > 2 * max(_BLOCK, before + after)


def _inner(request: Request) -> int:
    """Return the numbers stored for each pair of query and key: an additive score needs a vector."""
    return request.score.direction.shape[-1] if isinstance(request.score, Additive) else 1


def _blocks(request: Request) -> list[tuple[slice, slice]]:
    """Ranges of queries, each with the range of keys in its reach."""
    batch, heads, time = request.query.shape[:3]
    before, after = (time if bound is None else bound for bound in request.mask.reach())
    span = min(time, before + after + _BLOCK)
    block = max(1, min(_BLOCK, _CELLS // max(1, batch * heads * span * _inner(request))))
    return [
        (slice(start, min(start + block, time)), slice(max(0, start - before), min(time, start + block + after)))
        for start in range(0, time, block)
    ]


class _Blocked(torch.autograd.Function):
    """`plain` on one block of queries after another; no quadratic tensor is saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, request: Request, *tensors: Tensor) -> Tensor:
        ctx.request = request.refill(tensor.new_empty(0) for tensor in tensors)  # save the tensors only once
        ctx.save_for_backward(*tensors)
        device = request.query.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        ctx.drawn_from = _generator_state(request.query.device) if request.dropout else None
        request = request.refill(iter(tensors))
        output = torch.empty(*request.query.shape[:3], request.value.shape[3], **_like(request.value))
        for queries, keys in _blocks(request):
            part = request.rows(queries.start, queries.stop).keys(keys.start, keys.stop)
            output[:, :, queries] = plain(part)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: the recomputed values would be treated as constants
            raise KernelError(
                "blocked attention has no second derivative", fix='choose another kernel: using(attention="plain")'
            )
        with _drawing_again(ctx.drawn_from, gradient.device):
            return _Blocked._recompute(ctx, gradient)

    @staticmethod
    def _recompute(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        device, dtype, enabled = ctx.autocast
        totals = [
            torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)) if want else None
            for tensor, want in zip(tensors, wanted, strict=True)
        ]  # hundreds of blocks are added: a bfloat16 sum would stop growing
        for queries, keys in _blocks(ctx.request.refill(iter(tensors))):
            cuts: list[Any] = [(..., queries, slice(None)), (..., keys, slice(None)), (..., keys, slice(None))]
            cuts += [...] * (len(tensors) - 3)
            parts = [
                tensor[cut].detach().requires_grad_(want)
                for tensor, cut, want in zip(tensors, cuts, wanted, strict=True)
            ]
            with torch.enable_grad(), torch.autocast(device, dtype=dtype, enabled=enabled):
                request = ctx.request._replace(
                    query_places=ctx.request.query_places.cut(queries.start, queries.stop),
                    key_places=ctx.request.key_places.cut(keys.start, keys.stop),
                )
                output = plain(request.refill(iter(parts)))
            leaves = [part for part in parts if part.requires_grad]
            found = iter(torch.autograd.grad(output, leaves, gradient[:, :, queries], allow_unused=True))
            for total, cut in zip(totals, cuts, strict=True):
                if total is not None and (piece := next(found)) is not None:
                    total[cut] += piece
        cast = (
            None if total is None else total.to(tensor.dtype) for total, tensor in zip(totals, tensors, strict=True)
        )
        return (None, *cast)


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def _drawing_again(state: Tensor | None, device: torch.device) -> Iterator[None]:
    """Replay dropout from this generator state in the block; then restore the generator."""
    if state is None:
        yield
        return
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        if on_cuda:
            torch.cuda.set_rng_state(state, device)
        else:
            torch.set_rng_state(state)
        yield


def _like(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "device": tensor.device}


def _blocked(request: Request) -> Tensor:
    result: Tensor = _Blocked.apply(request, *request.tensors())  # type: ignore[no-untyped-call]
    return result


BLOCKED = Kernel("blocked", _blocked_refuses, _blocked_declines, _blocked)
