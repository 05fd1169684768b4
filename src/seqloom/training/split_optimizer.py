"""An optimizer with a step of its own for some weights, and AdamW for the rest."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer


class SplitOptimizer(Optimizer):
    """Some weights with their own step, the others with that of AdamW; one learning rate for both.

    Both have one list of groups and one state. As in torch's fused optimizers, gradients are divided by `grad_scale`,
    and on a GPU nothing changes if `found_inf` is 1, which is checked on the device.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(self, groups: list[dict[str, Any]], rest: AdamW | None, defaults: dict[str, Any]) -> None:
        super().__init__(groups, defaults)
        self.own, self.rest = list(self.param_groups), rest
        if rest is not None:
            self.param_groups += rest.param_groups
            self.state = rest.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # there is no closure
        """Take one step."""
        for group in self.own:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.move(weight, group)
        if self.rest is not None:
            if self.rest.param_groups[0]["fused"]:
                self.rest.grad_scale, self.rest.found_inf = self.grad_scale, self.found_inf  # type: ignore[attr-defined]
            self.rest.step()

    def move(self, weight: Tensor, group: dict[str, Any]) -> None:
        """Change a weight by its gradient."""
        raise NotImplementedError
