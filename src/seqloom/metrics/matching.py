"""N-grams that two sequences share: what BLEU counts in words, and chrF in characters."""

from collections import Counter
from collections.abc import Hashable, Sequence


def matches(said: Sequence[Hashable], true: Sequence[Hashable]) -> int:
    """How many of the things in two lists match, each as often as both have it.

    >>> matches(list("abcb"), list("bbba"))
    3
    """
    ours, theirs = set(said), set(true)
    common = ours & theirs
    if len(ours) == len(said) or len(theirs) == len(true):  # nothing twice on one side: most long n-grams, and quick
        return len(common)
    first, second = Counter(said), Counter(true)
    return sum(map(min, map(first.__getitem__, common), map(second.__getitem__, common)))
