"""BLEU and chrF of generated texts.

    bleu              of detokenized text against the original reference, both tokenized by `13a`, as in sacreBLEU
    bleu_tokenized    of tokens between spaces on both sides (`none`), as multi-bleu computes it for tokenized text
    chrf              of characters of detokenized text

If the references of a corpus are tokenized already, `bleu_tokenized` uses the tokens between spaces, as papers about
these corpora do. If not, both sides are split by `seqloom.text.words.word_pattern` into words and punctuation marks.
The references decide together: they count as tokenized unless more of them have a full stop or comma attached to a word
("red, blue.") than have a separate one ("red , blue ."). All rows of an evaluation decide once (`agreed`), and its
slices, resamples and single rows use the same rule. The signature names it; `tok:seqloom-words` is the second one,
which sacreBLEU does not have.

BLEU (Papineni et al. 2002): n-grams of one to four words that output and reference share.

    p_n    n-grams of all outputs that occur in their references, clipped, over all n-grams of the outputs
    BLEU    100 · min(1, exp(1 - r/c)) · (p_1 p_2 p_3 p_4)^(1/4)       c, r: words of all outputs, of all references

Lengths and counts are summed over a corpus before anything is divided, so ten numbers per sentence are enough. A test
compares the score with sacreBLEU (Post 2018). Smoothing is "exp" (Chen & Cherry 2014, method 3): an order without any
match counts as half a match, the next such as a quarter, and so on, unless nothing matches at all.

chrF (Popović 2015): n-grams of one to six characters that output and reference share.

    chrF    100 · 5 P R / (4 P + R)        P, R: precision and recall, each the mean over the orders that occur

White space does not count; recall counts twice as much as precision (beta = 2). Words that are nearly right count
partly, so chrF says more than BLEU about languages with rich inflection and about short texts. The score equals that of
sacreBLEU: counts are summed over a corpus first.
"""

import re
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from seqloom.metrics.bootstrap import ratio
from seqloom.text.words import word_pattern


def matches(predicted: Sequence[Hashable], expected: Sequence[Hashable]) -> int:
    """How many items two lists have in common, counted as often as both have them.

    >>> matches(list("abcb"), list("bbba"))
    3
    """
    ours, theirs = set(predicted), set(expected)
    common = ours & theirs
    if len(ours) == len(predicted) or len(theirs) == len(expected):  # no repeats: fast
        return len(common)
    first, second = Counter(predicted), Counter(expected)
    return sum(map(min, map(first.__getitem__, common), map(second.__getitem__, common)))


BLEU_ORDER = 4
BLEU_STATISTICS = 2 + 2 * BLEU_ORDER  # words of output and reference, matching n-grams, n-grams of the output
SACREBLEU = "2.6.0"  # the version that tests compare with

# The rules of mteval-v13a, as in sacreBLEU: ASCII punctuation marks are tokens, except full stops and commas inside
# numbers, hyphens that follow no digit, and apostrophes.
_RULES_13A = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


def words_13a(text: str) -> list[str]:
    """The tokens of a text by the `13a` rule of sacreBLEU.

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


def bleu_statistics(predicted: Sequence[str], expected: Sequence[str]) -> list[int]:
    """[STATISTICS] of one sentence, given as words; they are summed over a corpus.

    >>> bleu_statistics("a b c".split(), "a b d".split())
    [3, 3, 2, 1, 0, 0, 3, 2, 1, 0]
    """
    found = [matches(_word_grams(predicted, order), _word_grams(expected, order)) for order in range(1, BLEU_ORDER + 1)]
    totals = [max(0, len(predicted) - order) for order in range(BLEU_ORDER)]
    return [len(predicted), len(expected), *found, *totals]


def _word_grams(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(order)), strict=False))


def bleu(sums: np.ndarray) -> np.ndarray:
    """The score 0..100 of summed statistics [...,STATISTICS], [...].

    >>> bleu(np.array(bleu_statistics("a b c d e".split(), "a b c d f".split()))).round(2).item()
    66.87
    """
    predicted, expected = sums[..., 0], sums[..., 1]
    found, totals = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
    halved = np.exp2(-np.cumsum(found == 0, axis=-1))  # smoothing of orders without a match
    precisions = ratio(np.where(found == 0, halved, found), totals)
    possible = np.asarray(found.any(axis=-1) & totals.all(axis=-1))
    logarithms = np.log(np.where(possible[..., None], precisions, 1.0)).mean(axis=-1)
    brevity = np.exp(np.minimum(0.0, 1 - ratio(expected, np.where(predicted == 0, 1, predicted))))
    return np.asarray(np.where(possible, 100 * brevity * np.exp(logarithms), 0.0))


def are_long_enough(sums: np.ndarray) -> np.ndarray:
    """[...] whether at least one output has four words; if none has, the score is 0.

    >>> are_long_enough(np.array(bleu_statistics("a b c".split(), "a b c".split()))).item()
    False
    """
    return np.asarray(sums[..., -1] > 0)


def bleu_signature(tokenizer: str, *, case: str = "mixed") -> str:
    """How the score was computed, in the format of sacreBLEU.

    >>> bleu_signature("13a")
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0'
    """
    return f"nrefs:1|case:{case}|eff:no|tok:{tokenizer}|smooth:exp|version:{SACREBLEU}"


ORDER = 6
CHRF_STATISTICS = 3 * ORDER  # for each order: n-grams of output and reference, matching ones
BETA = 2


def chrf_statistics(predicted: str, expected: str) -> list[int]:
    """[STATISTICS] of one sentence; they are summed over a corpus.

    >>> chrf_statistics("a cat", "a car")[:6]
    [4, 4, 3, 3, 3, 2]
    """
    ours, theirs = "".join(predicted.split()), "".join(expected.split())
    found: list[int] = []
    for order in range(1, ORDER + 1):
        first, second = _character_grams(ours, order), _character_grams(theirs, order)
        # Orders that are longer than the reference do not count against an output.
        found += [len(first) if second else 0, len(second), matches(first, second)]
    return found


def _character_grams(text: str, order: int) -> list[str]:
    return [text[start : start + order] for start in range(len(text) - order + 1)]


def chrf(sums: np.ndarray) -> np.ndarray:
    """The score 0..100 of summed statistics [...,STATISTICS], [...].

    >>> chrf(np.array(chrf_statistics("a cat", "a car"))).round(2).item()
    47.92
    """
    predicted, expected, found = np.moveaxis(sums.reshape(*sums.shape[:-1], ORDER, 3), -1, 0)  # each [...,ORDER]
    occurs = (predicted > 0) & (expected > 0)
    orders = occurs.sum(axis=-1)
    precision = ratio((ratio(found, predicted) * occurs).sum(axis=-1), orders)
    recall = ratio((ratio(found, expected) * occurs).sum(axis=-1), orders)
    weight = BETA**2
    return 100 * ratio((1 + weight) * precision * recall, weight * precision + recall)


def chrf_signature() -> str:
    """How the score was computed, in the format of sacreBLEU.

    >>> chrf_signature()
    'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0'
    """
    return f"nrefs:1|case:mixed|eff:yes|nc:{ORDER}|nw:0|space:no|version:{SACREBLEU}"


# Scripts that are written without spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
SENTENCE = 8  # minimum characters of a text in these scripts to count as a sentence


def deciding_score(texts: Sequence[str]) -> str:
    """The score that suits target texts: `bleu`, `chrf` or `exact_match`.

    Args:
        texts: target texts, or a sample of them.

    Returns:
        `bleu` if at least half of the texts are several words long (BLEU counts runs of four); `chrf` if they are
        sentences in a script without spaces; else `exact_match`: the targets are single forms, such as dates.

    >>> deciding_score(["The cat sat down.", "It rains again today."]), deciding_score(["2024-05-01", "went"])
    ('bleu', 'exact_match')
    >>> deciding_score(["今日は雨が降っています。"]), deciding_score(["食べた"])
    ('chrf', 'exact_match')
    """
    several = sum(len(text.split()) > 1 and len(words_13a(text)) >= BLEU_ORDER for text in texts)
    unspaced = sum(len(_UNSPACED.findall(text)) >= SENTENCE for text in texts)
    if 2 * several >= max(1, len(texts)):
        return "bleu"
    return "chrf" if 2 * (several + unspaced) >= max(1, len(texts)) else "exact_match"


# bleu; bleu of tokens between spaces, and by word_pattern; texts with a separate mark, and with an attached one
SIZES = (BLEU_STATISTICS, BLEU_STATISTICS, BLEU_STATISTICS, 1, 1, CHRF_STATISTICS)
TEXT_STATISTICS = sum(SIZES)
VOTES = slice(sum(SIZES[:3]), sum(SIZES[:5]))  # whether references are tokenized
TOO_SHORT = "no output has four words, so BLEU has no 4-grams to count (sacreBLEU gives 0)"
_STANDS = re.compile(r"(?:^|\s)[.,](?:\s|$)")
_HANGS = re.compile(r"\w[.,](?:\s|$)")


def text_statistics(predicted: str, expected: str, *, predicted_tokenized: str, expected_tokenized: str) -> list[int]:
    """[STATISTICS] of one output; they are summed over a corpus.

    `predicted_tokenized` has spaces between its tokens, as far as the tokenizer knows them; `expected_tokenized` is the
    reference in the same case and Unicode form.
    """
    pattern = word_pattern()
    return [
        *bleu_statistics(words_13a(predicted), words_13a(expected)),
        *bleu_statistics(predicted_tokenized.split(), expected_tokenized.split()),
        *bleu_statistics(pattern.findall(predicted_tokenized), pattern.findall(expected_tokenized)),
        bool(_STANDS.search(expected)),
        bool(_HANGS.search(expected)),
        *chrf_statistics(predicted, expected),
    ]


def agreed(rows: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Rows [N,STATISTICS] with the mean vote of all rows [M,STATISTICS].

    So any subset of them chooses the rule that all rows choose, and the sums of all rows do not change.
    """
    ruled = rows.astype(np.float64)
    ruled[:, VOTES] = everyone[:, VOTES].mean(axis=0)
    return ruled


def _are_spaced(sums: np.ndarray) -> np.ndarray:
    """[...,1] whether the references are tokenized already."""
    separate, attached = np.split(sums[..., VOTES], 2, axis=-1)
    return np.asarray(separate >= attached)


def text_scores(sums: np.ndarray) -> dict[str, np.ndarray]:
    """`bleu`, `bleu_tokenized` and `chrf`, 0..100, of summed statistics [...,STATISTICS], each [...]."""
    scores = {name: bleu(counts) for name, counts in _of_words(sums).items()}
    return scores | {"chrf": chrf(sums[..., -CHRF_STATISTICS:])}


def _of_words(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of each kind of BLEU."""
    read, spaced, plain, *_ = np.split(sums, np.cumsum(SIZES)[:-1], axis=-1)
    return {"bleu": read, "bleu_tokenized": np.where(_are_spaced(sums), spaced, plain)}


def too_short(sums: np.ndarray) -> dict[str, str]:
    """The scores that are 0 because no output has four words, with that reason."""
    return {name: TOO_SHORT for name, counts in _of_words(sums).items() if not are_long_enough(counts)}


def text_signatures(sums: np.ndarray, *, lower: bool) -> dict[str, str]:
    """How each score is computed, in the format of sacreBLEU; `lower`: outputs are in lower case."""
    rule = "none" if _are_spaced(sums)[0] else "seqloom-words"
    tokenized = bleu_signature(rule, case="lc" if lower else "mixed")
    return {"bleu": bleu_signature("13a"), "bleu_tokenized": tokenized, "chrf": chrf_signature()}
