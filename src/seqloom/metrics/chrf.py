"""chrF (Popović 2015): how many runs of one to six characters an answer shares with the true one.

    chrF    100 · 5 P R / (4 P + R)        P, R: precision and recall, each the mean over the orders that occur

White space does not count, recall counts twice as much as precision (beta = 2). Words that are nearly right count
nearly, so it says more than BLEU about languages with many endings, and about short answers. The score equals
sacreBLEU's: counts are summed over a corpus first.
"""

import numpy as np

from seqloom.metrics.bleu import SACREBLEU
from seqloom.metrics.figures import ratio
from seqloom.metrics.matching import matches

ORDER = 6
STATISTICS = 3 * ORDER  # for each order: n-grams said, n-grams true, those that match
BETA = 2


def chrf_statistics(said: str, true: str) -> list[int]:
    """[STATISTICS] of one sentence; they are summed over a corpus.

    >>> chrf_statistics("a cat", "a car")[:6]
    [4, 4, 3, 3, 3, 2]
    """
    ours, theirs = "".join(said.split()), "".join(true.split())
    found: list[int] = []
    for order in range(1, ORDER + 1):
        first, second = _grams(ours, order), _grams(theirs, order)
        # What the reference is too short to hold is not held against an answer.
        found += [len(first) if second else 0, len(second), matches(first, second)]
    return found


def _grams(text: str, order: int) -> list[str]:
    return [text[start : start + order] for start in range(len(text) - order + 1)]


def chrf(sums: np.ndarray) -> np.ndarray:
    """The score 0..100 of summed statistics [...,STATISTICS], [...].

    >>> chrf(np.array(chrf_statistics("a cat", "a car"))).round(2).item()
    47.92
    """
    said, true, found = np.moveaxis(sums.reshape(*sums.shape[:-1], ORDER, 3), -1, 0)  # each [...,ORDER]
    occurs = (said > 0) & (true > 0)
    orders = occurs.sum(axis=-1)
    precision = ratio((ratio(found, said) * occurs).sum(axis=-1), orders)
    recall = ratio((ratio(found, true) * occurs).sum(axis=-1), orders)
    weight = BETA**2
    return 100 * ratio((1 + weight) * precision * recall, weight * precision + recall)


def chrf_signature() -> str:
    """How the score was computed, as sacreBLEU writes it.

    >>> chrf_signature()
    'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0'
    """
    return f"nrefs:1|case:mixed|eff:yes|nc:{ORDER}|nw:0|space:no|version:{SACREBLEU}"
