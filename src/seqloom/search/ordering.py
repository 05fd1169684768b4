"""Which row to label next: the one that a label would teach most, or any.

*Active* order asks about the row of which the suggestions are least sure, 1 - p(likeliest): uncertainty sampling (Lewis
and Gale 1994). Several rows are asked about before the next fit, and the least sure ones are often alike; so one that
is near to another of them has to wait. (To prefer rows that are far from all others would be worse than chance: these
are odd ones, from which little is learnt about the rest.) Where nothing has been learnt yet, the order is random but
for that.
"""

from collections.abc import Callable

import numpy as np

SAMPLE = 10_000  # free rows that are looked at for each choice
ALIKE = 0.8  # cosine from which two rows are not asked about together

Order = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.random.Generator], list[int]]


def active_order(
    vectors: np.ndarray, doubts: np.ndarray, free: np.ndarray, count: int, draws: np.random.Generator
) -> list[int]:
    """`count` of the rows that are free: the most doubtful [N] first, no two of them alike while there are others."""
    sample = draws.permutation(free)[:SAMPLE]
    rows = sample[np.argsort(-doubts[sample], kind="stable")]  # of equally doubtful ones, any
    found, waits = list[int](), np.zeros(len(rows), bool)
    for _ in range(min(count, len(rows))):
        best = int(np.argmin(waits))  # the first that does not wait, else the first
        found.append(int(rows[best]))
        waits = waits[np.arange(len(rows)) != best]
        rows = np.delete(rows, best)
        waits |= vectors[rows] @ vectors[found[-1]] >= ALIKE
    return found


def random_order(
    vectors: np.ndarray,  # noqa: ARG001  # as every order
    doubts: np.ndarray,  # noqa: ARG001
    free: np.ndarray,
    count: int,
    draws: np.random.Generator,
) -> list[int]:
    """`count` of the rows that are free, drawn without preference."""
    return [int(row) for row in draws.permutation(free)[:count]]


ORDERS: dict[str, Order] = {"active": active_order, "random": random_order}
