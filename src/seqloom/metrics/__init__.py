"""Metrics: counts that add up over examples, the figures made of their sums, and how sure one may be of these.

Here: ratios and perplexity, of one set or of a thousand resampled ones at once. Each takes arrays of sums [...] and
gives an array [...]. Nothing found of nothing there is 0, as in conlleval.
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


def perplexity(loss: np.ndarray) -> np.ndarray:
    """exp(loss): among how many equally likely symbols the model would be as unsure; finite, whatever the loss.

    >>> perplexity(np.log(np.array([8.0]))).round(6).tolist(), bool(np.isfinite(perplexity(np.array(1e9))))
    ([8.0], True)
    """
    return np.asarray(np.exp(np.minimum(loss, LARGEST_EXPONENT)))
