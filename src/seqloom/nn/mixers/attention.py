"""Attention as a mixer: every position reads a weighted mixture of all positions that it may see.

    q = W_Q x,  k = W_K x,  v = W_V x       split into heads
    head_h = attend(q_h, k_h, v_h)          score x mask x position x kernel: seqloom.nn.ops.attention
    y = W_O [head_1; ...; head_H]

Two of the three uses (deck D) are here: encoder self-attention sees both sides, decoder self-attention only the past.
The third, attention of a decoder to encoder outputs, is in `seqloom.nn.mixers.cross`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.mixers import (
    SHAW_RADIUS,
    T5_BUCKETS,
    T5_FARTHEST,
    AttentionConfig,
    EdgesConfig,
    FullConfig,
    Pattern,
    Position,
    WindowConfig,
)
from seqloom.config.mixers import Score as ScoreName
from seqloom.errors import ConfigError, DataError
from seqloom.nn.mixers.contract import CausalMixer, Mixer
from seqloom.nn.mixers.growing import Growing
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend
from seqloom.nn.ops.attention_single import write
from seqloom.nn.ops.linear import linear, through
from seqloom.nn.ops.masks import (
    BlockLocal,
    Causal,
    DocumentMask,
    Everything,
    Mask,
    Neighbors,
    Padding,
    Strided,
    WindowMask,
)
from seqloom.nn.ops.relations import Alibi, Bias, Buckets, NoBias, Shaw, alibi_slopes, turn, turns
from seqloom.nn.ops.scores import Additive, Bilinear, Dot, ScaledDot, Score
from seqloom.nn.taps import Tap
from seqloom.nn.types import Layout, Once, Padded, Places, places_of


class Matcher(nn.Module):
    """The learned part of a score, for each head; dot and scaled dot have no weights."""

    def __init__(self, name: ScoreName, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.name = name
        bound = head_width**-0.5

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(num_heads, *shape).uniform_(-bound, bound))

        if name == "bilinear":
            self.weight = drawn(head_width, head_width)
        if name == "additive":
            self.query_weight, self.key_weight = drawn(head_width, head_width), drawn(head_width, head_width)
            self.direction = drawn(head_width)

    def score(self) -> Score:
        """Return the score in the form that the operators take."""
        if self.name == "bilinear":
            return Bilinear(self.weight)
        if self.name == "additive":
            return Additive(self.query_weight, self.key_weight, self.direction)
        return Dot() if self.name == "dot" else ScaledDot()


class Relation(nn.Module):
    """Relative positions: the learned tables of Shaw and T5, the fixed slopes of ALiBi, or rotary embeddings."""

    slopes: Tensor

    def __init__(self, position: Position, num_heads: int, head_width: int, *, two_sided: bool) -> None:
        super().__init__()
        self.position, self.two_sided = position, two_sided
        if position == "shaw":
            rows = 2 * SHAW_RADIUS + 1
            self.keys = nn.Parameter(torch.randn(rows, head_width) * head_width**-0.5)
            self.values = nn.Parameter(torch.randn(rows, head_width) * head_width**-0.5)
        if position == "t5":
            self.table = nn.Parameter(torch.randn(T5_BUCKETS, num_heads) * 0.1)
        if position == "alibi":
            self.register_buffer("slopes", torch.tensor(alibi_slopes(num_heads)), persistent=False)

    def bias(self) -> Bias:
        """Return the bias in the form that the operators take."""
        if self.position == "shaw":
            return Shaw(self.keys, self.values)
        if self.position == "t5":
            return Buckets(self.table, self.two_sided, T5_FARTHEST)
        return Alibi(self.slopes) if self.position == "alibi" else NoBias()

    def turn(self, vectors: Tensor, places: Places, layout: Layout) -> Tensor:
        """Return queries or keys [B,H,T,D], rotated if the positions are rotary."""
        if self.position != "rotary":
            return vectors
        width = vectors.shape[-1]
        wide = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        key = ("turns", places.positions, width, wide)
        return turn(vectors, layout.once(key, lambda: turns(places.positions, width).to(wide)))


class Heads(nn.Module):
    """Query, key, value and output projections of all heads: W_Q, W_K, W_V, W_O with biases."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.together: Callable[[Tensor], Tensor] | None = None  # W_Q, W_K and W_V in another precision
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        for each in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(each.weight)
            nn.init.zeros_(each.bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.query.weight.is_cuda:
            self.lay_together()
        return self

    def lay_together(self) -> None:
        """Store W_Q, W_K and W_V in one chunk of memory, so that a GPU can multiply by all of them at once."""
        linears = (self.query, self.key, self.value)
        for name in ("weight", "bias"):
            parts = [getattr(each, name) for each in linears]
            for part, laid in zip(parts, torch.cat([part.detach() for part in parts]).chunk(len(parts)), strict=True):
                part.data = laid

    def split(self, values: Tensor) -> Tensor:
        """Reshape [B,T,D] to [B,H,T,D/H]."""
        batch, time, width = values.shape
        return values.view(batch, time, self.num_heads, width // self.num_heads).transpose(1, 2)

    def project(self, values: Tensor, *linears: nn.Linear) -> tuple[Tensor, ...]:
        """Apply some of the projections to [B,T,D]; each result is [B,H,T,D/H].

        With gradients, the projections are one matrix product, which saves two thirds of the backward pass's kernels.
        Without, generation would copy all weights for each token, unless they are in one chunk of memory.
        """
        shape = (len(linears), self.num_heads, values.shape[2] // self.num_heads)
        if torch.is_grad_enabled():
            weight, bias = self.joined(*linears)
        elif self.together is not None and linears == (self.query, self.key, self.value):
            every = self.together(values).view(*values.shape[:2], *shape)
            return every.permute(2, 0, 3, 1, 4).unbind()
        elif all(_adjoin([getattr(each, name) for each in linears]) for name in ("weight", "bias")):
            rows, width = sum(len(each.weight) for each in linears), values.shape[2]
            weight = linears[0].weight.as_strided((rows, width), (width, 1))
            bias = linears[0].bias.as_strided((rows,), (1,))
        else:
            return tuple(self.split(through(each, values)) for each in linears)
        every = linear(values, weight, bias).view(*values.shape[:2], *shape)  # [B,T,n,H,D/H]
        return every.permute(2, 0, 3, 1, 4).unbind()

    def joined(self, *linears: nn.Linear) -> tuple[Tensor, Tensor]:
        """The weights and biases of some of the projections, one below the other."""
        return torch.cat([each.weight for each in linears]), torch.cat([each.bias for each in linears])

    def join(self, values: Tensor) -> Tensor:
        """Merge heads [B,H,T,D/H] to [B,T,D] and apply W_O."""
        return through(self.output, values.transpose(1, 2).flatten(-2))


def _adjoin(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are parts of one chunk of memory, one directly behind the other."""
    storage = tensors[0].untyped_storage().data_ptr()
    return all(
        one.is_contiguous()
        and other.untyped_storage().data_ptr() == storage
        and other.storage_offset() == one.storage_offset() + one.numel()
        for one, other in pairwise(tensors)
    )


def pattern_mask(pattern: Pattern, *, causal: bool) -> Mask:
    """Return the mask of an attention pattern. For graphs, `edges_mask` adds the edges of each batch to it."""
    direction: Mask = Causal() if causal else Everything()
    if isinstance(pattern, FullConfig | EdgesConfig):
        return direction
    if isinstance(pattern, WindowConfig):
        return WindowMask(pattern.size - 1, 0 if causal else pattern.size - 1)
    return direction & (BlockLocal(pattern.size) | Strided(pattern.size))


def edges_mask(x: Padded) -> Mask:
    """Return the mask that lets each node read its neighbors in a batch of graphs; it is made once for all layers."""
    edges = x.edges
    if edges is None:
        raise DataError(
            "attention along edges needs a graph, but this input has no edges",
            fix="give nodes and edges, or use a model without the pattern 'edges'",
        )
    if x.segments is not None:
        raise DataError("several graphs cannot share one row of a batch", fix="give each graph its own row")
    return x.layout.once(("edges", edges), lambda: Neighbors(edges, x.values.shape[1]))


Vectors = tuple[Tensor, Tensor, Tensor]  # queries, keys and values, each [B,H,T,D/H]


class _SelfAttending(nn.Module):
    """Shared parts of bidirectional and causal self-attention."""

    def __init__(self, config: AttentionConfig, width: int, position: Position, *, causal: bool) -> None:
        super().__init__()
        config.fit(width, position)
        head_width = width // config.num_heads
        self.heads = Heads(width, config.num_heads)
        self.matcher = Matcher(config.score, config.num_heads, head_width)
        self.relation = Relation(position, config.num_heads, head_width, two_sided=not causal)
        self.pattern, self.reads_edges = pattern_mask(config.pattern, causal=causal), config.reads_edges()
        self.dropout = config.dropout
        self.weights = Tap()  # the Request: `weights` of nn/ops/attention.py computes any of its rows
        self.mixed = Tap()  # [B,H,T,D/H] output of each head

    def request(self, vectors: Vectors, places: Places, layout: Layout, *, extra: Mask) -> Request:
        """Return the request for self-attention over one sequence; in every pattern, a real element may read itself."""
        return Request(
            *vectors,
            places,
            places,
            score=self.matcher.score(),
            mask=self.pattern & extra,
            bias=self.relation.bias(),
            dropout=self.dropout if self.training else 0.0,
            aligned=True,
            heedless=True,
            shared=layout,
        )

    def project(self, x: Padded, places: Places, layout: Layout) -> Vectors:
        """Return the queries, keys and values of every head, rotated if positions are rotary."""
        heads, turn = self.heads, self.relation.turn
        query, key, value = heads.project(x.values, heads.query, heads.key, heads.value)
        return turn(query, places, layout), turn(key, places, layout), value

    def answer(self, x: Padded, request: Request) -> Padded:
        """Compute the attention and join its heads."""
        self.weights.offer(lambda: request)
        return x.with_values(self.heads.join(self.mixed(attend(request))))

    def whole(self, x: Padded, *, sees_ahead: bool) -> Padded:
        """Process complete sequences; padding is masked only where a real query could see it."""
        layout = x.layout
        extra: Mask = Everything() if x.full or not sees_ahead else Padding()
        if self.reads_edges:
            extra = extra & edges_mask(x)
        if x.segments is not None:
            extra = extra & DocumentMask()
        vectors = self.project(x, layout.places, layout)
        return self.answer(x, self.request(vectors, layout.places, layout, extra=extra))


class SelfAttention(_SelfAttending, Mixer):
    """Self-attention to both sides, as far as the pattern reaches."""

    def __init__(self, config: AttentionConfig, width: int, position: Position = "none") -> None:
        super().__init__(config, width, position, causal=False)

    def forward(self, x: Padded) -> Padded:
        return self.whole(x, sees_ahead=True)


class Read(NamedTuple):
    """The positions of cached elements; all layers of a stack with equal caches share it."""

    positions: Tensor  # [B,S] int64
    valid: Tensor  # [B,S] bool: rows of a batch may have read different numbers of elements
    seen: Tensor  # [B] int64, elements read

    @property
    def places(self) -> Places:
        """Return the positions of the keys."""
        return Places(self.positions, torch.zeros_like(self.positions), self.valid)

    def followed_by(self, places: Places, lengths: Tensor) -> "Read":
        """Return the record after further elements."""
        positions = torch.cat([self.positions, places.positions], dim=1)
        return Read(positions, torch.cat([self.valid, places.valid], dim=1), self.seen + lengths)

    def columns(self, size: int) -> Tensor:
        """[B,S] the column of each element in a ring of `size` columns; `size` for padding and for what is too old."""
        kept = self.valid & (self.positions >= self.seen[:, None] - size)
        return torch.where(kept, self.positions % size, size)

    def latest(self, count: int) -> tuple[Tensor, "Read"]:
        """Return the columns [B,count] of the last real elements of each row, and their positions."""
        order = self.positions.masked_fill(~self.valid, -1).topk(count, dim=1).indices.flip(1)
        return order, Read(self.positions.gather(1, order), self.valid.gather(1, order), self.seen)


class Cache(NamedTuple):
    """The state of causal attention: keys and values read so far, and their positions."""

    keys: Growing  # [B,H,S,D/H]
    values: Growing  # [B,H,S,D/H]
    read: Read

    def columns(self, order: Tensor, read: Read) -> "Cache":
        """Return the cache of some columns [B,count] of each row, whose positions are `read`."""
        wide = order[:, None, :, None].expand(-1, self.keys.held.shape[1], -1, self.keys.held.shape[3])
        return Cache(Growing([self.keys.held.gather(2, wide)]), Growing([self.values.held.gather(2, wide)]), read)

    def compacted(self, once: Callable[[Any, Callable[[], Any]], Any]) -> "Cache":
        """Return the cache with as many columns as the longest row needs; `once` shares results between layers."""
        read = self.read
        longest = once(("longest", *read), lambda: int(read.valid.sum(dim=1).max()) if read.valid.numel() else 0)
        if longest == read.valid.shape[1]:
            return self
        return self.columns(*once(("compact", *read), lambda: read.latest(longest)))


class CacheBuffer(NamedTuple):
    """The same in a buffer: element p of a row is in column p modulo S, so that a window is a ring."""

    keys: Tensor  # [B,H,S,D/H]
    values: Tensor  # [B,H,S,D/H]
    seen: Tensor  # [B] int64, elements read

    def first(self, count: int) -> "CacheBuffer":
        """Return the first columns of the buffer; no row may have more elements."""
        return CacheBuffer(self.keys[:, :, :count], self.values[:, :, :count], self.seen)


class CausalSelfAttention(_SelfAttending, CausalMixer[Cache | CacheBuffer]):
    """Self-attention to the past, as far as the pattern reaches; a window drops keys that are out of reach."""

    def __init__(self, config: AttentionConfig, width: int, position: Position = "none") -> None:
        super().__init__(config, width, position, causal=True)
        self.reach = self.pattern.reach()[0]

    def require_endless(self) -> None:
        if self.reach is None:
            raise ConfigError(
                "attention without a window stores every element, so its memory grows with the stream",
                fix="train a model whose memory does not keep growing, such as lstm, window or linear-attention",
            )

    def forward(self, x: Padded) -> Padded:
        return self.whole(x, sees_ahead=False)

    def begin(self, batch_size: int) -> Cache:
        weight = self.heads.key.weight
        empty = weight.new_zeros(batch_size, self.heads.num_heads, 0, weight.shape[0] // self.heads.num_heads)
        nowhere = torch.zeros(batch_size, 0, dtype=torch.int64, device=weight.device)
        return Cache(Growing([empty]), Growing([empty]), Read(nowhere, nowhere.bool(), nowhere.sum(dim=1)))

    def buffer(self, inner: Cache | CacheBuffer, room: int, once: Once) -> CacheBuffer:
        before = inner.seen if isinstance(inner, CacheBuffer) else inner.read.seen
        size = once(("most", before), lambda: int(before.max())) + room
        size = size if self.reach is None else min(size, self.reach + 1)
        seen = once(("own", before), before.clone)
        if isinstance(inner, CacheBuffer):  # element p is still in column p, unless it is a complete ring already
            more = (0, 0, 0, max(0, size - inner.keys.shape[2]))
            return CacheBuffer(F.pad(inner.keys, more), F.pad(inner.values, more), seen)
        read = inner.read
        columns = once(("columns", *read, size), lambda: read.columns(size))[:, None, :, None]

        def laid(held: Tensor) -> Tensor:  # with one more column, for what is not kept
            wide = held.new_zeros(*held.shape[:2], size + 1, held.shape[3])
            return wide.scatter_(2, columns.expand_as(held), held)[:, :, :size]

        return CacheBuffer(laid(inner.keys.held), laid(inner.values.held), seen)

    def reset(self, inner: Cache | CacheBuffer, rows: Tensor) -> Cache:
        assert isinstance(inner, Cache), "a buffer has no documents"
        valid = inner.read.valid & ~rows[:, None]
        used = valid.any(dim=0)  # drop columns that no row can read
        return Cache(
            Growing([inner.keys.held[:, :, used]]),
            Growing([inner.values.held[:, :, used]]),
            Read(inner.read.positions[:, used], valid[:, used], inner.read.seen.masked_fill(rows, 0)),
        )

    def extend(self, x: Padded, inner: Cache | CacheBuffer) -> tuple[Padded, Cache | CacheBuffer]:
        if isinstance(inner, CacheBuffer):
            return self._extend_buffer(x, inner)
        layout, first = x.layout, inner.read.valid.shape[1] == 0
        # With an empty cache all layers have read the same, unless their reach is 0. Otherwise the key is the Read
        # object: a layer that dropped columns has different ones than a layer that has seen the same number of
        # elements.
        key = ("first",) if first and self.reach != 0 else inner.read
        places, read, key_places = layout.once(("read on", *key), lambda: _read_on(x, inner.read))
        query, further_keys, further_values = self.project(x, places, layout)
        cache = Cache(inner.keys.followed_by(further_keys), inner.values.followed_by(further_values), read)
        vectors = (query, cache.keys.held, cache.values.held)
        request = self.request(vectors, places, layout, extra=Everything() if first else Padding())
        request = request._replace(key_places=key_places, aligned=first)
        return self.answer(x, request), self._forget(cache, layout)

    def _extend_buffer(self, x: Padded, inner: CacheBuffer) -> tuple[Padded, CacheBuffer]:
        """Process one element of each row: its key and value are written over those that it cannot see any more.

        An empty row writes too, but no later query reads it: its next element is written to the same column.
        """
        assert x.values.shape[1] == 1, "a buffer is extended by one element"
        layout, size = x.layout, inner.keys.shape[2]
        ring = layout.once(("ring", inner.seen, size), lambda: Ring.of(x, inner.seen, size))
        query, key, value = self.project(x, ring.query, layout)
        write(inner.keys, inner.values, ring.column, key, value)
        request = self.request((query, inner.keys, inner.values), ring.query, layout, extra=Padding())
        request = request._replace(key_places=ring.keys, aligned=False)
        return self.answer(x, request), inner._replace(seen=ring.seen)

    def _forget(self, cache: Cache, layout: Layout) -> Cache:
        """Drop everything that no later query can see: keep the last `reach` real keys of each row."""
        reach, read = self.reach, cache.read
        if reach is None or read.valid.shape[1] <= reach:
            return cache
        return cache.columns(*layout.once(("latest", reach, *read), lambda: read.latest(reach)))


class Ring(NamedTuple):
    """One further element of each row in a ring of columns; all layers with equal buffers share it."""

    query: Places  # [B,1]
    keys: Places  # [B,S]
    column: Tensor  # [B,1,1,1] of the further element
    seen: Tensor  # [B] elements read, with the further one

    @classmethod
    def of(cls, x: Padded, seen: Tensor, size: int) -> "Ring":
        """Return the places of the elements of x after `seen` ones: a column has the latest position that fits it."""
        last = seen[:, None]
        positions = last - (last - torch.arange(size, device=seen.device)) % size
        keys = Places(positions, torch.zeros_like(positions), positions >= 0)
        return cls(places_of(x, seen), keys, (seen % size)[:, None, None, None], seen + x.lengths)


def _read_on(x: Padded, read: Read) -> tuple[Places, Read, Places]:
    """Return the positions of further elements, the updated record, and the positions of all keys."""
    places = places_of(x, read.seen)
    after = read.followed_by(places, x.lengths)
    return places, after, after.places
