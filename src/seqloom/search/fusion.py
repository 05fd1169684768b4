"""Several orders made one: reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).

    score(d) = sum over the orders in which d stands of  1 / (60 + rank of d)

Only ranks count, so scores of any scale can be fused, as those of words and those of vectors. What stands high in two
orders beats what stands at the top of one.
"""

from collections.abc import Iterable, Sequence

from seqloom.search.store import Scored

DAMPING = 60  # how little the first few ranks differ; the authors' own, and all who followed them


def fused(orders: Iterable[Sequence[str]]) -> list[Scored]:
    """All that stands in one of the orders, the best first; of equal ones, what was named first.

    >>> [name for name, _ in fused([["a", "b", "c"], ["c", "b"]])]
    ['c', 'b', 'a']
    """
    scores: dict[str, float] = {}
    for order in orders:
        for rank, name in enumerate(order, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (DAMPING + rank)
    best = sorted(scores.items(), key=lambda one: -one[1])
    return [Scored(name, score) for name, score in best]


def highest(orders: Sequence[Sequence[str]]) -> dict[str, int]:
    """The number of the order in which each name stands highest; of equal ones, the first.

    >>> highest([["a", "b"], ["b", "a", "c"]])
    {'a': 0, 'b': 1, 'c': 1}
    """
    places = {(rank, number): name for number, order in enumerate(orders) for rank, name in enumerate(order)}
    found: dict[str, int] = {}
    for (_, number), name in sorted(places.items()):
        found.setdefault(name, number)
    return found
