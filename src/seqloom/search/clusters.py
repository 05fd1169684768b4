"""Clusters: what hangs together by pairs, however long the chain between two of it is.

Union-find: every member points to an earlier one of its cluster, in the end to the first of all. Chains are cut short
while they are followed, so a pair costs almost nothing (Tarjan 1975).
"""

from collections.abc import Iterable

import numpy as np


def clusters(count: int, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[count] int64: for each of 0 ... count - 1 the first member of its cluster.

    >>> clusters(5, np.array([3, 4]), np.array([1, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    leaders = list(range(count))
    for one, other in zip(ones.tolist(), others.tolist(), strict=True):
        first, second = _leader(leaders, one), _leader(leaders, other)
        leaders[max(first, second)] = min(first, second)
    return np.array([_leader(leaders, row) for row in range(count)], np.int64)


def _leader(leaders: list[int], row: int) -> int:
    while leaders[row] != row:
        leaders[row] = row = leaders[leaders[row]]  # halves the way for the next time
    return row


def members(leaders: np.ndarray) -> Iterable[np.ndarray]:
    """The members of each cluster of two or more, in the order of their first ones.

    >>> [group.tolist() for group in members(np.array([0, 1, 2, 1, 1]))]
    [[1, 3, 4]]
    """
    order = np.argsort(leaders, kind="stable")
    starts = np.flatnonzero(np.diff(leaders[order], prepend=-1))
    return (group for group in np.split(order, starts[1:]) if len(group) > 1)
