"""How near written texts are to the true ones: BLEU for readers, BLEU as the literature reports it, and chrF.

    bleu              the text as it is read against the original one, both cut by `13a`: as sacreBLEU gives it
    bleu_tokenised    words between spaces on both sides (`none`): as multi-bleu gives it for text that was tokenised
    chrf              characters of the text as it is read

Tokenised scores need tokens. Where the true texts of a corpus are tokenised already, they are what stands between
spaces, so the score is that of the field for such corpora. Where they are not, both sides are cut by one plain rule,
`seqloom.text.words.word_pattern`: words, and every mark by itself. Which it is, the true texts decide together: they
are tokenised unless more of them have a full stop or comma that hangs on a word ("red, blue.") than have one that
stands alone ("red , blue ."). All rows of an evaluation vote once (`agreed`), and then its slices, resamples and single
rows follow: a figure and its parts are of one kind. The signature says which rule it was; `tok:seqloom-words` is the
plain one, which sacreBLEU has not.

N-grams that two sequences share: what BLEU counts in words, and chrF in characters.

BLEU (Papineni et al. 2002): how many runs of one to four words an answer shares with the true one.

    p_n    n-grams of all answers that their references hold too, each no more often than there, over all n-grams said
    BLEU    100 · min(1, exp(1 - r/c)) · (p_1 p_2 p_3 p_4)^(1/4)       c, r: words of all answers, of all references

Lengths and counts are summed over a corpus before anything is divided, so ten numbers of each sentence are enough.
The score equals sacreBLEU's (Post 2018), which is the test: an order without any match counts as half a match, the
next such as a quarter, and so on ("exp", Chen & Cherry 2014, method 3), unless nothing matches at all.

chrF (Popović 2015): how many runs of one to six characters an answer shares with the true one.

    chrF    100 · 5 P R / (4 P + R)        P, R: precision and recall, each the mean over the orders that occur

White space does not count, recall counts twice as much as precision (beta = 2). Words that are nearly right count
nearly, so it says more than BLEU about languages with many endings, and about short answers. The score equals
sacreBLEU's: counts are summed over a corpus first.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from seqloom.metrics import ratio
from seqloom.text.words import word_pattern


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


BLEU_ORDER = 4
BLEU_STATISTICS = 2 + 2 * BLEU_ORDER  # words said, words true, n-grams that match, n-grams said
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
    found = [matches(_word_grams(said, order), _word_grams(true, order)) for order in range(1, BLEU_ORDER + 1)]
    totals = [max(0, len(said) - order) for order in range(BLEU_ORDER)]
    return [len(said), len(true), *found, *totals]


def _word_grams(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(order)), strict=False))


def bleu(sums: np.ndarray) -> np.ndarray:
    """The score 0..100 of summed statistics [...,STATISTICS], [...].

    >>> bleu(np.array(bleu_statistics("a b c d e".split(), "a b c d f".split()))).round(2).item()
    66.87
    """
    said, true = sums[..., 0], sums[..., 1]
    found, totals = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
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


ORDER = 6
CHRF_STATISTICS = 3 * ORDER  # for each order: n-grams said, n-grams true, those that match
BETA = 2


def chrf_statistics(said: str, true: str) -> list[int]:
    """[STATISTICS] of one sentence; they are summed over a corpus.

    >>> chrf_statistics("a cat", "a car")[:6]
    [4, 4, 3, 3, 3, 2]
    """
    ours, theirs = "".join(said.split()), "".join(true.split())
    found: list[int] = []
    for order in range(1, ORDER + 1):
        first, second = _character_grams(ours, order), _character_grams(theirs, order)
        # What the reference is too short to hold is not held against an answer.
        found += [len(first) if second else 0, len(second), matches(first, second)]
    return found


def _character_grams(text: str, order: int) -> list[str]:
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


# bleu, bleu of words between spaces, bleu of words by the plain rule, texts with a mark that stands, and that hangs
SIZES = (BLEU_STATISTICS, BLEU_STATISTICS, BLEU_STATISTICS, 1, 1, CHRF_STATISTICS)
TEXT_STATISTICS = sum(SIZES)
VOTES = slice(sum(SIZES[:3]), sum(SIZES[:5]))  # where texts say whether they are tokenised
TOO_SHORT = "no answer has four words, and BLEU counts runs of four: sacreBLEU says 0"
_STANDS = re.compile(r"(?:^|\s)[.,](?:\s|$)")
_HANGS = re.compile(r"\w[.,](?:\s|$)")


def text_statistics(said: str, true: str, *, said_tokenised: str, true_tokenised: str) -> list[int]:
    """[STATISTICS] of one answer; they are summed over a corpus.

    `said_tokenised` has spaces between its words, as far as whoever wrote it knows words; `true_tokenised` is the true
    text in the same case and unicode form.
    """
    pattern = word_pattern()
    return [
        *bleu_statistics(words_13a(said), words_13a(true)),
        *bleu_statistics(said_tokenised.split(), true_tokenised.split()),
        *bleu_statistics(pattern.findall(said_tokenised), pattern.findall(true_tokenised)),
        bool(_STANDS.search(true)),
        bool(_HANGS.search(true)),
        *chrf_statistics(said, true),
    ]


def agreed(rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Rows [N,STATISTICS] that vote as all rows [M,STATISTICS] do on average.

    So any of them together choose what all choose, and the sums of all stay as they were: shares of an evaluation that
    were agreed each by itself are agreed together once more.
    """
    told = rows.astype(np.float64)
    told[:, VOTES] = everyone[:, VOTES].mean(axis=0)
    return told


def _are_spaced(sums: np.ndarray) -> np.ndarray:
    """[...,1] whether the true texts are tokenised already."""
    stands, hangs = np.split(sums[..., VOTES], 2, axis=-1)
    return np.asarray(stands >= hangs)


def text_scores(sums: np.ndarray) -> dict[str, np.ndarray]:
    """`bleu`, `bleu_tokenised` and `chrf`, 0..100, of summed statistics [...,STATISTICS], each [...]."""
    scores = {name: bleu(counts) for name, counts in _of_words(sums).items()}
    return scores | {"chrf": chrf(sums[..., -CHRF_STATISTICS:])}


def _of_words(sums: np.ndarray) -> dict[str, np.ndarray]:
    """The statistics of each kind of BLEU."""
    read, spaced, plain, *_ = np.split(sums, np.cumsum(SIZES)[:-1], axis=-1)
    return {"bleu": read, "bleu_tokenised": np.where(_are_spaced(sums), spaced, plain)}


def too_short(sums: np.ndarray) -> dict[str, str]:
    """The scores of sums [STATISTICS] that are 0 because no answer has words enough, with that as the reason."""
    return {name: TOO_SHORT for name, counts in _of_words(sums).items() if not are_long_enough(counts)}


def text_signatures(sums: np.ndarray, *, lower: bool) -> dict[str, str]:
    """How each score of sums [STATISTICS] is computed, as sacreBLEU writes it; `lower`: answers are in lower case."""
    rule = "none" if _are_spaced(sums)[0] else "seqloom-words"
    tokenised = bleu_signature(rule, case="lc" if lower else "mixed")
    return {"bleu": bleu_signature("13a"), "bleu_tokenised": tokenised, "chrf": chrf_signature()}
