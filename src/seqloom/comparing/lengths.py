"""How scores change with the length of the input: bins of about as many examples each."""

from collections.abc import Sequence

import msgspec
import numpy as np

from seqloom.comparing.statistics import Measure, SeedSpread, estimate, resampled

BINS = 5
RESAMPLES = 200


class Binned(msgspec.Struct, frozen=True):
    """The examples of one bin, and the score of each model on them, in the order of the models."""

    low: int  # the shortest and the longest input, in symbols
    high: int
    rows: int
    scores: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def middle(self) -> float:
        """Where the bin stands on an axis of lengths."""
        return (self.low + self.high) / 2


def by_length(tables: Sequence[np.ndarray], lengths: np.ndarray, measure: Measure) -> tuple[Binned, ...]:
    """The scores of the models' statistics [K,N,S] in bins of the lengths [N]; none if all inputs are equally long."""
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
    places = np.searchsorted(cuts, lengths, side="left")  # a length that is a cut belongs below it
    used = np.unique(places)
    if len(used) < 2:
        return ()
    return tuple(_bin(tables, lengths, measure, np.flatnonzero(places == place)) for place in used)


def _bin(tables: Sequence[np.ndarray], lengths: np.ndarray, measure: Measure, rows: np.ndarray) -> Binned:
    chosen = [table[:, rows] for table in tables]
    scores = resampled(chosen, measure, resamples=RESAMPLES)
    pool = SeedSpread.pooled(scores)
    found = [estimate(one, pool) for one in scores]
    return Binned(
        int(lengths[rows].min()),
        int(lengths[rows].max()),
        len(rows),
        tuple(one.value for one in found),
        tuple((one.low, one.high) for one in found),
    )
