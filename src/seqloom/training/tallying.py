"""What happened in the steps since the last look: four numbers of each stay on the device until somebody asks.

Whether a step counts is decided there too, without asking anybody: it does not if something in it was not finite, or if
three steps in a row were not - then nothing changes any more, however long it takes until the host looks.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.training.ranks import Ranks

LATCH = 3  # steps in a row that were not finite: nothing changes after them
HELD = 256  # steps whose numbers are held one by one; then they are put together, on the device


class Tally(NamedTuple):
    """What happened since the last look, added up over steps, pieces and ranks; skipped steps only count as such."""

    steps: int
    loss: float  # summed; `loss / weight` is the mean
    weight: float
    norm: float  # of gradients before clipping, summed over steps
    largest: float
    clipped: int
    skipped: int
    not_finite: int  # steps in a row, up to now; stays at 3
    elements: int  # with padding
    symbols: int  # without
    stop: bool  # some rank was asked to stop
    scale: float = 0.0  # of the losses in fp16; 0: not scaled
    grown: int = 0


class Seen(NamedTuple):
    """One step as numbers on the device, all of shape []."""

    total: Tensor
    weight: Tensor
    norm: Tensor  # of the gradient of the total
    hold: Tensor  # 1 if the step does not count


class Tallies:
    """The steps since the last look."""

    def __init__(self, clip: float, ranks: Ranks, device: torch.device) -> None:
        self.clip, self.ranks, self.device = clip, ranks, device
        self.in_a_row = torch.zeros((), device=device)
        self.seen: list[Seen] = []
        self.together: list[Tensor] = []  # each [steps, 4]
        self.elements, self.symbols, self.stop = 0, 0, False

    def load(self, not_finite: int) -> None:
        """Nothing; so many steps in a row were not finite up to now."""
        self.in_a_row.fill_(float(not_finite))

    def hold(self, loss: Tensor, norm: Tensor) -> Tensor:
        """1 if a step must change nothing: its loss [2] or norm is not finite, or three steps in a row were not."""
        left = (loss.sum() + norm) * 0  # 0, or NaN: cheaper than isfinite
        return ((left != 0) | (self.in_a_row >= LATCH)).float()

    def add(self, seen: Seen, errs: Tensor, counts: tuple[int, int], stop: bool) -> None:
        """Nothing; a step is noted. `errs` is 1 if it was held back, and not only because fp16 looks for its scale."""
        self.in_a_row.add_(1).mul_(errs)
        self.seen.append(seen)
        if len(self.seen) == HELD:
            self._put_together()
        elements, symbols = counts
        self.elements, self.symbols, self.stop = self.elements + elements, self.symbols + symbols, self.stop or stop

    def read(self) -> Tally:
        """The sums over all steps and ranks; every rank must ask."""
        self._put_together()
        elements, symbols, stop = self._counts()
        steps = [step for together in self.together for step in together.tolist()]
        good = [(total, weight, _mean(norm, weight)) for total, weight, norm, hold in steps if not hold]
        norms = [norm for _, _, norm in good]
        tally = Tally(
            steps=len(steps),
            loss=sum(total for total, _, _ in good),
            weight=sum(weight for _, weight, _ in good),
            norm=sum(norms),
            largest=max(norms, default=0.0),
            clipped=sum(norm > self.clip for norm in norms) if self.clip else 0,
            skipped=len(steps) - len(good),
            not_finite=min(LATCH, int(self.in_a_row)),
            elements=elements,
            symbols=symbols,
            stop=stop > 0,
        )
        self.together, self.elements, self.symbols, self.stop = [], 0, 0, False
        return tally

    def _counts(self) -> list[int]:
        """Elements, symbols, and wishes to stop, over all ranks."""
        counts = [self.elements, self.symbols, int(self.stop)]
        return counts if self.ranks.count == 1 else self.ranks.sum(torch.tensor(counts)).tolist()

    def _put_together(self) -> None:
        if self.seen:
            self.together.append(
                torch.stack([number for one in self.seen for number in one]).view(-1, len(Seen._fields))
            )
            self.seen = []


def _mean(norm: float, weight: float) -> float:
    """The norm of the mean's gradient, rounded to 24 bits as the other numbers are.

    A float64 holds the sum of very many such numbers exactly, so what they come to does not depend on how often
    somebody looked: a run that a signal stops between two reports tells of the same steps the same.
    """
    mean = norm / weight if weight else 0.0
    split = mean * (2**29 + 1)  # Dekker 1971: the upper 24 of 53 bits
    return split - (split - mean)
