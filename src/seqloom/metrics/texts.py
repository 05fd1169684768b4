"""How near written texts are to the true ones: BLEU for readers, BLEU as the literature reports it, and chrF.

    bleu              the text as it is read against the original one, both cut by `13a`: as sacreBLEU gives it
    bleu_tokenised    words between spaces on both sides (`none`): as multi-bleu gives it for text that was tokenised
    chrf              characters of the text as it is read

Tokenised scores need tokens. Where the true texts of a corpus are tokenised already, they are what stands between
spaces, so the score is that of the field for such corpora. Where they are not, both sides are cut by one plain rule,
`seqloom.text.words.word_pattern`: words, and every mark by itself. Which it is, the true texts decide together: they
are tokenised unless more of them have a full stop or comma that hangs on a word ("red, blue.") than have one that
stands alone ("red , blue .").
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


def text_scores(sums: np.ndarray) -> dict[str, np.ndarray]:
    """`bleu`, `bleu_tokenised` and `chrf`, 0..100, of summed statistics [...,STATISTICS], each [...]."""
    read, spaced, plain, stands, hangs, characters = np.split(sums, np.cumsum(SIZES)[:-1], axis=-1)
    tokenised = np.where(stands >= hangs, spaced, plain)
    return {"bleu": bleu.bleu(read), "bleu_tokenised": bleu.bleu(tokenised), "chrf": chrf.chrf(characters)}


def text_signatures(*, lower: bool) -> dict[str, str]:
    """How each score is computed, as sacreBLEU writes it; `lower`: answers are written in lower case."""
    tokenised = bleu_signature("none", case="lc" if lower else "mixed")
    return {"bleu": bleu_signature("13a"), "bleu_tokenised": tokenised, "chrf": chrf_signature()}
