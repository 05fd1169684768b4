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
"""

import re

import numpy as np

from seqloom.metrics import bleu, chrf
from seqloom.metrics.bleu import bleu_signature, bleu_statistics, words_13a
from seqloom.metrics.chrf import chrf_signature, chrf_statistics
from seqloom.text.words import word_pattern

# bleu, bleu of words between spaces, bleu of words by the plain rule, texts with a mark that stands, and that hangs
SIZES = (bleu.STATISTICS, bleu.STATISTICS, bleu.STATISTICS, 1, 1, chrf.STATISTICS)
STATISTICS = sum(SIZES)
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
    scores = {name: bleu.bleu(counts) for name, counts in _of_words(sums).items()}
    return scores | {"chrf": chrf.chrf(sums[..., -chrf.STATISTICS :])}


def _of_words(sums: np.ndarray) -> dict[str, np.ndarray]:
    """The statistics of each kind of BLEU."""
    read, spaced, plain, *_ = np.split(sums, np.cumsum(SIZES)[:-1], axis=-1)
    return {"bleu": read, "bleu_tokenised": np.where(_are_spaced(sums), spaced, plain)}


def too_short(sums: np.ndarray) -> dict[str, str]:
    """The scores of sums [STATISTICS] that are 0 because no answer has words enough, with that as the reason."""
    return {name: TOO_SHORT for name, counts in _of_words(sums).items() if not bleu.are_long_enough(counts)}


def text_signatures(sums: np.ndarray, *, lower: bool) -> dict[str, str]:
    """How each score of sums [STATISTICS] is computed, as sacreBLEU writes it; `lower`: answers are in lower case."""
    rule = "none" if _are_spaced(sums)[0] else "seqloom-words"
    tokenised = bleu_signature(rule, case="lc" if lower else "mixed")
    return {"bleu": bleu_signature("13a"), "bleu_tokenised": tokenised, "chrf": chrf_signature()}
