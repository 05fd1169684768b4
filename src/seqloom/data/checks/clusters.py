"""Clusters: what hangs together by pairs, however long the chain between two of it is.

Union-find: every member points to an earlier one of its cluster, in the end to the first of all. Chains are cut short
while they are followed, so a pair costs almost nothing (Tarjan 1975).
"""

from collections.abc import Iterator

import numpy as np


class Clusters:
    """The clusters of 0 ... count - 1, each alone until it is joined with another."""

    def __init__(self, count: int) -> None:
        self._earlier = list(range(count))

    def leader(self, row: int) -> int:
        """The first member of a row's cluster."""
        earlier = self._earlier
        while earlier[row] != row:
            earlier[row] = row = earlier[earlier[row]]  # halves the way for the next time
        return row

    def join(self, one: int, other: int) -> None:
        """Nothing; the clusters of the two are one."""
        first, second = self.leader(one), self.leader(other)
        self._earlier[max(first, second)] = min(first, second)

    def leaders(self) -> np.ndarray:
        """[count] int64: for each row the first member of its cluster."""
        return np.array([self.leader(row) for row in range(len(self._earlier))], np.int64)


def clusters(count: int, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[count] int64: for each of 0 ... count - 1 the first member of its cluster, when all pairs are joined.

    >>> clusters(5, np.array([3, 4]), np.array([1, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    found = Clusters(count)
    for one, other in zip(ones.tolist(), others.tolist(), strict=True):
        found.join(one, other)
    return found.leaders()


def members(leaders: np.ndarray) -> Iterator[np.ndarray]:
    """The members of each cluster of two or more, in the order of their first ones.

    >>> [group.tolist() for group in members(np.array([0, 1, 2, 1, 1]))]
    [[1, 3, 4]]
    """
    order = np.argsort(leaders, kind="stable")
    starts = np.flatnonzero(np.diff(leaders[order], prepend=-1))
    return (group for group in np.split(order, starts[1:]) if len(group) > 1)
