"""All heads at a glance: a small map of each, and what kind of head it is.

The cost does not grow with the square of the length: at most 512 rows of each head are looked at, evenly spread, and
a map has at most 64 x 64 cells, the maxima of its blocks. What each head means for the answers, the faithfulness report
says; a head that looks tidy need not matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.figures import Figure, Line, Matrix, Series, Tile, Tiles
from seqloom.figures.markup import tag
from seqloom.figures.matrix import LARGEST_SIDE, MOST_CELLS
from seqloom.figures.page import framed
from seqloom.figures.tiles import MOST_CELLS as MOST_TILE_CELLS
from seqloom.inspection.attention_layers import AttentionLayer, heard, layers_of
from seqloom.inspection.attention_rows import AttentionRows
from seqloom.inspection.attention_tables import Pooled, coarser, pooled
from seqloom.inspection.head_kinds import KINDS, Counting, HeadNumbers, Rows, Where
from seqloom.inspection.map_page import MOST_BYTES, Map, Named, map_page, sent_bytes
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import View

MOST_ROWS = 512  # of each head that are looked at
MAP_SIDE = 64
ROWS_AT_ONCE = 128
SHARES = ("evenness", *KINDS)


class Head(NamedTuple):
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
    heads: tuple[Head, ...]
    across: int  # heads of a layer
    inputs: int
    layers: tuple[Named, ...]  # of the first input, the tokens of the rows and columns of each layer

    def figures(self) -> tuple[Figure, ...]:
        return (self._tiles(), *self._tables(), self._measures())

    def _sentences(self) -> tuple[str, ...]:
        counts: dict[str, list[str]] = {}
        for head in self.heads:
            counts.setdefault(head.kind, []).append(head.name)
        said = [f"{_words(kind)}: {_listed(names)}." for kind, names in sorted(counts.items())]
        every = max(named.every for named in self.layers)
        if every > 1:
            said.append(f"One row in {every} was looked at.")
        return tuple(said)

    def html(self) -> str:
        around = [tag("p", sentence) for sentence in self.sentences()]
        around += framed(self.title, self.figures())
        return map_page(self.title, self._sent(), around, label="weight, largest of a block")

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
            Map(_titled(head), map_.maximum, self.layers[head.layer], map_.down, map_.across)
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

    def _table(self, heads: Sequence[Head], at: int) -> Figure:
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


def _titled(head: Head) -> str:
    return f"layer {head.layer}, head {head.head}: {_words(head.kind)}"


def _named(layer: AttentionLayer) -> Named:
    every = _every(len(layer.queries))
    return Named(layer.rows[::every], layer.columns, every=every)


def _listed(names: Sequence[str]) -> str:
    heads = "1 head" if len(names) == 1 else f"{len(names)} heads"
    return f"{heads} ({', '.join(names[:12])}{', ...' if len(names) > 12 else ''})"


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
    return _view(layers_of(subject, given[0], side), counting, maps, len(given))


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
        known: Rows | None = None
        for head in range(rows.num_heads):
            weights = rows.weights(head, asked).double().cpu().numpy()
            known = known or Rows(where, np.arange(rows.num_queries)[asked], ~np.isnan(weights))
            counting.setdefault((number, head), Counting()).add(weights, known)
            seen[head].append(pooled(weights, down, across))
    return [_joined(maps, (count, rows.num_keys)) for maps in seen]


def _joined(maps: Sequence[Pooled], shape: tuple[int, int]) -> Pooled:
    maxima, means = (np.concatenate(each) for each in zip(*(map_[:2] for map_ in maps), strict=True))
    return Pooled(maxima, means, maps[0].down, maps[0].across, shape)


def _every(count: int) -> int:
    return max(1, -(-count // MOST_ROWS))


def _view(
    layers: Sequence[AttentionLayer],
    counting: dict[tuple[int, int], Counting],
    maps: dict[tuple[int, int], Pooled],
    inputs: int,
) -> HeadsView:
    found = []
    for number, head in sorted(maps):
        numbers = counting[number, head].numbers()
        found.append(Head(number, layers[number].path, head, numbers.kind, numbers, maps[number, head]))
    across = max(head for _, head in maps) + 1
    return HeadsView(
        title=f"Heads of {len(layers)} layers",
        heads=tuple(found),
        across=across if len(maps) % across == 0 else min(12, len(maps)),
        inputs=inputs,
        layers=tuple(map(_named, layers)),
    )
