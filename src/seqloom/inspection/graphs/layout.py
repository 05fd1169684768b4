"""Where the boxes of a graph stand: in layers from top to bottom, few crossings, no line through a box.

Sugiyama, Tagawa and Toda (1981), small: a box stands one layer below the lowest that it reads; a line that passes
layers gets a place of its own in each; places are ordered by the mean of their neighbours, down and up a few times;
then each moves towards its neighbours as far as the order lets it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 8
BETWEEN, PASSING = 26.0, 18.0  # from box to box; what a line needs that passes by


class Size(NamedTuple):
    """How large a box is."""

    width: float
    height: float


class Place(NamedTuple):
    """The middle of the upper edge of a box, or of a point that a line passes."""

    x: float
    y: float


class Layout(NamedTuple):
    """A drawing plan."""

    boxes: tuple[Place, ...]
    lines: tuple[tuple[Place, ...], ...]  # for each edge the points between its ends, in order
    width: float
    height: float


class _Spot:
    """A box, or a place where a line passes a layer."""

    def __init__(self, layer: int, size: Size) -> None:
        self.layer, self.size = layer, size
        self.above, self.below = list[_Spot](), list[_Spot]()
        self.x = 0.0
        self.order = 0.0


def layered(sizes: Sequence[Size], edges: Sequence[tuple[int, int]], *, gap: float) -> Layout:
    """Places for boxes whose edges lead from earlier ones to later ones; `gap` is the height between two layers."""
    spots = [_Spot(layer, size) for layer, size in zip(_layers(len(sizes), edges), sizes, strict=True)]
    chains = [_chain(spots[source], spots[target]) for source, target in edges]
    every = [*spots, *(spot for chain in chains for spot in chain)]
    layers = _ordered(every)
    _placed(layers)
    left = min(spot.x - spot.size.width / 2 for spot in every)
    width = max(spot.x + spot.size.width / 2 for spot in every) - left
    tops, ends = _heights(layers, gap)
    boxes = tuple(Place(spot.x - left, tops[spot.layer]) for spot in spots)
    lines = tuple(
        (
            Place(spots[source].x - left, ends[spots[source].layer]),  # past taller boxes beside it
            *(Place(spot.x - left, y[spot.layer]) for spot in chain for y in (tops, ends)),
        )
        for (source, _), chain in zip(edges, chains, strict=True)
    )
    return Layout(boxes, lines, width, ends[-1])


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: below all that it reads; what reads nothing stands just above its first reader."""
    layers, reads, first = [0] * count, [False] * count, dict[int, int]()
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layers[target] = max(layers[target], layers[source] + 1)
        reads[target] = True
    for source, target in edges:
        first[source] = min(first.get(source, count), layers[target])
    return [layers[at] if reads[at] else max(0, first.get(at, 1) - 1) for at in range(count)]


def _chain(source: _Spot, target: _Spot) -> list[_Spot]:
    """The places that a line passes, tied to one another and to its ends."""
    passed = [_Spot(layer, Size(PASSING, 0.0)) for layer in range(source.layer + 1, target.layer)]
    for upper, lower in zip([source, *passed], [*passed, target], strict=True):
        upper.below.append(lower)
        lower.above.append(upper)
    return passed


def _ordered(every: Sequence[_Spot]) -> list[list[_Spot]]:
    layers: list[list[_Spot]] = [[] for _ in range(1 + max(spot.layer for spot in every))]
    for spot in every:
        layers[spot.layer].append(spot)
    for sweep in range(SWEEPS):
        _number(layers)
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            for spot in layer:
                near = spot.above if down else spot.below
                spot.order = sum(one.order for one in near) / len(near) if near else spot.order
            layer.sort(key=lambda spot: spot.order)
            _number([layer])
    return layers


def _number(layers: Sequence[Sequence[_Spot]]) -> None:
    for layer in layers:
        for at, spot in enumerate(layer):
            spot.order = at - (len(layer) - 1) / 2


def _placed(layers: Sequence[list[_Spot]]) -> None:
    """Give every spot its x: towards the mean of its neighbours, in order, without touching."""
    for layer in layers:
        _spread(layer, [spot.order * (spot.size.width + BETWEEN) for spot in layer])
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wishes = []
            for spot in layer:
                near = (spot.above if down else spot.below) or [spot]
                wishes.append(sum(one.x for one in near) / len(near))
            _spread(layer, wishes)


def _spread(layer: Sequence[_Spot], wishes: Sequence[float]) -> None:
    """Places as near to the wishes as the order allows: neighbours that collide stand together around their mean."""
    clusters: list[tuple[list[int], float]] = []  # the spots, and where the first one stands
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (left.size.width + right.size.width) / 2 + BETWEEN)
    for at, wish in enumerate(wishes):
        clusters.append(([at], wish - offsets[at]))
        while len(clusters) > 1 and clusters[-2][1] > clusters[-1][1]:
            (later, second), (earlier, first) = clusters.pop(), clusters.pop()
            total = len(earlier) + len(later)
            clusters.append(([*earlier, *later], (first * len(earlier) + second * len(later)) / total))
    for members, start in clusters:
        for at in members:
            layer[at].x = start + offsets[at]


def _heights(layers: Sequence[Sequence[_Spot]], gap: float) -> tuple[list[float], list[float]]:
    """Where each layer begins and where it ends."""
    tops, ends, y = [], [], 0.0
    for layer in layers:
        tops.append(y)
        ends.append(y + max((spot.size.height for spot in layer), default=0.0))
        y = ends[-1] + gap
    return tops, ends
