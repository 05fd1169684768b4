"""Graphs: do two red nodes touch? Only the edges tell.

    apart     red-blue-red   green-red          touching    red-red   blue-green   red-blue

Both graphs of a pair have the same nodes in the same order, and every node has as many edges in one as in the other:
two edges from red nodes have changed their ends. So nodes alone, and numbers of edges, leave both labels open.
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
    """A graph without an edge between red nodes: some of the others, about one and a half for each node."""
    colors = [RED if draws.chance(40) else draws.pick(OTHERS) for _ in range(nodes)]
    free = [(one, other) for one in range(nodes) for other in range(one) if not colors[one] == colors[other] == RED]
    return colors, set(draws.several(free, min(len(free), nodes + nodes // 2)))


def _joined(draws: RandomDraws, colors: list[str], edges: set[Pair]) -> set[Pair] | None:
    """The same with the edge of two red nodes: red-x and red-y become red-red and x-y; None where there are none."""
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
    key = " ".join([*colors, *map(str, degrees)])  # the same for both, and for every graph that could be either
    return DrawnExample(key, tuple(draws.mixed(rows)))


GRAPHS = SyntheticSet(
    name="graphs",
    schema=Schema("graph", "label", LABELS),
    description="do two red nodes touch: only the edges tell; graphs of up to so many nodes",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"nodes": Parameter(12, LEAST_NODES, 1_000)},
)
