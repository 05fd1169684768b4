"""Fast kernels for attention, each equal to `plain` on all it accepts and refusing the rest.

    edges    an edge list, one score per edge: O(E d)
    blocked  a block of queries at a time against the keys in reach, recomputed in the backward pass: O(T w d) for a
             window w, and memory linear in the length for any mask and bias
    sdpa     torch's fused kernel; masks and biases become one dense matrix, unless the mask is just causal

`choose` takes the first of `KERNELS` that accepts and suits; the order is the same on every device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import ConfigError, KernelError, did_you_mean
from seqloom.operators.attention import Kernel, Request, plain
from seqloom.operators.kernels import named
from seqloom.operators.masks import Causal, Edges, Everything, Padding, dense
from seqloom.operators.relations import NoBias, Shaw
from seqloom.operators.scores import Additive

_BLOCK = 256  # queries per block
_CELLS = 2**24  # numbers in one block's score matrix: 64 MiB of float32


# --- sdpa ------------------------------------------------------------------------------------------------------------


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


# --- blocked ---------------------------------------------------------------------------------------------------------


def _blocked_refuses(request: Request) -> str | None:
    if not request.aligned:
        return "queries and keys are not one sequence, so the keys in reach are not a range"
    return None


def _blocked_suits(request: Request) -> bool:
    batch, heads, time = request.query.shape[:3]
    before, after = request.mask.reach()
    if before is not None and after is not None and time > 2 * max(_BLOCK, before + after):
        return True  # most of the matrix is never looked at
    if _sdpa_refuses(request) is None and isinstance(request.bias, NoBias):
        if request.mask in (Everything(), Causal()):
            return False  # sdpa holds no matrix at all
        return batch * time * time > 4 * _CELLS  # it would hold the mask, one byte a cell
    return batch * heads * time * time * _inner(request) > _CELLS  # it, or plain, would hold scores or biases


def _inner(request: Request) -> int:
    """Numbers held for each pair of query and key: an additive score makes a vector of it."""
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
    """`plain` on one block of queries after another; nothing quadratic is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, request: Request, *tensors: Tensor) -> Tensor:
        ctx.request = request.refill(tensor.new_empty(0) for tensor in tensors)  # tensors are saved in one place alone
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
        if torch.is_grad_enabled():  # create_graph: what is recomputed here would be taken for a constant
            raise KernelError(
                "blocked attention has no second derivative", fix='name another: using(attention="plain")'
            )
        with _drawing_again(ctx.drawn_from, gradient.device):
            return _Blocked._recompute(ctx, gradient)

    @staticmethod
    def _recompute(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        device, dtype, enabled = ctx.autocast
        totals = [torch.zeros_like(tensor) if want else None for tensor, want in zip(tensors, wanted, strict=True)]
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
        return (None, *totals)


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def _drawing_again(state: Tensor | None, device: torch.device) -> Iterator[None]:
    """Inside the `with`, dropout draws what it drew from this state; afterwards the generator goes on as before."""
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


# --- edges -----------------------------------------------------------------------------------------------------------


def _edges_refuses(request: Request) -> str | None:
    parts = request.mask.parts()
    if sum(isinstance(part, Edges) for part in parts) != 1 or not all(isinstance(p, Edges | Padding) for p in parts):
        return "the mask is not one edge list (and padding)"
    if not request.aligned:
        return "queries and keys are not the same nodes"
    if not isinstance(request.bias, NoBias) or request.dropout > 0:
        return "it knows no bias and no dropout of weights"
    return None


def _edges(request: Request) -> Tensor:
    (graph,) = (part for part in request.mask.parts() if isinstance(part, Edges))
    time = request.query.shape[2]
    pairs = torch.unique(graph.pairs, dim=0)  # an edge listed twice is one edge
    source, target = pairs[(pairs < time).all(dim=1)].unbind(dim=1)  # [E] query, [E] key
    query, key, value = request.query[:, :, source], request.key[:, :, target], request.value[:, :, target]
    if isinstance(request.score, Additive):
        inner = torch.tanh(query @ request.score.query_weight + key @ request.score.key_weight)
        scores = torch.einsum("bhea,ha->bhe", inner, request.score.direction)
    else:
        scores = (request.score.prepare(query) * key).sum(dim=-1)  # [B,H,E]
    read = torch.ones_like(request.key_places.valid[:, target])
    if any(isinstance(part, Padding) for part in request.mask.parts()):
        read = request.key_places.valid[:, target]
    scores = scores.masked_fill(~read[:, None], torch.finfo(scores.dtype).min)
    rows = source.expand_as(scores)
    peak = scores.new_full((*scores.shape[:2], time), torch.finfo(scores.dtype).min)
    peak = peak.scatter_reduce(-1, rows, scores.detach(), "amax")
    mass = (scores - peak.gather(-1, rows)).exp().masked_fill(~read[:, None], 0)
    total = mass.new_zeros(*mass.shape[:2], time).scatter_add(-1, rows, mass)
    share = mass / total.gather(-1, rows).clamp(min=torch.finfo(mass.dtype).tiny)
    output = value.new_zeros(*value.shape[:2], time, value.shape[3])
    return output.index_add(2, source, share[..., None] * value)


# --- the choice ------------------------------------------------------------------------------------------------------


def _never(_: Request) -> None:
    return None


def _always(_: Request) -> bool:
    return True


PLAIN = Kernel("plain", _never, _always, plain)
SDPA = Kernel("sdpa", _sdpa_refuses, _always, _sdpa)
BLOCKED = Kernel("blocked", _blocked_refuses, _blocked_suits, _blocked)
EDGES = Kernel("edges", _edges_refuses, _always, _edges)

KERNELS: tuple[Kernel, ...] = (EDGES, BLOCKED, SDPA, PLAIN)


def choose(request: Request) -> Kernel:
    """The kernel that will compute a request: the one named by the user, or the first that accepts and suits."""
    name = named("attention")
    if name is None:
        return next(kernel for kernel in KERNELS if kernel.refuses(request) is None and kernel.suits(request))
    kernels = {kernel.name: kernel for kernel in KERNELS}
    if name not in kernels:
        raise ConfigError(f"there is no attention kernel '{name}'", fix=did_you_mean(name, kernels))
    if reason := kernels[name].refuses(request):
        raise KernelError(f"the attention kernel '{name}' cannot do what was asked: {reason}", fix="name another one")
    return kernels[name]


def attend(request: Request) -> Tensor:
    """Attention by the chosen kernel, [B,H,T,D]."""
    return choose(request).run(request)
