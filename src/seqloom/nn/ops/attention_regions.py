"""Blockwise attention on the CPU: each block of queries reads its keys in regions, by torch's fused kernel.

                     keys
            | whole region | masked |          no mask is made for a region that all queries of the block may read;
    queries | no mask      | dense  |          ALiBi needs one number per key there, not one per pair
            |              |        |

A softmax over regions is their mixture. With the logarithm l_r of the sum of the exponentials of each region,

    o = sum_r exp(l_r - l) o_r           l = log sum_r exp(l_r)

and the backward pass of the fused kernel, given o and l, returns a region's share of all gradients. Memory is linear
in the length, and keys out of reach cost no time.
"""

from collections.abc import Iterator
from math import inf, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.attention_blocked import out_of_reach
from seqloom.nn.ops.attention_tiles import cast, ranges_refuse, refuse_second_derivative, spans
from seqloom.nn.ops.masks import Causal, Everything, Padding, compact
from seqloom.nn.ops.relations import Alibi, NoBias
from seqloom.nn.ops.scores import Additive, scaled
from seqloom.nn.ops.spans import KeySpans

DTYPES = (torch.float32, torch.float64)  # narrower numbers are slow on CPUs
_BLOCK = 128  # queries per block, four times as many where the reach has no limit (measured)
_SHORT = 512  # elements: below, one dense mask or bias costs less than many blocks
_CELLS = 2**22  # numbers of a mask or bias that are worth storing
NOTHING = 14.0  # a weight of exp(-14) times the rounding error, also if there are thousands of them

_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _regions_refuses(request: Request) -> str | None:
    if request.query.device.type != "cpu":
        return "it runs on CPUs"
    if reason := ranges_refuse(request, Alibi):
        return reason
    if request.query.dtype not in DTYPES:
        return f"it does not support {str(request.query.dtype).removeprefix('torch.')}"
    if request.query.shape[3] != request.value.shape[3]:
        return "values have another width than keys"
    return None


def _regions_declines(request: Request) -> str | None:
    batch, _, time = request.query.shape[:3]
    if isinstance(request.bias, NoBias):
        if request.mask == Causal() or all(isinstance(part, Everything | Padding) for part in request.mask.parts()):
            return "sdpa stores no matrix here and is faster"
        if out_of_reach(request) or batch * time * time > _CELLS:
            return None
        return "the mask is small enough to store"
    if time < _SHORT:
        return f"below {_SHORT} elements, sdpa with a dense bias is faster"
    return None


class _Region(NamedTuple):
    """Keys start..stop of a block of queries."""

    start: int
    stop: int
    term: Tensor | None  # added to the scores: [B or 1,H or 1,T or 1,S]
    shift: Tensor | None  # [1,H,T] added to the scores of a query after that, so to its logarithm


class _RegionWork(NamedTuple):
    """A request as the autograd function keeps it: everything but query, key and value."""

    request: Request  # its tensors are not used
    spans: KeySpans
    scale: float
    lowest: float = -inf  # a bias below this makes a weight that rounds to nothing


def _blocks(work: _RegionWork, time: int) -> Iterator[tuple[int, int, list[_Region]]]:
    """Every block of queries, start..stop, with its regions of keys."""
    block = 4 * _BLOCK if None in work.request.mask.reach() else _BLOCK
    for start in range(0, time, block):
        stop = min(start + block, time)
        yield start, stop, list(_regions(work, start, stop))


def _regions(work: _RegionWork, start: int, stop: int) -> Iterator[_Region]:
    first, last = work.spans.first[:, start:stop], work.spans.last[:, start:stop]
    lowest, highest = int(first.min()), int(last.max())
    bias = work.request.bias
    whole = [] if work.spans.sparse.stride else [(int(first.max()), int(last.min()))]
    if isinstance(bias, Alibi):  # beside the block its bias is a number per key and one per query
        whole = [pair for low, high in whole for pair in ((low, min(high, start)), (max(low, stop), high))]
    at = lowest
    for low, high in [(low, high) for low, high in whole if high - low >= _BLOCK] + [(highest, highest)]:
        if at < low:
            yield _Region(at, low, _dense(work, start, stop, at, low), None)
        if low < high:
            yield _plain_region(work, start, stop, low, high)
        at = max(at, high)


def _plain_region(work: _RegionWork, start: int, stop: int, low: int, high: int) -> _Region:
    """Keys low..high that all queries start..stop may read."""
    bias = work.request.bias
    if not isinstance(bias, Alibi):
        return _Region(low, high, None, None)
    slopes = bias.slopes[None, :, None]  # [1,H,1]
    near = start if high <= start else stop  # distances from here are small where weights are large
    keys, queries = torch.arange(low, high), torch.arange(start, stop)
    term = -slopes * (keys - near).abs()  # [1,H,S]
    term = term.masked_fill_(term < work.lowest, torch.finfo(term.dtype).min / 2)
    return _Region(low, high, term[:, :, None], -slopes * (queries - near).abs())


def _lowest_bias(request: Request, spans: KeySpans, query: Tensor, key: Tensor, scale: float) -> float:
    """The bias below which no key can matter to a query that also reads itself; minus infinity if there is none.

    A score is at most s = scale |q| |k|, and the query itself has a score of at least -s and a bias of 0. So a key has
    a weight of at most exp(2 s + bias), and all of them together are lost in rounding. Without this, many weights of
    ALiBi would be numbers so small that CPUs multiply them many times slower than others.
    """
    own = torch.arange(query.shape[2])  # what queries of the padding read is not used
    reads_itself = (spans.first <= own) & (own < spans.last) & (spans.first_reader <= own) & (own < spans.last_reader)
    if not isinstance(request.bias, Alibi) or not query.numel() or not key.numel():
        return -inf
    if not bool((reads_itself | ~request.query_places.valid).all()):
        return -inf
    most = scale * float(query.detach().norm(dim=-1).amax()) * float(key.detach().norm(dim=-1).amax())
    return -(2 * most + NOTHING - log(torch.finfo(query.dtype).eps))


def _dense(work: _RegionWork, start: int, stop: int, low: int, high: int) -> Tensor:
    """Mask and bias of queries start..stop and keys low..high as one term of the scores."""
    request = work.request
    query, key = request.query_places.cut(start, stop), request.key_places.cut(low, high)
    allowed = compact(request.mask, query, key)
    dtype = torch.float64 if request.query.dtype == torch.float64 else torch.float32
    term = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min / 2)
    return term + request.bias.term(query, key).to(dtype) if isinstance(request.bias, Alibi) else term


class _Regions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: _RegionWork, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, heads, time, width = query.shape
        output = query.new_empty(batch, time, heads, width).transpose(1, 2)
        levels = query.new_empty(batch, heads, time)
        for start, stop, regions in _blocks(work, time):
            parts = [_read(work, query[:, :, start:stop], key, value, region) for region in regions]
            output[:, :, start:stop], levels[:, :, start:stop] = _merged(parts, query[:, :, start:stop])
        ctx.work = work
        ctx.save_for_backward(query, key, value, output, levels)
        return output

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("regions")
        query, key, value, output, levels = ctx.saved_tensors
        of_query, of_key, of_value = (torch.zeros_like(tensor) for tensor in (query, key, value))
        nothing = _read_nothing(levels)[..., None]
        for start, stop, regions in _blocks(ctx.work, query.shape[2]):
            block = (..., slice(start, stop), slice(None))
            incoming = upstream[block].masked_fill(nothing[block], 0)
            for region in regions:
                keys = (..., slice(region.start, region.stop), slice(None))
                level = levels[:, :, start:stop]
                level = level if region.shift is None else level - region.shift
                found = _attend_backward(
                    incoming, query[block], key[keys], value[keys], output[block], level, 0.0, False,
                    attn_mask=region.term, scale=ctx.work.scale,
                )  # fmt: skip
                for total, cut, part in zip((of_query, of_key, of_value), (block, keys, keys), found, strict=True):
                    total[cut] += part
        return None, of_query, of_key, of_value


def _read(work: _RegionWork, query: Tensor, key: Tensor, value: Tensor, region: _Region) -> tuple[Tensor, Tensor]:
    """The mixture of the values of a region, and the logarithm of the sum of its exponentials."""
    key, value = key[:, :, region.start : region.stop], value[:, :, region.start : region.stop]
    mixed, level = _attend(query, key, value, 0.0, False, attn_mask=region.term, scale=work.scale)
    return mixed, level if region.shift is None else level + region.shift


def _merged(parts: list[tuple[Tensor, Tensor]], query: Tensor) -> tuple[Tensor, Tensor]:
    if not parts:  # no query of the block may read anything
        return torch.zeros_like(query), torch.full_like(query[..., 0], torch.finfo(query.dtype).min)
    mixed, level = parts[0]
    if len(parts) > 1:
        level = torch.stack([each for _, each in parts]).logsumexp(dim=0)
        shares = ((each - level).exp()[..., None] * mixed for mixed, each in parts)
        mixed = sum(shares, start=torch.zeros_like(mixed))
    return mixed.masked_fill(_read_nothing(level)[..., None], 0), level


def _read_nothing(levels: Tensor) -> Tensor:
    """Where a query has read nothing: all of its scores were masked."""
    return levels < torch.finfo(levels.dtype).min / 4


def _regions_run(request: Request) -> Tensor:
    assert not isinstance(request.score, Additive)
    query, scale = scaled(request.score, request.query)
    query, key, value = cast(request, query, request.key, request.value)
    empty = query.new_empty(0)
    ranges = spans(request)
    lowest = _lowest_bias(request, ranges, query, key, scale)
    work = _RegionWork(request._replace(query=empty, key=empty, value=empty), ranges, scale, lowest)
    result: Tensor = _Regions.apply(work, query, key, value)  # type: ignore[no-untyped-call]
    return result


REGIONS = Kernel("regions", _regions_refuses, _regions_declines, _regions_run)
