"""The CRF's sum over all paths as matrix products: about ten times as fast for many tags on a CPU.

With likely_t[i] proportional to the sum of exp(S) over all paths that end in i at t, and its largest entry 1,

    sums_t[j]   = sum_i likely_{t-1}[i] exp(between[i, j])        one matrix product for a complete batch
    likely_t[j] = sums_t[j] exp(scores[t, j]) / peak_t            log Z is the sum of the peaks' logs and the last step

and backwards, with r_t[j] = p(j at t) / sums_t[j],

    p(i at t-1)  = likely_{t-1}[i] sum_j exp(between[i, j]) r_t[j]
    moves[i, j]  = exp(between[i, j]) sum_t likely_{t-1}[i] r_t[j]      one product for all steps

In float64 this is exact unless a path that matters falls 190 orders of magnitude below the most likely one. `summed`
checks this and returns None if it could happen; then the log-space recursion in `crf` is used. The check is cheap on a
CPU; on a GPU it would need a synchronization, so GPUs always use `crf`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MANY = 32  # number of tags from which it is faster
FAINTEST = 1e-190  # smallest reached probability; one step may lose 1e-50 twice, and 1e-300 is still representable
STEEPEST = 115.0  # exp of minus it is about 1e-50


class Products(NamedTuple):
    """Values saved for the backward pass."""

    likely: Tensor  # [T,B,K]
    sums: Tensor  # [T-1,B,K]
    moves: Tensor  # [K,K] exp(between), its largest entry 1
    final: Tensor  # [B,K] the probability of each last tag; zero for rows of length 0


def summed(
    scores: Tensor, start: Tensor, between: Tensor, end: Tensor, lengths: Tensor, illegal: float
) -> tuple[Tensor, Products] | None:
    """Return log Z [B] in float64 and values for its gradient; scores [B,T,K] are zero in the padding, T > 0.

    Transitions with the score `illegal` have probability zero. Returns None if float64 cannot represent some path.
    """
    tables = [_exponentials(one.double(), illegal) for one in (start, between, end)]
    if not _gentle(scores) or None in tables:
        return None
    (begins, first), (moves, top), (ends, last) = (one for one in tables if one is not None)
    shifts = scores.double().amax(dim=2)  # [B,T]
    factors = (scores.double() - shifts[:, :, None]).exp().transpose(0, 1)  # [T,B,K]
    likely, peaks = torch.empty_like(factors), torch.empty_like(factors[:, :, 0])  # [T,B]
    sums = torch.empty_like(factors[1:])
    reached = begins * factors[0]
    for t in range(len(factors)):
        if t:
            reached = torch.mm(likely[t - 1], moves, out=sums[t - 1]) * factors[t]
        torch.amax(reached, dim=1, out=peaks[t]).masked_fill_(peaks[t] == 0, 1)  # after an end that nothing may follow
        torch.div(reached, peaks[t, :, None], out=likely[t])
    if bool(((likely > 0) & (likely < FAINTEST)).any()):
        return None
    grown = peaks.log() + shifts.T + top  # [T,B] contribution of each step to log Z
    grown[0] += first + last - top
    return _ended(Products(likely, sums, moves, ends), grown, lengths)


def _exponentials(table: Tensor, illegal: float) -> tuple[Tensor, Tensor] | None:
    """Return the exponentials of moves, with maximum 1 and 0 for illegal ones, and the removed maximum."""
    legal = table > illegal / 2
    if not bool(legal.any()):
        return torch.zeros_like(table), table.new_zeros(())
    if not _gentle(table[legal]):
        return None
    top = table[legal].max()
    return (table - top).exp().masked_fill(~legal, 0), top


def _gentle(scores: Tensor) -> bool:
    """Whether all scores are finite and differences along the last axis have exponentials of at least 1e-50."""
    low, high = scores.aminmax(dim=-1)
    return bool(((high - low) < STEEPEST).all()) and bool(scores.isfinite().all())


def _ended(found: Products, grown: Tensor, lengths: Tensor) -> tuple[Tensor, Products]:
    """Return log Z [B], and the products with the probabilities of the last tags as `final`."""
    last, rows = (lengths - 1).clamp(min=0), torch.arange(len(lengths))
    stopped = found.likely[last, rows] * found.final  # [B,K]
    total = stopped.sum(dim=1)
    counted = torch.arange(len(grown))[:, None] <= last  # [T,B]
    log_z = total.log() + grown.masked_fill(~counted, 0).sum(dim=0)
    final = (stopped / total[:, None]).masked_fill(lengths[:, None] == 0, 0)
    return log_z.masked_fill(lengths == 0, 0), found._replace(final=final)


def counts(found: Products, lengths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the expected counts of tags [B,T,K], starts [K], moves [K,K] and ends [K], weighted by row."""
    likely, sums, moves, final = found
    final = final * weights.double()[:, None]
    tags, shares = torch.zeros_like(likely), torch.zeros_like(sums)  # [T,B,K], [T-1,B,K]
    tags[(lengths - 1).clamp(min=0), torch.arange(len(lengths))] = final
    for t in range(len(sums) - 1, -1, -1):
        shares[t] = (tags[t + 1] / sums[t]).masked_fill(sums[t] == 0, 0)  # unreachable tags have no share
        tags[t] += likely[t] * (shares[t] @ moves.T)
    together = likely[:-1].flatten(0, 1).T @ shares.flatten(0, 1)  # [K,K]
    return tags.transpose(0, 1), tags[0].sum(dim=0), moves * together, final.sum(dim=0)
