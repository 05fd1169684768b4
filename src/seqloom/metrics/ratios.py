"""Figures made of sums: ratios, F1 and perplexity, of one set or of a thousand resampled ones at once.

Each takes arrays of sums [...] and gives an array [...]. Nothing found of nothing there is 0, as in conlleval.
"""

import numpy as np

LARGEST_EXPONENT = 700.0  # exp of it is the last power that float64 holds, with room to spare


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 0 where the whole is 0.

    >>> ratio(np.array([1.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.25, 0.0]
    """
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    quotient = np.zeros(part.shape)
    np.divide(part, whole, out=quotient, where=whole != 0)
    return quotient


class Retrieved:
    """Precision, recall and F1 of things that were to be found: spans, or labels of several."""

    def __init__(self, right: np.ndarray, said: np.ndarray, true: np.ndarray) -> None:
        self.precision, self.recall = ratio(right, said), ratio(right, true)
        self.f1 = ratio(2 * np.asarray(right), np.asarray(said) + np.asarray(true))  # their harmonic mean


def perplexity(loss: np.ndarray) -> np.ndarray:
    """exp(loss): among how many equally likely symbols the model would be as unsure; finite, whatever the loss.

    >>> perplexity(np.log(np.array([8.0]))).round(6).tolist(), bool(np.isfinite(perplexity(np.array(1e9))))
    ([8.0], True)
    """
    return np.asarray(np.exp(np.minimum(loss, LARGEST_EXPONENT)))
