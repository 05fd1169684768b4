"""BLEU (Papineni et al. 2002): how many runs of one to four words an answer shares with the true one.

    p_n     n-grams of all answers that their references hold too, each no more often than there, over all n-grams said
    BLEU    100 · min(1, exp(1 - r/c)) · (p_1 p_2 p_3 p_4)^(1/4)       c, r: words of all answers, of all references

Lengths and counts are summed over a corpus before anything is divided, so ten numbers of each sentence are enough. The
score equals sacreBLEU's (Post 2018), which is the test: an order without any match counts as half a match, the next
such as a quarter, and so on ("exp", Chen & Cherry 2014, method 3), unless nothing matches at all.
"""

import re
from collections.abc import Sequence

import numpy as np

from seqloom.metrics.figures import ratio
from seqloom.metrics.matching import matches

ORDER = 4
STATISTICS = 2 + 2 * ORDER  # words said, words true, n-grams that match, n-grams said
SACREBLEU = "2.6.0"  # whose scores these are; a test compares the two

# The rules of mteval-v13a, as sacreBLEU has them: marks of ASCII stand apart, but for full stops and commas inside
# numbers, hyphens that follow no digit, and apostrophes.
_RULES_13A = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


def words_13a(text: str) -> list[str]:
    """The words of a text as sacreBLEU's `13a` cuts it.

    >>> words_13a("It's 3,000.50 (well-known).")
    ["It's", '3,000.50', '(', 'well-known', ')', '.']
    """
    line = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, mark in _ENTITIES:
        line = line.replace(entity, mark)
    line = f" {line} "
    for pattern, replacement in _RULES_13A:
        line = pattern.sub(replacement, line)
    return line.split()


def bleu_statistics(said: Sequence[str], true: Sequence[str]) -> list[int]:
    """[STATISTICS] of one sentence, given as words; they are summed over a corpus.

    >>> bleu_statistics("a b c".split(), "a b d".split())
    [3, 3, 2, 1, 0, 0, 3, 2, 1, 0]
    """
    found = [matches(_grams(said, order), _grams(true, order)) for order in range(1, ORDER + 1)]
    totals = [max(0, len(said) - order) for order in range(ORDER)]
    return [len(said), len(true), *found, *totals]


def _grams(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(order)), strict=False))


def bleu(sums: np.ndarray) -> np.ndarray:
    """The score 0..100 of summed statistics [...,STATISTICS], [...].

    >>> bleu(np.array(bleu_statistics("a b c d e".split(), "a b c d f".split()))).round(2).item()
    66.87
    """
    said, true = sums[..., 0], sums[..., 1]
    found, totals = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    halved = np.exp2(-np.cumsum(found == 0, axis=-1))  # what an order without a match counts for
    precisions = ratio(np.where(found == 0, halved, found), totals)
    possible = np.asarray(found.any(axis=-1) & totals.all(axis=-1))
    logarithms = np.log(np.where(possible[..., None], precisions, 1.0)).mean(axis=-1)
    brevity = np.exp(np.minimum(0.0, 1 - ratio(true, np.where(said == 0, 1, said))))
    return np.asarray(np.where(possible, 100 * brevity * np.exp(logarithms), 0.0))


def are_long_enough(sums: np.ndarray) -> np.ndarray:
    """[...] whether one answer at least has as many words as the longest runs; where none has, the score is 0.

    >>> are_long_enough(np.array(bleu_statistics("a b c".split(), "a b c".split()))).item()
    False
    """
    return np.asarray(sums[..., -1] > 0)


def bleu_signature(tokeniser: str, *, case: str = "mixed") -> str:
    """How the score was computed, as sacreBLEU writes it.

    >>> bleu_signature("13a")
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0'
    """
    return f"nrefs:1|case:{case}|eff:no|tok:{tokeniser}|smooth:exp|version:{SACREBLEU}"
