"""Shuffled weights (Jain and Wallace 2019, section 4.2.1): do the answers care which token has which weight?

    d_k = TVD(p(h, perm_k(a)), p(h, a))       for 100 random orders, h fixed; the median over k is reported

Beside it stands the largest weight: where weights are even, a shuffle changes nothing and says nothing.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.inspection.faithfulness.bench import Bench
from seqloom.inspection.faithfulness.distances import total_variation
from seqloom.inspection.faithfulness.imposing import Rows

PERMUTATIONS = 100


class Permuted(NamedTuple):
    """How far answers move when weights are shuffled."""

    moved: np.ndarray  # [P] TVD of each shuffle that was tried, the mean over answers
    sharpness: float  # the largest weight, the mean over rows and heads

    @property
    def median(self) -> float:
        """The median over the shuffles."""
        return float(np.median(self.moved))


def permuted(bench: Bench, draw: torch.Generator, count: int = PERMUTATIONS) -> Permuted:
    """The answers under as many shuffles of the weights as can be paid for, each row and head by itself."""
    tried = bench.affordable(count)
    found = bench.under(lambda rows, _: shuffled(rows.weights, bench.movable(rows), draw), tried)
    return Permuted(total_variation(found, bench.own).mean(dim=1).cpu().numpy(), bench.sharpness)


def shuffled(weights: Tensor, movable: Tensor, draw: torch.Generator) -> Tensor:
    """The weights [N,H,R,S] with the movable ones of each row in a random order, the others where they are."""
    places = torch.arange(weights.shape[-1], device=weights.device)
    noise = torch.rand(weights.shape, generator=draw).to(weights.device)
    # Both orders put the movable places first and the others, in order, behind them: these meet themselves. The first
    # order is the same for all heads, and where all may be moved it is the one that they stand in.
    out_of = torch.where(movable, noise - 2, places + 2.0).argsort(dim=-1)
    found = weights.gather(-1, out_of)
    if bool(movable.all()):
        return found
    into = torch.where(movable, -1.0 / (places + 2), places + 2.0).argsort(dim=-1)
    return torch.empty_like(weights).scatter(-1, into.expand_as(weights), found)


def evened(rows: Rows, movable: Tensor) -> Tensor:
    """The weights with what is movable of each row spread evenly over its places."""
    mass = rows.weights.masked_fill(~movable, 0).sum(dim=-1, keepdim=True)
    count = movable.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(movable, mass / count, rows.weights)
