"""Adversarial attention (Jain and Wallace 2019, section 4.2.2): weights as far as can be, and yet the same answer.

    maximise  sum_k JSD(a_k, a) - 500 max(0, d_k - eps)  +  mean_k sum_l JSD(a_k, a_l)        d_k = TVD(p_k, p)

by Adam over the logits of K distributions, from random ones, the model fixed. JSD is the mean over heads and over the
rows that have a choice: a row that may move one weight alone has to stay. The largest among those with d_k <= eps is
reported; the model's own weights, JSD 0, are always among them. A saturated softmax lets much mass move
unseen, so the number is to be read beside the confidence of the model and the spread between seeds.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.inspect.faithfulness.agreement import jensen_shannon, total_variation
from seqloom.inspect.faithfulness.bench import Bench, ImposedRows

CANDIDATES, STEPS, RATE = 5, 500, 0.01
CLOSE = 0.01  # eps: answers no further apart than this are the same
PENALTY = 500.0
SPREAD = 3.0  # of the first logits
MOST_CELLS = 2**19  # weights of one candidate: a search for more would take minutes and gigabytes


class Adversary(NamedTuple):
    """The furthest weights that leave the answers as they are."""

    distance: float  # the largest JSD of a candidate with d <= eps, 0 where there is none
    moved: float  # its TVD
    feasible: bool  # whether there is one
    weights: np.ndarray  # [S] its weights, as `Bench.weights` has them
    candidates: np.ndarray  # [K,2] JSD and TVD of each


def adversary(bench: Bench, draw: torch.Generator, *, steps: int = STEPS, close: float = CLOSE) -> Adversary | None:
    """The furthest weights that were found; None where there are too many weights to search for them."""
    if bench.cells > MOST_CELLS:
        return None
    search = _AdversarySearch(bench, draw)
    optimiser = torch.optim.Adam([search.logits], lr=RATE, amsgrad=True)
    for _ in range(steps):
        with torch.enable_grad():
            far, moved, apart = search.measured()
            loss = (PENALTY * (moved - close).relu() - far).sum() - apart
            (search.logits.grad,) = torch.autograd.grad(loss, [search.logits])
        optimiser.step()
    far, moved, _ = search.measured()
    return search.best(far, moved, close)


class _AdversarySearch:
    """The candidates, as logits [K,H,R,S] over the rows that are meant."""

    def __init__(self, bench: Bench, draw: torch.Generator) -> None:
        self.bench = bench
        kept: list[ImposedRows] = []

        chosen: list[Tensor] = []

        def keep(rows: ImposedRows, _part: slice) -> Tensor:
            meant = bench.asked[rows.start : rows.stop]
            kept.append(ImposedRows(rows.weights[:, :, meant], bench.movable(rows)[:, :, meant], 0))
            chosen.append(bench.has_choice(rows)[meant])
            return rows.weights

        bench.under(keep, 1)
        self.choice = torch.cat(chosen)  # [R]
        self.own = torch.cat([rows.weights for rows in kept], dim=2)  # [1,H,R,S]
        self.movable = torch.cat([rows.allowed for rows in kept], dim=2)  # [1,1,R,S]
        self.mass = self.own.masked_fill(~self.movable, 0).sum(dim=-1, keepdim=True)
        noise = torch.randn(CANDIDATES, *self.own.shape[1:], generator=draw)
        self.logits = (SPREAD * noise).to(self.own.device).requires_grad_()

    def weights(self) -> Tensor:
        """[K,H,R,S] the weights of each candidate: what is movable is shared out anew."""
        lowest = torch.finfo(self.logits.dtype).min
        shares = self.logits.masked_fill(~self.movable, lowest).softmax(dim=-1)
        return torch.where(self.movable, self.mass * shares, self.own)

    def measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """[K] how far each is from the model's own, [K] how far the answers move, and how far they are apart."""
        found = self.weights()
        answers = self.bench.under(lambda rows, part: self._put(rows, found[part]), CANDIDATES)
        moved = total_variation(answers, self.bench.own).mean(dim=1)
        apart = self._over_rows(jensen_shannon(found[:, None], found[None])).sum(dim=0).mean()
        return self._over_rows(jensen_shannon(found, self.own)), moved, apart

    def _over_rows(self, distances: Tensor) -> Tensor:
        """The mean of distances [...,H,R] over heads and the rows that have a choice; 0 without any."""
        return (distances.mean(dim=-2) * self.choice).sum(dim=-1) / self.choice.sum().clamp(min=1)

    def _put(self, rows: ImposedRows, found: Tensor) -> Tensor:
        meant = self.bench.asked[rows.start : rows.stop]
        before = int(self.bench.asked[: rows.start].sum())
        changed = rows.weights.clone()
        changed[:, :, meant] = found[:, :, before : before + int(meant.sum())].to(changed.dtype)
        return changed

    def best(self, far: Tensor, moved: Tensor, close: float) -> Adversary:
        """The furthest of the candidates that leave the answers as they are."""
        fits = moved <= close
        chosen = int(far.masked_fill(~fits, -1).argmax())
        found = self.weights()[chosen] if bool(fits.any()) else self.own[0]
        columns = found.mean(dim=(0, 1)).double().masked_fill(~self.bench.free, torch.nan)
        distance, change = (float(each[chosen]) if bool(fits.any()) else 0.0 for each in (far, moved))
        candidates = torch.stack([far, moved], dim=1).detach().cpu().numpy()
        return Adversary(distance, change, bool(fits.any()), columns.detach().cpu().numpy(), candidates)
