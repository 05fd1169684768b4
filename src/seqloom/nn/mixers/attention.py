"""Attention as a mixer: every position asks all that it may see, and takes a mixture of what they hold.

    q = W_Q x,  k = W_K x,  v = W_V x       split into heads
    head_h = attend(q_h, k_h, v_h)          score x mask x position x kernel: seqloom.nn.ops.attention
    y = W_O [head_1; ...; head_H]

Of the three uses (deck D), two are here: encoder self-attention sees both sides, decoder self-attention only the past.
The third, attention of a decoder to what an encoder left, is in `seqloom.nn.mixers.cross`.
"""

from typing import NamedTuple

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
from seqloom.errors import DataError
from seqloom.nn.mixers.contract import CausalMixer, Mixer
from seqloom.nn.mixers.growing import Growing
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend
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
from seqloom.nn.types import Layout, Padded, Places, places_of


class Matcher(nn.Module):
    """The learned part of a score, for each head; dot and scaled dot have none."""

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
        """The score in the form that the operators take."""
        if self.name == "bilinear":
            return Bilinear(self.weight)
        if self.name == "additive":
            return Additive(self.query_weight, self.key_weight, self.direction)
        return Dot() if self.name == "dot" else ScaledDot()


class Relation(nn.Module):
    """What distance adds: the learned tables of Shaw and T5, the fixed slopes of ALiBi, or the turning of rotary."""

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
        """The bias in the form that the operators take."""
        if self.position == "shaw":
            return Shaw(self.keys, self.values)
        if self.position == "t5":
            return Buckets(self.table, self.two_sided, T5_FARTHEST)
        return Alibi(self.slopes) if self.position == "alibi" else NoBias()

    def turn(self, vectors: Tensor, places: Places, layout: Layout) -> Tensor:
        """Queries or keys [B,H,T,D] as they enter the score."""
        if self.position != "rotary":
            return vectors
        width = vectors.shape[-1]
        wide = torch.float64 if vectors.dtype == torch.float64 else torch.float32
        key = ("turns", places.positions, width, wide)
        return turn(vectors, layout.once(key, lambda: turns(places.positions, width).to(wide)))


class Heads(nn.Module):
    """Queries, keys and values of every head, and the way back: W_Q, W_K, W_V, W_O with biases."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def split(self, values: Tensor) -> Tensor:
        """[B,T,D] as [B,H,T,D/H]."""
        batch, time, width = values.shape
        return values.view(batch, time, self.num_heads, width // self.num_heads).transpose(1, 2)

    def project(self, values: Tensor, *linears: nn.Linear) -> tuple[Tensor, ...]:
        """What some of the linear maps make of [B,T,D], each [B,H,T,D/H].

        Where gradients are wanted it is one map: that saves two thirds of the backward pass's kernels. Elsewhere there
        is nothing to save, and who writes token by token would copy all weights for each.
        """
        if not torch.is_grad_enabled():
            return tuple(self.split(linear(values)) for linear in linears)
        weight, bias = (torch.cat(parts) for parts in zip(*((each.weight, each.bias) for each in linears), strict=True))
        shape = (len(linears), self.num_heads, values.shape[2] // self.num_heads)
        every = F.linear(values, weight, bias).view(*values.shape[:2], *shape)  # [B,T,n,H,D/H]
        return every.permute(2, 0, 3, 1, 4).unbind()

    def join(self, values: Tensor) -> Tensor:
        """[B,H,T,D/H] as [B,T,D], through W_O."""
        joined: Tensor = self.output(values.transpose(1, 2).flatten(-2))
        return joined


def pattern_mask(pattern: Pattern, *, causal: bool) -> Mask:
    """Who may read whom under a pattern of attention; the edges of a graph come with each batch (`edges_mask`)."""
    direction: Mask = Causal() if causal else Everything()
    if isinstance(pattern, FullConfig | EdgesConfig):
        return direction
    if isinstance(pattern, WindowConfig):
        return WindowMask(pattern.size - 1, 0 if causal else pattern.size - 1)
    return direction & (BlockLocal(pattern.size) | Strided(pattern.size))


def edges_mask(x: Padded) -> Mask:
    """Who may read whom in a batch of graphs, made once for all layers."""
    edges = x.edges
    if edges is None:
        raise DataError(
            "attention along edges needs a graph, and this input has no edges",
            fix="give nodes and edges, or take a model without the pattern 'edges'",
        )
    if x.segments is not None:
        raise DataError("graphs cannot be packed into shared rows", fix="give each graph a row of its own")
    return x.layout.once(("edges", edges), lambda: Neighbors(edges, x.values.shape[1]))


Vectors = tuple[Tensor, Tensor, Tensor]  # queries, keys and values, each [B,H,T,D/H]


class _SelfAttending(nn.Module):
    """What self-attention in both directions and in one share."""

    def __init__(self, config: AttentionConfig, width: int, position: Position, *, causal: bool) -> None:
        super().__init__()
        config.fit(width, position)
        head_width = width // config.num_heads
        self.heads = Heads(width, config.num_heads)
        self.matcher = Matcher(config.score, config.num_heads, head_width)
        self.relation = Relation(position, config.num_heads, head_width, two_sided=not causal)
        self.pattern, self.reads_edges = pattern_mask(config.pattern, causal=causal), config.reads_edges()
        self.dropout = config.dropout
        self.weights = Tap()  # the Request, offered: `weights` of nn/ops/attention.py gives any of its rows
        self.mixed = Tap()  # [B,H,T,D/H] what each head found

    def request(self, vectors: Vectors, places: Places, layout: Layout, *, extra: Mask) -> Request:
        """The request for one sequence that attends to itself: every pattern lets a real element read itself."""
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
        """Queries, keys and values of every head, turned by their positions if they are rotary."""
        heads, turn = self.heads, self.relation.turn
        query, key, value = heads.project(x.values, heads.query, heads.key, heads.value)
        return turn(query, places, layout), turn(key, places, layout), value

    def answer(self, x: Padded, request: Request) -> Padded:
        """What the heads found, joined."""
        self.weights.offer(lambda: request)
        return x.with_values(self.heads.join(self.mixed(attend(request))))

    def whole(self, x: Padded, *, sees_ahead: bool) -> Padded:
        """The whole sequence at once; padding is masked only where a real query could see it."""
        layout = x.layout
        extra: Mask = Everything() if x.full or not sees_ahead else Padding()
        if self.reads_edges:
            extra = extra & edges_mask(x)
        if x.segments is not None:
            extra = extra & DocumentMask()
        vectors = self.project(x, layout.places, layout)
        return self.answer(x, self.request(vectors, layout.places, layout, extra=extra))


class SelfAttention(_SelfAttending, Mixer):
    """Positions see both sides, as far as the pattern goes."""

    def __init__(self, config: AttentionConfig, width: int, position: Position = "none") -> None:
        super().__init__(config, width, position, causal=False)

    def forward(self, x: Padded) -> Padded:
        return self.whole(x, sees_ahead=True)


class Read(NamedTuple):
    """Where the elements stood that are remembered: all layers of a stack that remember the same share it."""

    positions: Tensor  # [B,S] int64
    valid: Tensor  # [B,S] bool: rows of a batch may have read different numbers of elements
    seen: Tensor  # [B] int64, elements read

    @property
    def places(self) -> Places:
        """Where the keys stand."""
        return Places(self.positions, torch.zeros_like(self.positions), self.valid)

    def followed_by(self, places: Places, lengths: Tensor) -> "Read":
        """The same after further elements."""
        positions = torch.cat([self.positions, places.positions], dim=1)
        return Read(positions, torch.cat([self.valid, places.valid], dim=1), self.seen + lengths)

    def latest(self, count: int) -> tuple[Tensor, "Read"]:
        """[B,count] the columns of the last real elements of each row, and where those stood."""
        order = self.positions.masked_fill(~self.valid, -1).topk(count, dim=1).indices.flip(1)
        return order, Read(self.positions.gather(1, order), self.valid.gather(1, order), self.seen)


class Cache(NamedTuple):
    """What attention remembers: the keys and values it has read, and where they stood."""

    keys: Growing  # [B,H,S,D/H]
    values: Growing  # [B,H,S,D/H]
    read: Read


class CausalSelfAttention(_SelfAttending, CausalMixer[Cache]):
    """Positions see the past, as far as the pattern goes; a window forgets what is out of its reach."""

    def __init__(self, config: AttentionConfig, width: int, position: Position = "none") -> None:
        super().__init__(config, width, position, causal=True)
        self.reach = self.pattern.reach()[0]

    def forward(self, x: Padded) -> Padded:
        return self.whole(x, sees_ahead=False)

    def begin(self, batch_size: int) -> Cache:
        weight = self.heads.key.weight
        empty = weight.new_zeros(batch_size, self.heads.num_heads, 0, weight.shape[0] // self.heads.num_heads)
        nowhere = torch.zeros(batch_size, 0, dtype=torch.int64, device=weight.device)
        return Cache(Growing([empty]), Growing([empty]), Read(nowhere, nowhere.bool(), nowhere.sum(dim=1)))

    def reset(self, inner: Cache, rows: Tensor) -> Cache:
        valid = inner.read.valid & ~rows[:, None]
        used = valid.any(dim=0)  # columns that no row reads any more are dropped
        return Cache(
            Growing([inner.keys.held[:, :, used]]),
            Growing([inner.values.held[:, :, used]]),
            Read(inner.read.positions[:, used], valid[:, used], inner.read.seen.masked_fill(rows, 0)),
        )

    def extend(self, x: Padded, inner: Cache) -> tuple[Padded, Cache]:
        layout, first = x.layout, inner.read.valid.shape[1] == 0
        # An empty cache has read nothing, unless its reach is none: then all layers begin alike. Else the whole of Read
        # is the key: a layer that forgot columns has other ones than a layer that has seen just as many elements.
        key = ("first",) if first and self.reach != 0 else inner.read
        places, read, key_places = layout.once(("read on", *key), lambda: _read_on(x, inner.read))
        query, further_keys, further_values = self.project(x, places, layout)
        cache = Cache(inner.keys.followed_by(further_keys), inner.values.followed_by(further_values), read)
        vectors = (query, cache.keys.held, cache.values.held)
        request = self.request(vectors, places, layout, extra=Everything() if first else Padding())
        request = request._replace(key_places=key_places, aligned=first)
        return self.answer(x, request), self._forget(cache, layout)

    def _forget(self, cache: Cache, layout: Layout) -> Cache:
        """The cache without what no later query can see: the last `reach` real keys of each row stay."""
        reach, read = self.reach, cache.read
        if reach is None or read.valid.shape[1] <= reach:
            return cache
        order, kept = layout.once(("latest", reach, *read), lambda: read.latest(reach))
        wide = order[:, None, :, None].expand(-1, cache.keys.held.shape[1], -1, cache.keys.held.shape[3])
        return Cache(Growing([cache.keys.held.gather(2, wide)]), Growing([cache.values.held.gather(2, wide)]), kept)


def _read_on(x: Padded, read: Read) -> tuple[Places, Read, Places]:
    """Where further elements stand, what is read with them, and where all keys stand then."""
    places = places_of(x, read.seen)
    after = read.followed_by(places, x.lengths)
    return places, after, after.places
