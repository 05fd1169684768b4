"""How far two rankings of the same tokens agree: Kendall's tau over all of them, and the overlap of the strongest.

    tau_b = (C - D) / sqrt((C + D + ties in a)(C + D + ties in b))       C, D: pairs in the same, in the other order
    overlap_k = |top_k(a) & top_k(b)| / k

Tau also ranks the many tokens that do not matter, so it is low for two methods that agree on the few that do: the two
are shown beside each other (Neely et al. 2022).
"""

import math

import numpy as np

ROWS_AT_ONCE = 512


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Tau-b, NaN where fewer than three numbers, or only ties, leave it without a meaning.

    >>> kendall_tau(np.array([1.0, 2, 3]), np.array([1.0, 3, 2]))
    0.3333333333333333
    """
    if len(a) < 3:
        return math.nan
    both = only_a = only_b = 0.0
    for start in range(0, len(a), ROWS_AT_ONCE):
        some = slice(start, start + ROWS_AT_ONCE)
        signs_a, signs_b = np.sign(a[some, None] - a), np.sign(b[some, None] - b)
        both += float((signs_a * signs_b).sum())
        only_a += float(np.abs(signs_a).sum())
        only_b += float(np.abs(signs_b).sum())
    if not (only_a and only_b):
        return math.nan
    return max(-1.0, min(1.0, both / math.sqrt(only_a * only_b)))


def top_overlap(a: np.ndarray, b: np.ndarray, count: int) -> float:
    """The share of the `count` largest numbers of one that are among those of the other; of equal ones the first."""
    first, second = (set(np.argsort(-each, kind="stable")[:count].tolist()) for each in (a, b))
    return len(first & second) / count
