"""Optimizers: torch's SGD, Adam and AdamW, Muon and sparse AdamW, set up so that a step can be skipped on the device.

    w <- w - lr * direction(gradient / divisor)         or no change, if `hold` is 1

The fused kernels of torch divide the gradients by `divisor`, and on a GPU they check `hold` themselves (torch calls the
two `grad_scale` and `found_inf`), so the host does not wait to learn whether the gradient was finite. On a CPU a check
by the host is cheaper, and on devices without such kernels it is necessary.

Weight decay applies to tensors with two or more axes: not to biases and the gains of norms.
"""

import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seqloom.config.training import (
    AdamConfig,
    AdamWConfig,
    AnyOptimizer,
    MuonConfig,
    NewtonConfig,
    SgdConfig,
    SparseAdamWConfig,
    TrainingConfig,
)
from seqloom.errors import ConfigError
from seqloom.training import table_gradients
from seqloom.training.checkpoint import is_sharded
from seqloom.training.muon import Muon, hidden_matrices
from seqloom.training.sparse_adamw import SparseAdamW
from seqloom.training.table_gradients import RowGradients, each_row_once, give_rows, lookup_tables

FUSED = ("cpu", "cuda")  # kinds of device whose fused kernels divide by `grad_scale`
HOLDING = ("cuda",)  # and check `found_inf`; on the CPU a check by the host is faster
Kind = TypeVar("Kind", bound=Optimizer)


def build_optimizer(config: TrainingConfig, model: nn.Module, *, sparse: bool = False) -> Optimizer:
    """The optimizer of all weights that are not frozen, with its state initialized.

    With `sparse`, the gradients of large tables on a CPU, and of all tables of `sparse-adamw`, are rows from now on.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise ConfigError("all weights are frozen, so there is nothing to train", fix="freeze fewer weights")
    sharded = is_sharded(weights[0])  # torch has no fused SGD for sharded weights
    fused = weights[0].device.type in FUSED and not (isinstance(config.optimizer, SgdConfig) and sharded)
    sparse = sparse and weights[0].device.type == "cpu"
    tables = [table for table in lookup_tables(model) if sparse and table.numel() >= table_gradients.LARGE]
    match config.optimizer:
        case MuonConfig():
            optimizer: Optimizer = _muon(config.optimizer, model, weights, lr=config.lr, fused=fused, sharded=sharded)
        case SparseAdamWConfig():
            tables = _tables(model, weights, sharded=sharded)
            optimizer = _sparse_adamw(config.optimizer, tables, weights, lr=config.lr, fused=fused)
        case _:
            optimizer = _build(config.optimizer, _groups(weights, config.optimizer), lr=config.lr, fused=fused)
            if config.cuda_graphs and weights[0].device.type in HOLDING:
                _record_lr(optimizer, config.lr, weights[0].device)
    if not isinstance(optimizer, SparseAdamW) and tables:
        kept = RowGradients(tables)
        optimizer.register_step_pre_hook(kept.spread)
        optimizer.register_step_post_hook(kept.clear)
    give_rows(model, tables if sparse else [])
    _fill(optimizer)
    return optimizer


def _record_lr(optimizer: Optimizer, lr: float, device: torch.device) -> None:
    """Let all groups share a learning rate on the device, which a recorded step reads."""
    shared = torch.full((), lr, dtype=torch.float32, device=device)
    for group in optimizer.param_groups:
        group.update(lr=shared, capturable=True)
    vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True  # plain steps are meant too


def _groups(weights: list[nn.Parameter], config: AnyOptimizer) -> list[dict[str, Any]]:
    """The weights with decay, and those without."""
    decay = config.weight_decay
    matrices = [weight for weight in weights if decay and weight.ndim > 1]
    others = [weight for weight in weights if not (decay and weight.ndim > 1)]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return [one for one in groups if one["params"]]


def _muon(
    config: MuonConfig, model: nn.Module, weights: list[nn.Parameter], *, lr: float, fused: bool, sharded: bool
) -> Muon:
    """Muon for the matrices between hidden vectors, and AdamW for the rest."""
    if sharded:
        raise ConfigError("muon needs complete matrices, but here each process has a part of them", fix="use adamw")
    matrices = hidden_matrices(model)
    if not matrices:
        raise ConfigError("muon trains matrices between hidden vectors, and this model has none", fix="use adamw")
    groups = [{"params": matrices, "weight_decay": config.weight_decay, "fused": fused}]
    return uncompiled(Muon)(
        groups, _rest(config, weights, matrices, lr=lr, fused=fused), lr=lr, momentum=config.momentum
    )


def _tables(model: nn.Module, weights: list[nn.Parameter], *, sharded: bool) -> list[Tensor]:
    """The tables that `sparse-adamw` trains by rows."""
    if (device := weights[0].device.type) != "cpu":  # elsewhere the host would wait to learn which rows there are
        raise ConfigError(f"sparse-adamw is for the CPU, found {device}", fix="use adamw, or --device cpu")
    if sharded:
        raise ConfigError("sparse-adamw needs complete tables, but here each process has a part", fix="use adamw")
    tables = lookup_tables(model)
    if not tables:
        raise ConfigError(
            "sparse-adamw trains tables of vectors by the rows of a batch, and this model has no table that is trained "
            "and not used by its output layer too",
            fix="use adamw",
        )
    return tables


def _sparse_adamw(
    config: SparseAdamWConfig, tables: list[Tensor], weights: list[nn.Parameter], *, lr: float, fused: bool
) -> SparseAdamW:
    """AdamW by touched rows for these tables, and AdamW for the rest."""
    group: dict[str, Any] = {"params": tables, "weight_decay": config.weight_decay, "fused": fused}
    group |= {"betas": (config.beta1, config.beta2), "eps": config.eps}
    return uncompiled(SparseAdamW)([group], _rest(config, weights, tables, lr=lr, fused=fused), lr=lr)


def _rest(
    config: MuonConfig | SparseAdamWConfig,
    weights: list[nn.Parameter],
    own: list[Tensor],
    *,
    lr: float,
    fused: bool,
) -> torch.optim.AdamW | None:
    """AdamW for the weights that are not trained by the optimizer itself; None if there are none."""
    rest = [weight for weight in weights if all(weight is not other for other in own)]
    if not rest:
        return None
    plain = AdamWConfig(beta1=config.beta1, beta2=config.beta2, eps=config.eps, weight_decay=config.weight_decay)
    optimizer = _build(plain, _groups(rest, plain), lr=lr, fused=fused)
    assert isinstance(optimizer, torch.optim.AdamW)
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
    """The gradients that exist, in the order of the weights; of a sparse one, its rows, each once."""
    found = list[Tensor]()
    for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
        if weight.grad is not None and weight.grad.is_sparse:
            weight.grad = each_row_once(weight.grad)
            found.append(weight.grad.values())
        elif weight.grad is not None:
            found.append(weight.grad)
    return found


def moments_of(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer state as `WEIGHT.NAME`, such as `head.weight.exp_avg`."""
    return {
        f"{name}.{what}": value
        for name, weight in model.named_parameters()
        for what, value in optimizer.state.get(weight, {}).items()
    }


def uncompiled(kind: type[Kind]) -> type[Kind]:
    """The same optimizer without torch's wrappers, which import its compiler: two seconds of every run."""
    wrapped = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    bare = {name: inspect.unwrap(getattr(kind, name)) for name in wrapped}
    return type(kind.__name__, (kind,), {**bare, "step": torch.no_grad()(inspect.unwrap(kind.step))})


def _build(config: AnyOptimizer, groups: list[dict[str, Any]], *, lr: float, fused: bool) -> Optimizer:
    match config:
        case SgdConfig():
            return uncompiled(torch.optim.SGD)(
                groups, lr=lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused
            )
        case AdamConfig():
            return uncompiled(torch.optim.Adam)(
                groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused
            )
        case AdamWConfig():
            return uncompiled(torch.optim.AdamW)(
                groups, lr=lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused
            )
        case MuonConfig() | SparseAdamWConfig() | NewtonConfig():
            raise AssertionError("built elsewhere")


def _fill(optimizer: Optimizer) -> None:
    """Initialize the state of every weight with zeros, as the first step would.

    So a checkpoint has the same tensors at every step. Without it, torch's SGD would use *uninitialized* memory as
    momentum if the very first step is skipped.
    """
    for group in optimizer.param_groups:
        adam = "betas" in group
        moments = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",) if group["momentum"] else ()
        for weight in group["params"]:
            for name in moments:
                optimizer.state[weight][name] = torch.zeros_like(weight, requires_grad=False)
            if adam:
                where = weight.device if group["fused"] else "cpu"
                optimizer.state[weight]["step"] = torch.zeros((), dtype=torch.float32, device=where)
