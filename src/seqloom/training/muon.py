"""Muon: momentum whose matrices are made orthogonal before the step (Jordan et al. 2024).

    m <- momentum m + (1 - momentum) g              u = g + momentum (m - g)                  Nesterov
    w <- w - lr decay w - lr 0.2 sqrt(max(A, B)) orthogonal(u)            w is [A,B]          Liu et al. 2025

orthogonal(u) is U V^T of the singular value decomposition u = U S V^T, roughly: five steps of an iteration that needs
only matrix products. Every direction of a matrix is then learned at the same speed, also those that gradients rarely
point to. The factor makes a step as large as one of AdamW, so that learning rates of AdamW fit.

This holds for matrices between hidden vectors. Tables of vectors, output layers, biases and gains of norms are trained
by AdamW in the same step, and so are filters of convolutions.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from seqloom.nn.heads import Head, VectorHead
from seqloom.nn.inputs import Input
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.training.split_optimizer import SplitOptimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the polynomial that pulls singular values towards 1
ITERATIONS = 5
SCALE = 0.2  # root mean square of a step of AdamW
TINY = 1e-7
BF16 = ("cuda",)  # devices that multiply matrices faster in bfloat16, which is precise enough here


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """The matrices between hidden vectors: of linear maps and recurrences, not of inputs and heads."""
    outer = {
        id(weight)
        for module in model.modules()
        if isinstance(module, Input | Head | VectorHead)
        for weight in module.parameters()
    }
    found: dict[int, Tensor] = {}
    for module in model.modules():
        weights: list[Tensor] = []
        if isinstance(module, nn.Linear):
            weights = [module.weight]
        elif isinstance(module, Recurrent):
            weights = [module.input_weight, module.hidden_weight]
        found |= {id(weight): weight for weight in weights if weight.requires_grad and id(weight) not in outer}
    return list(found.values())


def orthogonal(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition of a matrix; singular values are between 0.7 and 1.2."""
    a, b, c = COEFFICIENTS
    x = matrix.to(torch.bfloat16 if matrix.device.type in BF16 else matrix.dtype)
    wide = x if x.shape[0] <= x.shape[1] else x.T  # its Gram matrix is the smaller one
    wide = wide / wide.norm().clamp(min=TINY)
    for _ in range(ITERATIONS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if x.shape[0] <= x.shape[1] else wide.T


class Muon(SplitOptimizer):
    """Muon for some matrices, AdamW for all other weights."""

    def __init__(self, groups: list[dict[str, Any]], rest: AdamW | None, *, lr: float, momentum: float) -> None:
        super().__init__(groups, rest, {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "fused": True})

    def move(self, weight: Tensor, group: dict[str, Any]) -> None:
        """Change a matrix by its gradient."""
        lr, momentum, average = group["lr"], group["momentum"], self.state[weight]["momentum_buffer"]
        assert weight.grad is not None
        gradient = weight.grad if self.grad_scale is None else weight.grad / self.grad_scale
        decay, size = lr * group["weight_decay"], lr * SCALE * max(weight.shape) ** 0.5
        if self.found_inf is None:
            average.lerp_(gradient, 1 - momentum)
            weight.mul_(1 - decay).add_(orthogonal(gradient.lerp(average, momentum)), alpha=-size)
            return
        gradient = torch.where(self.found_inf > 0, average, gradient)  # which leaves the average as it is
        after = average.lerp(gradient, 1 - momentum)
        average.copy_(torch.where(self.found_inf > 0, average, after))
        moved = (weight * (1 - decay)).add_(orthogonal(gradient.lerp(average, momentum)), alpha=-size)
        weight.copy_(torch.where(self.found_inf > 0, weight, moved))
