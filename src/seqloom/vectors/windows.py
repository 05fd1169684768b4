"""Windows of a corpus in blocks, so that a block is a matrix product: centers x (contexts and noise words).

    block        c0 c1 ... c31                       BLOCK centers: consecutive words after subsampling
    contexts     x x c0 c1 ... c31 x x               the same words with `window` more on each side
    in_window    [BLOCK, contexts]                   word j is at most b_i from word i, in the same text, and not word i
    noise        n0 n1 ... n31                       shared by the centers of the block

b_i is drawn from 1 to `window`, so near words count more. Sharing the noise words within a block keeps the expected
gradient (each pair has `negative` noise words in the mean) and makes it a product of matrices (Ji et al. 2016).

    occurrence of w is kept with probability min(1, sqrt(t / f) + t / f)      f: share of w in the corpus, t: `sample`
    noise word w is drawn with probability  count(w)^0.75 / sum of count^0.75
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from seqloom.config.vectors import WordVectorsConfig
from seqloom.vectors.corpus import Corpus

BLOCK = 32  # centers, and noise words, of a block
SMOOTHING = 0.75  # exponent of the counts in the noise distribution
NEVER = 2**15 - 1  # distance of a word from itself: outside every window


class WindowBlocks(NamedTuple):
    """N blocks of centers with their contexts and noise words, as word numbers."""

    centers: np.ndarray  # [N, BLOCK] int64
    contexts: np.ndarray  # [N, BLOCK + 2 window] int64
    in_window: np.ndarray  # [N, BLOCK, BLOCK + 2 window] bool; false where a block is padded
    noise: np.ndarray  # [N, BLOCK] int64


def kept_shares(counts: np.ndarray, sample: float) -> np.ndarray:
    """[V] the probability that an occurrence of each word is kept.

    >>> kept_shares(np.array([900, 90, 10]), 0.05).round(2).tolist()
    [0.29, 1.0, 1.0]
    """
    if not sample:
        return np.ones(len(counts))
    ratio = sample * counts.sum() / np.maximum(counts, 1)
    found: np.ndarray = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return found


def noise_shares(counts: np.ndarray) -> np.ndarray:
    """[V] the probability of each noise word."""
    smoothed = counts.astype(np.float64) ** SMOOTHING
    found: np.ndarray = smoothed / smoothed.sum()
    return found


class Windows:
    """Draws the windows of parts of a corpus."""

    def __init__(self, corpus: Corpus, config: WordVectorsConfig) -> None:
        self.corpus, self.window = corpus, config.window
        self.kept = kept_shares(corpus.counts, config.sample)
        self.noise = noise_shares(corpus.counts)
        self._cumulated = np.cumsum(self.noise)
        self._cumulated[-1] = 1.0
        places = np.arange(BLOCK)[:, None] + config.window - np.arange(BLOCK + 2 * config.window)
        self._distances = np.where(places == 0, NEVER, np.abs(places)).astype(np.int16)  # [BLOCK, contexts]

    def blocks(self, start: int, stop: int, draw: np.random.Generator) -> WindowBlocks:
        """The blocks of the words from `start` to `stop` of the corpus; windows end at both."""
        values, starts = self.corpus.texts
        words = values[start:stop]
        inner = starts[np.searchsorted(starts, start, "right") : np.searchsorted(starts, stop, "left")]
        begins = np.zeros(len(words), np.int32)
        begins[inner - start] = 1
        kept = draw.random(len(words)) < self.kept[words]
        words, texts = words[kept], np.cumsum(begins, dtype=np.int32)[kept]
        count, width = max(1, -(-len(words) // BLOCK)), BLOCK + 2 * self.window  # at least one, perhaps empty, block
        inside = slice(self.window, self.window + len(words))
        padded = np.zeros(count * BLOCK + 2 * self.window, np.int64)
        padded[inside] = words
        origin = np.full(len(padded), -1, np.int32)  # the text of each word
        origin[inside] = texts
        reach = np.zeros(count * BLOCK, np.int16)  # b of each center; 0 in the padding
        reach[: len(words)] = draw.integers(1, self.window + 1, len(words))
        contexts = sliding_window_view(padded, width)[::BLOCK]
        near = self._distances <= reach.reshape(count, BLOCK, 1)
        mine = origin[self.window : self.window + count * BLOCK].reshape(count, BLOCK, 1)
        in_window = near & (mine == sliding_window_view(origin, width)[::BLOCK][:, None])
        centers = padded[self.window : self.window + count * BLOCK].reshape(count, BLOCK)
        noise = np.searchsorted(self._cumulated, draw.random((count, BLOCK)), "right")
        return WindowBlocks(centers, contexts.copy(), in_window, noise)
