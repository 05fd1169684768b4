"""All attention heads at a glance: a small map of each, and what kind of head it is.

At most 512 evenly spaced queries of each head are used, and a map has at most 64 x 64 cells (block maxima), so the cost
does not grow with the square of the length. A head with a clear pattern need not matter for the prediction: see
faithfulness, or ablate it.

The kind of a head: the share of its weight on keys of each kind, compared with uniform attention.

    itself, previous, next     the key at the same place, one before, one after
    first                      the first key                       special    BEGIN, END, ...
    same word                  other subwords of the word          same token   the same token at another position
    induction                  the key after an earlier occurrence of the query's token (Elhage et al. 2021)
    diagonal                   keys near the straight line from the first row and column to the last

A head is named after the kind with the largest *lift*, (share - uniform) / (1 - uniform): 0 is uniform attention, 1 is
all of the weight. Queries with a single allowed key are not counted.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.inspect.attention_weights import AttentionLayer, AttentionRows, Pooled, coarser, heard, layers_of, pooled
from seqloom.inspect.map_page import MOST_BYTES, Map, MapCanvas, Named, sent_bytes
from seqloom.inspect.subject import NO_WORD, Reading, Subject, Token
from seqloom.inspect.view import View
from seqloom.report.document import DocumentBlock
from seqloom.report.figures.bars import MOST_BARS, Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import MOST_TILE_CELLS, Tile, Tiles
from seqloom.report.figures.matrix import LARGEST_SIDE, MOST_CELLS, Matrix
from seqloom.report.numbers import counted
from seqloom.report.numbers import number as brief

KINDS = ("itself", "previous", "next", "first", "special", "same word", "same token", "induction", "diagonal")
CALLED = 0.5  # least lift for a name
BROAD = 0.9  # least normalized entropy of a broad head
NEAR = 0.02  # of the length, at least one token: half width of the diagonal
LEAST_NEAR = 1
CERTAIN = 0.95


class HeadNumbers(NamedTuple):
    """Measures of a head, averaged over queries with more than one key."""

    entropy: float  # in nats
    normalized_entropy: float  # entropy / entropy of uniform attention
    distance: float  # in tokens, between query and keys; NaN between two sides
    shares: dict[str, float]  # of the weight, by kind
    uniform_shares: dict[str, float]  # of uniform attention
    rows: int  # number of counted queries

    @property
    def lifts(self) -> dict[str, float]:
        """How far each share is above uniform attention; 1 is all of the weight."""
        return {  # a kind that contains nearly all keys means nothing
            kind: (share - self.uniform_shares[kind]) / (1 - self.uniform_shares[kind])
            if self.uniform_shares[kind] < CERTAIN
            else 0.0
            for kind, share in self.shares.items()
        }

    @property
    def kind(self) -> str:
        """The name of the head: the kind with the largest lift, or broad, or mixed."""
        lifts = self.lifts
        named = [kind for kind in lifts if kind != "diagonal"]
        best = max(named, key=lambda kind: lifts[kind], default="diagonal")
        for kind in (best, "diagonal"):
            if lifts.get(kind, 0.0) >= CALLED:
                return kind
        return "broad" if self.normalized_entropy >= BROAD else "mixed"


class Where(NamedTuple):
    """The tokens of rows and columns, and whether they are the same."""

    queries: Sequence[Token]
    keys: Sequence[Token]
    same: bool


def masks(where: Where, rows: np.ndarray) -> dict[str, np.ndarray]:
    """[R,S] bool for each kind: which keys belong to it, for these queries."""
    keys, i, j = where.keys, rows[:, None], np.arange(len(where.keys))[None]
    line = i * (len(keys) - 1) / max(1, len(where.queries) - 1)
    found = {
        "first": np.broadcast_to(j == 0, (len(rows), len(keys))),
        "special": np.broadcast_to(np.array([key.is_special for key in keys])[None], (len(rows), len(keys))),
        "diagonal": np.abs(j - line) <= max(LEAST_NEAR, NEAR * len(keys)),
    }
    if not where.same:
        return found
    words = np.array([key.word for key in keys])
    tokens = np.array([-1 - at if key.id is None else key.id for at, key in enumerate(keys)])
    before = np.concatenate([[np.iinfo(np.int64).min], tokens[:-1]])
    found |= {
        "itself": i == j,
        "previous": j == i - 1,
        "next": j == i + 1,
        "same word": (words[rows][:, None] == words) & (words != NO_WORD) & (i != j),
        "same token": (tokens[rows][:, None] == tokens) & (i != j),
        "induction": (tokens[rows][:, None] == before) & (j != i + 1) & (j != i),
    }
    return {kind: found[kind] for kind in KINDS}


class HeadRows:
    """Some queries of a layer, with the masks that all heads share."""

    def __init__(self, where: Where, rows: np.ndarray, allowed: np.ndarray) -> None:
        counts = allowed.sum(axis=1)
        self.choice = counts > 1
        self.most = np.log(counts[self.choice])  # entropy of uniform attention
        self.count = int(self.choice.sum())
        kinds = masks(where, rows[self.choice])
        self.kinds = tuple(kinds)
        self.chosen = np.stack([mask.reshape(-1) for mask in kinds.values()]).astype(np.float32)  # [K,R*S]
        self.even = self.shares(allowed[self.choice] / counts[self.choice, None])
        apart = np.abs(rows[self.choice, None] - np.arange(allowed.shape[1])[None])
        self.apart = apart if where.same else np.full((1, 1), np.nan)

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """[K] the sums of the weights [R,S] on keys of each kind."""
        found: np.ndarray = self.chosen @ weights.reshape(-1).astype(np.float32)
        return found.astype(np.float64)


class Counting:
    """Sums over the queries of a head, block by block."""

    def __init__(self) -> None:
        self.rows = 0
        self.first = np.zeros(3)  # sums of entropy, normalized entropy and distance
        self.shares, self.even = np.zeros(0), np.zeros(0)
        self.kinds: tuple[str, ...] = ()

    def add(self, weights: np.ndarray, rows: HeadRows) -> None:
        """Add queries [R,S] of the head."""
        if not rows.count:
            return
        known = np.nan_to_num(weights[rows.choice])
        entropy = -np.sum(known * np.log(np.maximum(known, 1e-300)), axis=1)
        self.kinds = rows.kinds
        self.rows += rows.count
        self.first += [entropy.sum(), (entropy / rows.most).sum(), (known * rows.apart).sum()]
        self.shares = self.shares + rows.shares(known) if self.shares.size else rows.shares(known)
        self.even = self.even + rows.even if self.even.size else rows.even

    def numbers(self) -> HeadNumbers:
        """The means over all queries."""
        entropy, evenness, distance = (float(value) / max(1, self.rows) for value in self.first)
        shares, even = (
            dict(zip(self.kinds, (float(value) / self.rows for value in sums), strict=True))
            for sums in (self.shares, self.even)
        )
        return HeadNumbers(entropy, evenness, distance, shares, even, self.rows)


MOST_ROWS = 512  # queries used per head
MAP_SIDE = 64
ROWS_AT_ONCE = 128
SHARES = ("normalized entropy", *KINDS)
MEASURES = (
    ("entropy", "Entropy of each head", "nats, mean over queries"),
    ("distance", "Attention distance of each head", "tokens between query and key, weighted mean"),
)


class HeadSummary(NamedTuple):
    """One head of one layer."""

    layer: int  # index among the attention layers
    path: str
    head: int
    kind: str
    numbers: HeadNumbers
    map: Pooled  # of the first input: maxima and means of blocks of the used rows

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, kw_only=True)
class HeadsView(View):
    """All heads of all attention layers, over one or several inputs."""

    kind: ClassVar[str] = "heads"
    heads: tuple[HeadSummary, ...]
    across: int  # heads of a layer
    inputs: int
    layers: tuple[Named, ...]  # of the first input, the tokens of the rows and columns of each layer

    def figures(self) -> tuple[Figure, ...]:
        each = min(LARGEST_SIDE, MOST_CELLS // len(SHARES))
        tables = [self._table(self.heads[at : at + each], at) for at in range(0, len(self.heads), each)]
        return (self._tiles(), *tables, *(self._measures() if len(self.heads) > 1 else []))

    def _sentences(self) -> tuple[str, ...]:
        counts: dict[str, list[str]] = {}
        for head in self.heads:
            counts.setdefault(head.kind, []).append(head.name)
        sentences = list[str]()
        for kind, names in sorted(counts.items()):
            more = ", ..." if len(names) > 12 else ""
            numbered = "layer.head " if not sentences else ""
            sentences.append(
                f"{_words(kind)}: {counted(len(names), 'head')} ({numbered}{', '.join(names[:12])}{more})."
            )
        if len(self.heads) == 1:  # a chart of one head would be a single point
            (only,) = self.heads
            apart = "" if math.isnan(only.numbers.distance) else f", distance {brief(only.numbers.distance)} tokens"
            sentences.append(f"Entropy {brief(only.numbers.entropy)} nats{apart}.")
        every = max(named.every for named in self.layers)
        if every > 1:
            sentences.append(f"One query in {every} was used.")
        return tuple(sentences)

    def _blocks(self) -> Sequence[DocumentBlock]:
        maps = self._sent()
        label = "weight, maximum of a block" if any(each.down * each.across > 1 for each in maps) else "weight"
        return [MapCanvas((), self.title, maps, label), *super()._blocks()]

    def table(self) -> list[dict[str, object]]:
        """One row for each head, as plain values."""
        return [
            {"layer": each.path, "head": each.head, "kind": each.kind, **_cells(each.numbers)} for each in self.heads
        ]

    def _sent(self) -> list[Map]:
        side = MAP_SIDE
        while side > 8 and len(self.heads) * sent_bytes(np.empty((side, side))) > MOST_BYTES:
            side //= 2
        small = [coarser(head.map, side) for head in self.heads]
        return [
            Map(
                f"layer {head.layer}, head {head.head}: {_words(head.kind)}",
                map_.maximum,
                self.layers[head.layer],
                map_.down,
                map_.across,
            )
            for head, map_ in zip(self.heads, small, strict=True)
        ]

    def _tiles(self) -> Figure:
        side = min(MAP_SIDE, int((MOST_TILE_CELLS / len(self.heads)) ** 0.5))
        tiles = []
        for head in self.heads:
            maxima = coarser(head.map, side).maximum
            most = float(np.nanmax(maxima, initial=0.0)) or 1.0
            tiles.append(
                Tile(f"{head.name}: {_words(head.kind)}", (maxima / most).tolist(), *self._tokens(head, maxima))
            )
        in_blocks = any(not tile.rows for tile in tiles)
        label = f"weight / largest weight of the head{'; maximum of each block' if in_blocks else ''}"
        caption = "Each row is a query, each column a key."
        named = {"x_label": "key", "y_label": "query"}
        return Tiles(title=self.title, caption=caption, tiles=tiles, across=self.across, value_label=label, **named)

    def _tokens(self, head: HeadSummary, cells: np.ndarray) -> tuple[Sequence[str], Sequence[str]]:
        """The tokens beside the rows and columns of a map; none if its cells are blocks of tokens."""
        named = self.layers[head.layer]
        return (named.rows, named.columns) if cells.shape == (len(named.rows), len(named.columns)) else ((), ())

    def _table(self, heads: Sequence[HeadSummary], at: int) -> Figure:
        return Matrix(
            title=f"What each head attends to{', continued' if at else ''}",
            caption="Normalized entropy: the entropy divided by that of uniform attention. Other columns: the share of "
            "the head's weight on keys of this kind, the mean over queries. A key can be of several kinds.",
            rows=[f"{head.name}: {_words(head.kind)}" for head in heads],
            columns=SHARES,
            values=[[_cells(head.numbers).get(name) for name in SHARES] for head in heads],
            y_label="layer.head",
            value_label="share",
            span=(0.0, 1.0),
        )

    def _measures(self) -> Iterator[Figure]:
        for name, title, unit in MEASURES:
            values = [_cells(head.numbers)[name] for head in self.heads]
            if not all(map(math.isnan, values)):  # cross-attention has no distance
                labels = [head.name for head in self.heads][:MOST_BARS]
                yield Bars(title=title, labels=labels, values=values[:MOST_BARS], x_label=unit)


def _words(kind: str) -> str:
    return {"previous": "previous token", "next": "next token", "first": "first token"}.get(kind, kind)


def _cells(numbers: HeadNumbers) -> dict[str, float]:
    shares = {kind: min(1.0, max(0.0, share)) for kind, share in numbers.shares.items()}
    evenness = min(1.0, max(0.0, numbers.normalized_entropy))
    return {"entropy": numbers.entropy, "distance": numbers.distance, "normalized entropy": evenness, **shares}


def heads(subject: Subject, readings: Reading | Sequence[Reading], *, side: str | None = None) -> HeadsView:
    """All attention heads with their kinds; numbers are means over the inputs, the maps are of the first input.

    Args:
        side: The sequence that the queries belong to: source or target, first or second.
    """
    given: list[Reading] = [readings] if isinstance(readings, Reading) else list(readings)
    if not given:
        raise DataError("no input was given", fix="give at least one")
    counting: dict[tuple[int, int], Counting] = {}
    maps: dict[tuple[int, int], Pooled] = {}
    for reading in given:
        layers = layers_of(subject, reading, side)
        for number, found in enumerate(heard(subject, reading, layers, partial(_maps, counting, layers))):
            for head, map_ in enumerate(found):
                maps.setdefault((number, head), map_)
    layers, summaries = layers_of(subject, given[0], side), []
    for number, head in sorted(maps):
        numbers = counting[number, head].numbers()
        summaries.append(HeadSummary(number, layers[number].path, head, numbers.kind, numbers, maps[number, head]))
    across = max(head for _, head in maps) + 1
    every = [_every(len(layer.queries)) for layer in layers]
    return HeadsView(
        title=f"Attention heads of {counted(len(layers), 'layer')}",
        heads=tuple(summaries),
        across=across if len(maps) % across == 0 else min(12, len(maps)),
        inputs=len(given),
        layers=tuple(Named(one.rows[::step], one.columns, every=step) for one, step in zip(layers, every, strict=True)),
    )


def _maps(
    counting: dict[tuple[int, int], Counting],
    layers: Sequence[AttentionLayer],
    layer: AttentionLayer,
    rows: AttentionRows,
) -> list[Pooled]:
    """The maps of the heads of a layer; also adds its queries to the sums."""
    number, where = layers.index(layer), Where(layer.queries, layer.keys, layer.same)
    every = _every(rows.num_queries)
    count = -(-rows.num_queries // every)
    down, across = -(-count // MAP_SIDE), -(-rows.num_keys // MAP_SIDE)
    each = down * max(1, ROWS_AT_ONCE // down) * every  # tokens at a time, in complete blocks of a map
    seen: list[list[Pooled]] = [[] for _ in range(rows.num_heads)]
    for start in range(0, rows.num_queries, each):
        queries = slice(start, min(start + each, rows.num_queries), every)
        known: HeadRows | None = None
        for head in range(rows.num_heads):
            weights = rows.weights(head, queries).double().cpu().numpy()
            known = known or HeadRows(where, np.arange(rows.num_queries)[queries], ~np.isnan(weights))
            counting.setdefault((number, head), Counting()).add(weights, known)
            seen[head].append(pooled(weights, down, across))
    joined = [[np.concatenate(each) for each in zip(*(map_[:2] for map_ in maps), strict=True)] for maps in seen]
    return [Pooled(maxima, means, down, across, (count, rows.num_keys)) for maxima, means in joined]


def _every(count: int) -> int:
    return max(1, -(-count // MOST_ROWS))
