"""Optimizers: torch's SGD with momentum, Adam and AdamW, set up so that a step can be skipped on the device.

    w <- w - lr * direction(gradient / divisor)         or no change, if `hold` is 1

The fused kernels of torch divide the gradients by `divisor`, and on a GPU they check `hold` themselves (torch calls the
two `grad_scale` and `found_inf`), so the host does not wait to learn whether the gradient was finite. On a CPU a check
by the host is cheaper, and on devices without such kernels it is necessary.

Weight decay applies to tensors with two or more axes: not to biases and the gains of norms.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqloom.config.training import AdamConfig, AdamWConfig, AnyOptimizer, NewtonConfig, SgdConfig, TrainingConfig
from seqloom.errors import ConfigError

FUSED = ("cpu", "cuda")  # kinds of device whose fused kernels divide by `grad_scale`
HOLDING = ("cuda",)  # and check `found_inf`; on the CPU a check by the host is faster


def build_optimizer(config: TrainingConfig, model: nn.Module) -> Optimizer:
    """The optimizer of all weights that are not frozen, with its state initialized."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise ConfigError("all weights are frozen, so there is nothing to train", fix="freeze fewer weights")
    sharded = hasattr(weights[0], "full_tensor")  # torch has no fused SGD for sharded weights
    fused = weights[0].device.type in FUSED and not (isinstance(config.optimizer, SgdConfig) and sharded)
    decay = config.optimizer.weight_decay
    matrices = [weight for weight in weights if decay and weight.ndim > 1]
    others = [weight for weight in weights if not (decay and weight.ndim > 1)]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = _build(config.optimizer, [one for one in groups if one["params"]], lr=config.lr, fused=fused)
    _fill(optimizer)
    if config.cuda_graphs and weights[0].device.type in HOLDING:  # a recorded step reads its learning rate
        lr = torch.full((), config.lr, dtype=torch.float32, device=weights[0].device)
        for group in optimizer.param_groups:
            group.update(lr=lr, capturable=True)
        vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True  # plain steps are meant too
    return optimizer


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate: a number, or with CUDA graphs a tensor that a recorded step reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
            return  # all groups share it
        group["lr"] = lr


def apply(optimizer: Optimizer, divisor: Tensor, hold: Tensor) -> None:
    """Update the weights by their gradients divided by `divisor`, or leave them if `hold` is 1."""
    fused = optimizer.param_groups[0]["fused"]
    found_inf = hold if fused and hold.device.type in HOLDING else None
    if found_inf is None and bool(hold):
        return
    if fused:
        optimizer.grad_scale, optimizer.found_inf = divisor.float(), found_inf  # type: ignore[attr-defined]  # as torch.amp
    else:
        for gradient in gradients_of(optimizer):
            gradient.div_(divisor)
    optimizer.step()


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """The gradients that exist, in the order of the weights."""
    return [weight.grad for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]


def moments_of(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer state as `WEIGHT.NAME`, such as `head.weight.exp_avg`."""
    return {
        f"{name}.{what}": value
        for name, weight in model.named_parameters()
        for what, value in optimizer.state.get(weight, {}).items()
    }


def _build(config: AnyOptimizer, groups: list[dict[str, Any]], *, lr: float, fused: bool) -> Optimizer:
    match config:
        case SgdConfig():
            return torch.optim.SGD(groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
        case AdamConfig():
            return torch.optim.Adam(groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused)
        case AdamWConfig():
            return torch.optim.AdamW(groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused)
        case NewtonConfig():
            raise AssertionError("newton is handled by `Solver`")


def _fill(optimizer: Optimizer) -> None:
    """Initialize the state of every weight with zeros, as the first step would.

    So a checkpoint has the same tensors at every step. Without it, torch's SGD would use *uninitialized* memory as
    momentum if the very first step is skipped.
    """
    adam = isinstance(optimizer, torch.optim.Adam)  # AdamW is one
    for group in optimizer.param_groups:
        moments = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",) if group["momentum"] else ()
        for weight in group["params"]:
            for name in moments:
                optimizer.state[weight][name] = torch.zeros_like(weight, requires_grad=False)
            if adam:
                where = weight.device if group["fused"] else "cpu"
                optimizer.state[weight]["step"] = torch.zeros((), dtype=torch.float32, device=where)
