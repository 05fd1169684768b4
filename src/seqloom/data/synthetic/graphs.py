"""Graphs with a label that depends on the edges: does an edge connect two red nodes?

    apart     red-blue-red   green-red          touching    red-red   blue-green   red-blue

Examples come in pairs with different labels. Both graphs of a pair have the same nodes in the same order, and each node
has the same number of edges in both graphs; only the other ends of two edges are exchanged. So a model that sees only
the nodes, or only the numbers of edges, cannot predict the label.
"""

import numpy as np

from seqloom.data.kinds.graph import Graph
from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, Parameter, RandomDraws, Sizes, SyntheticSet

LABELS = ("apart", "touching")
RED, OTHERS = "red", ("blue", "green")
LEAST_NODES = 6

Pair = tuple[int, int]


def _apart(draws: RandomDraws, nodes: int) -> tuple[list[str], set[Pair]]:
    """A random graph without an edge between red nodes, with up to 1.5 edges per node."""
    colors = [RED if draws.chance(40) else draws.pick(OTHERS) for _ in range(nodes)]
    free = [(one, other) for one in range(nodes) for other in range(one) if not colors[one] == colors[other] == RED]
    return colors, set(draws.several(free, min(len(free), nodes + nodes // 2)))


def _joined(draws: RandomDraws, colors: list[str], edges: set[Pair]) -> set[Pair] | None:
    """Replace two edges red-x and red-y by red-red and x-y; None if the graph has no suitable edges."""
    ends = [
        pair if colors[pair[0]] == RED else pair[::-1] for pair in sorted(edges) if RED in map(colors.__getitem__, pair)
    ]
    choices = [
        (one, other)
        for one in ends
        for other in ends
        if one[0] < other[0] and one[1] != other[1] and _sorted(one[1], other[1]) not in edges
    ]
    if not choices:
        return None
    (first, near), (second, far) = draws.pick(choices)
    gone = {_sorted(first, near), _sorted(second, far)}
    return (edges - gone) | {_sorted(first, second), _sorted(near, far)}


def _sorted(one: int, other: int) -> Pair:
    return max(one, other), min(one, other)


def _graph(colors: list[str], edges: set[Pair]) -> Graph:
    pairs = sorted([*edges, *(pair[::-1] for pair in edges)])
    return Graph(tuple(colors), np.array(pairs, np.int32).reshape(-1, 2))


def _draw(draws: RandomDraws, nodes: int) -> DrawnExample:
    touching = None
    while touching is None:
        colors, apart = _apart(draws, draws.between(LEAST_NODES, nodes))
        touching = _joined(draws, colors, apart)
    rows = [(_graph(colors, apart), LABELS[0]), (_graph(colors, touching), LABELS[1])]
    degrees = np.bincount(rows[0][0].edges[:, 0], minlength=len(colors)).tolist()
    key = " ".join([*colors, *map(str, degrees)])  # the same for both graphs of the pair
    return DrawnExample(key, tuple(draws.mixed(rows)))


GRAPHS = SyntheticSet(
    name="graphs",
    schema=Schema("graph", "label", LABELS),
    description="whether an edge connects two red nodes; the nodes alone do not tell",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"nodes": Parameter(12, LEAST_NODES, 1_000)},
)
