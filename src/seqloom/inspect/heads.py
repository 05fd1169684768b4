"""All heads at a glance: a small map of each, and what kind of head it is.

The cost does not grow with the square of the length: at most 512 rows of each head are looked at, evenly spread, and
a map has at most 64 x 64 cells, the maxima of its blocks. What each head means for the answers, the faithfulness report
says; a head that looks tidy need not matter.

What kind of head is this? Shares of its weight on keys of a kind, against what an even look would give them.

    itself, previous, next     the key at the same place, one before, one after
    first                      the first key                       special    BEGIN, END and their like
    same word                  other pieces of the query's word    same token   the query's symbol at another place
    induction                  the key after an earlier occurrence of the query's symbol (Elhage et al. 2021)
    diagonal                   keys near the straight line from the first row and column to the last

A head is called after the kind with the largest *lift*, (share - even) / (1 - even): 0 is what an even look over the
allowed keys gives, 1 is everything. Rows that may read one key alone have no choice and are not counted.
"""

import math
from collections.abc import Sequence
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
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import MOST_TILE_CELLS, Tile, Tiles
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import LARGEST_SIDE, MOST_CELLS, Matrix
from seqloom.report.numbers import counted

KINDS = ("itself", "previous", "next", "first", "special", "same word", "same token", "induction", "diagonal")
CALLED = 0.5  # the lift from which on a head is called after a kind
BROAD = 0.9  # the share of the largest possible entropy from which on a head is called broad
NEAR = 0.02  # of the length: how far from the line the diagonal goes, and at least one token
LEAST_NEAR = 1
CERTAIN = 0.95


class HeadNumbers(NamedTuple):
    """What a head does, as means over the rows that have a choice."""

    entropy: float  # in nats
    evenness: float  # entropy over that of an even look at the same keys
    distance: float  # in tokens, between the query and the keys that it reads; NaN across two sides
    shares: dict[str, float]  # of the weight, by kind
    even: dict[str, float]  # what an even look would give
    rows: int  # how many were counted

    @property
    def lifts(self) -> dict[str, float]:
        """How far each share stands above that of an even look, 1 for everything."""
        return {kind: _lift(self.shares[kind], self.even[kind]) for kind in self.shares}

    @property
    def kind(self) -> str:
        """What the head is called: the kind with the largest lift, or broad, or mixed."""
        lifts = self.lifts
        named = [kind for kind in lifts if kind != "diagonal"]
        best = max(named, key=lambda kind: lifts[kind], default="diagonal")
        for kind in (best, "diagonal"):
            if lifts.get(kind, 0.0) >= CALLED:
                return kind
        return "broad" if self.evenness >= BROAD else "mixed"


def _lift(share: float, even: float) -> float:
    return (share - even) / (1 - even) if even < CERTAIN else 0.0  # a kind that nearly all keys are of says nothing


class Where(NamedTuple):
    """The tokens of rows and columns, and whether they are the same."""

    queries: Sequence[Token]
    keys: Sequence[Token]
    same: bool


def masks(where: Where, rows: np.ndarray) -> dict[str, np.ndarray]:
    """[R,S] bool for each kind: which keys are of it, for the queries of these numbers."""
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
    symbols = np.array([-1 - at if key.symbol is None else key.symbol for at, key in enumerate(keys)])
    before = np.concatenate([[np.iinfo(np.int64).min], symbols[:-1]])
    found |= {
        "itself": i == j,
        "previous": j == i - 1,
        "next": j == i + 1,
        "same word": (words[rows][:, None] == words) & (words != NO_WORD) & (i != j),
        "same token": (symbols[rows][:, None] == symbols) & (i != j),
        "induction": (symbols[rows][:, None] == before) & (j != i + 1) & (j != i),
    }
    return {kind: found[kind] for kind in KINDS}


class HeadRows:
    """Some rows of a layer, whose heads all have the same masks: what is the same for all of them is made once."""

    def __init__(self, where: Where, rows: np.ndarray, allowed: np.ndarray) -> None:
        counts = allowed.sum(axis=1)
        self.choice = counts > 1
        self.most = np.log(counts[self.choice])  # the entropy of an even look
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
    """Sums over rows of a head, block by block."""

    def __init__(self) -> None:
        self.rows = 0
        self.first = np.zeros(3)  # of entropy, evenness and distance
        self.shares, self.even = np.zeros(0), np.zeros(0)
        self.kinds: tuple[str, ...] = ()

    def add(self, weights: np.ndarray, rows: HeadRows) -> None:
        """Count further rows [R,S] of the head."""
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
        """The means over all rows that were counted."""
        entropy, evenness, distance = (float(value) / max(1, self.rows) for value in self.first)
        shares, even = (
            dict(zip(self.kinds, (float(value) / self.rows for value in sums), strict=True))
            for sums in (self.shares, self.even)
        )
        return HeadNumbers(entropy, evenness, distance, shares, even, self.rows)


MOST_ROWS = 512  # of each head that are looked at
MAP_SIDE = 64
ROWS_AT_ONCE = 128
SHARES = ("evenness", *KINDS)


class HeadSummary(NamedTuple):
    """One head of one layer."""

    layer: int  # its number among the layers that attend
    path: str
    head: int
    kind: str
    numbers: HeadNumbers
    map: Pooled  # of the first input: maxima and means of blocks of the rows that were looked at

    @property
    def name(self) -> str:
        """Layer and head."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, kw_only=True)
class HeadsView(View):
    """Every head of every layer that attends, over one input or several."""

    kind: ClassVar[str] = "heads"
    heads: tuple[HeadSummary, ...]
    across: int  # heads of a layer
    inputs: int
    layers: tuple[Named, ...]  # of the first input, the tokens of the rows and columns of each layer

    def figures(self) -> tuple[Figure, ...]:
        return (self._tiles(), *self._tables(), self._measures())

    def _sentences(self) -> tuple[str, ...]:
        counts: dict[str, list[str]] = {}
        for head in self.heads:
            counts.setdefault(head.kind, []).append(head.name)
        said = []
        for kind, names in sorted(counts.items()):
            more = ", ..." if len(names) > 12 else ""
            said.append(f"{_words(kind)}: {counted(len(names), 'head')} ({', '.join(names[:12])}{more}).")
        every = max(named.every for named in self.layers)
        if every > 1:
            said.append(f"One row in {every} was looked at.")
        return tuple(said)

    def _blocks(self) -> Sequence[DocumentBlock]:
        return [MapCanvas((), self.title, self._sent(), "weight, largest of a block"), *super()._blocks()]

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
        tiles = [Tile(f"{each.name} {_words(each.kind)}", _shares(coarser(each.map, side))) for each in self.heads]
        label = "share of the largest weight of the same head; maxima of blocks"
        return Tiles(title=self.title, tiles=tiles, across=self.across, value_label=label)

    def _tables(self) -> list[Figure]:
        each = min(LARGEST_SIDE, MOST_CELLS // len(SHARES))
        return [self._table(self.heads[at : at + each], at) for at in range(0, len(self.heads), each)]

    def _table(self, heads: Sequence[HeadSummary], at: int) -> Figure:
        said = "Shares of the weight on keys of each kind; evenness is entropy over that of an even look."
        return Matrix(
            title=f"What each head reads{', continued' if at else ''}",
            caption=said,
            rows=[f"{head.name} {_words(head.kind)}" for head in heads],
            columns=SHARES,
            values=[[_cells(head.numbers).get(name) for name in SHARES] for head in heads],
            y_label="head",
            span=(0.0, 1.0),
        )

    def _measures(self) -> Figure:
        columns = {name: [_cells(head.numbers)[name] for head in self.heads] for name in ("entropy", "distance")}
        series = [
            Series(name=name, x=list(range(len(self.heads))), y=values)
            for name, values in columns.items()
            if not all(map(math.isnan, values))  # what reads another sequence has no distance
        ]
        return Line(title="Entropy in nats and distance in tokens", series=series, x_label="head, in the order above")


def _words(kind: str) -> str:
    return {"previous": "previous token", "next": "next token", "first": "first token"}.get(kind, kind)


def _cells(numbers: HeadNumbers) -> dict[str, float]:
    shares = {kind: min(1.0, max(0.0, share)) for kind, share in numbers.shares.items()}
    evenness = min(1.0, max(0.0, numbers.evenness))
    return {"entropy": numbers.entropy, "distance": numbers.distance, "evenness": evenness, **shares}


def _shares(map_: Pooled) -> list[list[float | None]]:
    most = float(np.nanmax(map_.maximum, initial=0.0)) or 1.0
    found: list[list[float | None]] = (map_.maximum / most).tolist()
    return found


def heads(subject: Subject, readings: Reading | Sequence[Reading], *, side: str | None = None) -> HeadsView:
    """The overview of all heads; numbers are means over the inputs, the maps are those of the first."""
    given: list[Reading] = [readings] if isinstance(readings, Reading) else list(readings)
    if not given:
        raise DataError("no input was given to look at the heads with", fix="give at least one")
    counting: dict[tuple[int, int], Counting] = {}
    maps: dict[tuple[int, int], Pooled] = {}
    for reading in given:
        layers = layers_of(subject, reading, side)
        for number, found in enumerate(heard(subject, reading, layers, partial(_look, counting, layers))):
            for head, map_ in enumerate(found):
                maps.setdefault((number, head), map_)
    layers, summaries = layers_of(subject, given[0], side), []
    for number, head in sorted(maps):
        numbers = counting[number, head].numbers()
        summaries.append(HeadSummary(number, layers[number].path, head, numbers.kind, numbers, maps[number, head]))
    across = max(head for _, head in maps) + 1
    every = [_every(len(layer.queries)) for layer in layers]
    return HeadsView(
        title=f"Heads of {len(layers)} layers",
        heads=tuple(summaries),
        across=across if len(maps) % across == 0 else min(12, len(maps)),
        inputs=len(given),
        layers=tuple(Named(one.rows[::step], one.columns, every=step) for one, step in zip(layers, every, strict=True)),
    )


def _look(
    counting: dict[tuple[int, int], Counting],
    layers: Sequence[AttentionLayer],
    layer: AttentionLayer,
    rows: AttentionRows,
) -> list[Pooled]:
    """The maps of the heads of a layer, whose rows are counted on the way."""
    number, where = layers.index(layer), Where(layer.queries, layer.keys, layer.same)
    every = _every(rows.num_queries)
    count = -(-rows.num_queries // every)
    down, across = -(-count // MAP_SIDE), -(-rows.num_keys // MAP_SIDE)
    each = down * max(1, ROWS_AT_ONCE // down) * every  # tokens at a time, whole blocks of a map
    seen: list[list[Pooled]] = [[] for _ in range(rows.num_heads)]
    for start in range(0, rows.num_queries, each):
        asked = slice(start, min(start + each, rows.num_queries), every)
        known: HeadRows | None = None
        for head in range(rows.num_heads):
            weights = rows.weights(head, asked).double().cpu().numpy()
            known = known or HeadRows(where, np.arange(rows.num_queries)[asked], ~np.isnan(weights))
            counting.setdefault((number, head), Counting()).add(weights, known)
            seen[head].append(pooled(weights, down, across))
    joined = [[np.concatenate(each) for each in zip(*(map_[:2] for map_ in maps), strict=True)] for maps in seen]
    return [Pooled(maxima, means, down, across, (count, rows.num_keys)) for maxima, means in joined]


def _every(count: int) -> int:
    return max(1, -(-count // MOST_ROWS))
