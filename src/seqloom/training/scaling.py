"""Loss scaling for fp16: small gradients vanish there below 6e-8, so losses are multiplied before the backward pass.

    a step with something not finite     scale / 2, the step is skipped       (Micikevicius et al. 2018)
    2,000 good steps in a row            scale * 2

While the scale is above 1 such a step is how the scale is found, and no error. Everything is kept on the device.
"""

import torch
from torch import Tensor

START = 65_536.0
PATIENCE = 2_000  # good steps before the scale grows


class Scale:
    """What losses are multiplied by, and for how many steps it has been so."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), START, device=device)
        self.grown = torch.zeros((), device=device)

    def load(self, value: float, grown: int) -> None:
        """Nothing; the scale is what it was at a checkpoint, or the first one where there was none."""
        self.value.fill_(value or START)
        self.grown.fill_(float(grown))

    def read(self) -> tuple[float, int]:
        """The scale and how long it has been so, on the host."""
        return self.value.item(), int(self.grown)

    def searching(self) -> Tensor:
        """1 while a step that is not finite only means that the scale is too large, else 0."""
        return (self.value > 1).float()

    def follow(self, bad: Tensor) -> None:
        """Nothing; smaller after a bad step, larger after many good ones."""
        self.grown.add_(1).mul_(1 - bad)
        grows = self.grown >= PATIENCE
        larger = torch.where(grows, self.value * 2, self.value)
        self.value = torch.where(bad > 0, (self.value / 2).clamp(min=1), larger)
        self.grown.mul_(~grows)
