"""Optimisers: SGD with momentum, Adam and AdamW of torch, set up so that a step can be held back on the device.

    w <- w - rate * direction(gradient / divisor)         or nothing at all, where `hold` is 1

The fused kernels of torch divide the gradients by `divisor`, and on a GPU they look at `hold` themselves (the two are
called `grad_scale` and `found_inf` there), so nobody has to wait until the device has said whether the gradient was
finite. On a processor asking costs less than that, and where a device has no such kernel, the host must ask.

Decay is for matrices and larger: the gains of norms and the biases have one axis, and pulling them to zero does harm.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqloom.config.training import AdamConfig, AdamWConfig, AnyOptimiser, NewtonConfig, SgdConfig, TrainingConfig
from seqloom.errors import ConfigError

FUSED = ("cpu", "cuda")  # kinds of device whose fused kernels divide by `grad_scale`
HOLDING = ("cuda",)  # and look at `found_inf`; the processor's do so too, but slower than the host


def build_optimiser(config: TrainingConfig, model: nn.Module) -> Optimizer:
    """The optimiser of the weights that are not frozen, its moments there from the start."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise ConfigError("every weight is frozen, so there is nothing to train", fix="freeze fewer weights")
    sharded = hasattr(weights[0], "full_tensor")  # spread over ranks: torch has no fused SGD for such
    fused = weights[0].device.type in FUSED and not (isinstance(config.optimiser, SgdConfig) and sharded)
    decay = config.optimiser.decay
    matrices = [weight for weight in weights if decay and weight.ndim > 1]
    others = [weight for weight in weights if not (decay and weight.ndim > 1)]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = _build(config.optimiser, [one for one in groups if one["params"]], lr=config.rate, fused=fused)
    _fill(optimiser)
    return optimiser


def apply(optimiser: Optimizer, rate: float, divisor: Tensor, hold: Tensor) -> None:
    """Step the weights by their gradients over `divisor`, or leave them if `hold` is 1."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    fused = optimiser.param_groups[0]["fused"]
    held = hold if fused and hold.device.type in HOLDING else None
    if held is None and bool(hold):
        return
    if fused:
        optimiser.grad_scale, optimiser.found_inf = divisor.float(), held  # type: ignore[attr-defined]  # as torch.amp
    else:
        for gradient in gradients_of(optimiser):
            gradient.div_(divisor)
    optimiser.step()


def gradients_of(optimiser: Optimizer) -> list[Tensor]:
    """The gradients there are, in the order of the weights."""
    return [weight.grad for group in optimiser.param_groups for weight in group["params"] if weight.grad is not None]


def moments_of(optimiser: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser remembers, as `name of the weight.what it is`."""
    return {
        f"{name}.{what}": value
        for name, weight in model.named_parameters()
        for what, value in optimiser.state.get(weight, {}).items()
    }


def _build(config: AnyOptimiser, groups: list[dict[str, Any]], *, lr: float, fused: bool) -> Optimizer:
    match config:
        case SgdConfig():
            return torch.optim.SGD(groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
        case AdamConfig():
            return torch.optim.Adam(groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=fused)
        case AdamWConfig():
            return torch.optim.AdamW(groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=fused)
        case NewtonConfig():
            raise AssertionError("newton solves, and takes no steps by batches")


def _fill(optimiser: Optimizer) -> None:
    """Give every weight its moments, zero, as the first step would.

    So a checkpoint has the same tensors at every step. And torch's SGD takes *uninitialised* memory for momentum if the
    very first step is held back: its kernel would have filled it.
    """
    adam = isinstance(optimiser, torch.optim.Adam)  # AdamW is one
    for group in optimiser.param_groups:
        moments = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",) if group["momentum"] else ()
        for weight in group["params"]:
            for name in moments:
                optimiser.state[weight][name] = torch.zeros_like(weight, requires_grad=False)
            if adam:
                where = weight.device if group["fused"] else "cpu"
                optimiser.state[weight]["step"] = torch.zeros((), dtype=torch.float32, device=where)
