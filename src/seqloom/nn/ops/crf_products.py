"""The sum over all paths of a chain as products of matrices: for many tags on a processor, some ten times as fast.

With likely_t[i] proportional to the sum of exp(S) over all paths that end in i at t, and its largest entry 1,

    sums_t[j]   = sum_i likely_{t-1}[i] exp(between[i, j])        one product of matrices for a whole batch
    likely_t[j] = sums_t[j] exp(scores[t, j]) / peak_t            log Z is what the peaks and the last step add up to

and backwards, with r_t[j] = p(j at t) / sums_t[j],

    p(i at t-1)  = likely_{t-1}[i] sum_j exp(between[i, j]) r_t[j]
    moves[i, j]  = exp(between[i, j]) sum_t likely_{t-1}[i] r_t[j]      one product for all steps

In float64 this is exact as long as no path that counts falls 190 powers of ten behind the likeliest. `summed` looks,
and gives nothing where that might happen: then the recursion over logarithms in `crf` is taken. Looking costs little on
a processor; a GPU would have to be waited for, and has `crf`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MANY = 32  # tags from which on it is the faster way
FAINTEST = 1e-190  # of what is reached at all; one step may take off 1e-50 twice, and 1e-300 is still a number
STEEPEST = 115.0  # exp of minus it is about 1e-50


class Products(NamedTuple):
    """What the forward pass leaves for the backward pass."""

    likely: Tensor  # [T,B,K]
    sums: Tensor  # [T-1,B,K]
    moves: Tensor  # [K,K] exp(between), its largest entry 1
    final: Tensor  # [B,K] the probability of each last tag; zero for rows of length 0


def summed(
    scores: Tensor, start: Tensor, between: Tensor, end: Tensor, lengths: Tensor, illegal: float
) -> tuple[Tensor, Products] | None:
    """[B] log Z in float64 and what its gradient needs, from scores [B,T,K] that are zero in the padding, T > 0.

    Moves of the score `illegal` have probability zero. None: some path is too faint for this way.
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
        torch.amax(reached, dim=1, out=peaks[t]).masked_fill_(peaks[t] == 0, 1)  # past an end that nothing may follow
        torch.div(reached, peaks[t, :, None], out=likely[t])
    if bool(((likely > 0) & (likely < FAINTEST)).any()):
        return None
    grown = peaks.log() + shifts.T + top  # [T,B] what each step adds to log Z
    grown[0] += first + last - top
    return _ended(Products(likely, sums, moves, ends), grown, lengths)


def _exponentials(table: Tensor, illegal: float) -> tuple[Tensor, Tensor] | None:
    """The exponentials of moves, the largest of them 1 and those of illegal ones 0, and what was taken off."""
    legal = table > illegal / 2
    if not bool(legal.any()):
        return torch.zeros_like(table), table.new_zeros(())
    if not _gentle(table[legal]):
        return None
    top = table[legal].max()
    return (table - top).exp().masked_fill(~legal, 0), top


def _gentle(scores: Tensor) -> bool:
    """Whether all are finite, and differences along the last axis have exponentials of 1e-50 at least."""
    low, high = scores.aminmax(dim=-1)
    return bool(((high - low) < STEEPEST).all()) and bool(scores.isfinite().all())


def _ended(found: Products, grown: Tensor, lengths: Tensor) -> tuple[Tensor, Products]:
    """log Z [B], and the products with the probabilities of the last tags in place of the exponentials of ends."""
    last, rows = (lengths - 1).clamp(min=0), torch.arange(len(lengths))
    stopped = found.likely[last, rows] * found.final  # [B,K]
    total = stopped.sum(dim=1)
    counted = torch.arange(len(grown))[:, None] <= last  # [T,B]
    log_z = total.log() + grown.masked_fill(~counted, 0).sum(dim=0)
    final = (stopped / total[:, None]).masked_fill(lengths[:, None] == 0, 0)
    return log_z.masked_fill(lengths == 0, 0), found._replace(final=final)


def counts(found: Products, lengths: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The expected counts of tags [B,T,K], starts [K], moves [K,K] and ends [K]; a row counts `weights` [B] times."""
    likely, sums, moves, final = found
    final = final * weights.double()[:, None]
    tags, shares = torch.zeros_like(likely), torch.zeros_like(sums)  # [T,B,K], [T-1,B,K]
    tags[(lengths - 1).clamp(min=0), torch.arange(len(lengths))] = final
    for t in range(len(sums) - 1, -1, -1):
        shares[t] = (tags[t + 1] / sums[t]).masked_fill(sums[t] == 0, 0)  # what is never reached has no share
        tags[t] += likely[t] * (shares[t] @ moves.T)
    together = likely[:-1].flatten(0, 1).T @ shares.flatten(0, 1)  # [K,K]
    return tags.transpose(0, 1), tags[0].sum(dim=0), moves * together, final.sum(dim=0)
