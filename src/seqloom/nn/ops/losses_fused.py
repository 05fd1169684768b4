"""The cross-entropy of a large vocabulary on a GPU: the scores of some rows at a time, and two passes over them.

    features, weight ──▶ scores ──▶ level of each row ──▶ slope, over the scores ──▶ gradients of features, weight, bias

As in `chunked_linear_cross_entropy`, gradients are computed in the forward pass, and the backward pass only scales
them. Rows of scores have a whole number of `ALIGNED` classes, because matrix products in half precision are several
times slower if rows begin anywhere; the slope of the additional classes is zero. The kernels are in `triton_losses`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import KernelError
from seqloom.nn.ops.kernels import on_its_device, triton_refuses
from seqloom.nn.ops.losses import ALIGNED
from seqloom.nn.types import Loss

DTYPES = (torch.float32, torch.bfloat16)
_MOST = 2**29  # scores in memory at a time
_LEVEL_BLOCK, _SLOPE_BLOCK, _SLOPE_ROWS, _GROUP = 4096, 512, 8, 128  # classes and rows of the kernels' tiles


def fused_refuses(features: Tensor, weight: Tensor) -> str | None:
    """Return why the fused loss does not support a request."""
    if reason := triton_refuses(features.device):
        return reason
    if (dtype := _run_dtype(features)) not in DTYPES or torch.float64 in (features.dtype, weight.dtype):
        return f"it does not support {str(dtype).removeprefix('torch.')}"
    return None


def fused_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
) -> Loss:
    """The same as `linear_cross_entropy`; KernelError for what `fused_refuses`."""
    if reason := fused_refuses(features, weight):
        raise KernelError(f"the fused cross-entropy cannot be used here: {reason}", fix="use linear_cross_entropy")
    shares = torch.ones_like(targets, dtype=torch.float32)
    if weights is not None:
        shares = weights.detach().float().expand(targets.shape)
        unused = shares == 0
        features, targets = features.masked_fill(unused[:, None], 0), targets.masked_fill(unused, 0)
    wanted = [torch.is_grad_enabled() and one is not None and one.requires_grad for one in (features, weight, bias)]
    total: Tensor
    total, *_ = _fused(
        features, weight, bias, targets.contiguous(), shares.contiguous(), smoothing, _run_dtype(features), *wanted
    )
    return Loss(total, shares.sum())


def _run_dtype(features: Tensor) -> torch.dtype:
    """The dtype in which matrices are multiplied."""
    device = features.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype


@torch.library.custom_op("seqloom::linear_cross_entropy", mutates_args=())
@on_its_device
def _fused(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    shares: Tensor,  # [N] the weights
    smoothing: float,
    run: torch.dtype,
    of_features: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The total, and the gradients that are wanted; empty tensors in place of the others."""
    classes, rows = len(weight), len(features)
    step = classes + -classes % ALIGNED
    table = F.pad(weight.to(run), (0, 0, 0, step - classes))
    shift = None if bias is None else F.pad(bias.to(run), (0, step - classes))
    by_features, by_weight, by_bias = _gradients_like(features, weight, bias, of_features, of_weight, of_bias)
    sums = [one.zero_() if one.dtype == torch.float32 else one.float().zero_() for one in (by_weight, by_bias)]
    total = features.new_zeros((), dtype=torch.float32)
    chunk = _chunk(rows, step)
    for start in range(0, rows, chunk):
        here = slice(start, start + chunk)
        x = features[here].to(run)
        scores = F.linear(x, table, shift)
        loss, summed = _slopes(
            scores, targets[here], shares[here], classes, smoothing, of_features or of_weight or of_bias, of_bias
        )
        total += loss
        if of_features:
            by_features[here] = scores @ table
        if of_weight:
            sums[0] += (scores.T @ x)[:classes]
        if of_bias:
            sums[1] += summed[:classes]
    return total, by_features, sums[0].to(by_weight.dtype), sums[1].to(by_bias.dtype)


def _chunk(rows: int, step: int) -> int:
    """Rows whose scores are in memory at a time: about equally many each time."""
    times = max(1, -(-rows * step // _MOST))
    return max(1, -(-rows // times))


def _slopes(
    scores: Tensor, targets: Tensor, shares: Tensor, classes: int, smoothing: float, sloped: bool, summed: bool
) -> tuple[Tensor, Tensor]:
    """The loss of some rows; if `sloped`, their scores become its slope, whose sum over the rows is returned too."""
    from seqloom.nn.ops import triton_losses

    rows, step = scores.shape
    level, losses = shares.new_empty(rows), shares.new_empty(rows)
    triton_losses.cross_entropy_levels[(rows,)](
        scores, targets, shares, level, losses, step, classes, smoothing, _LEVEL_BLOCK, num_warps=8
    )
    groups = -(-rows // _GROUP)
    sums = shares.new_empty(groups if summed else 0, step)
    if sloped:
        triton_losses.cross_entropy_slopes[(-(-step // _SLOPE_BLOCK), groups)](
            scores, targets, shares, level, sums, rows, step, classes, smoothing, summed, _GROUP, _SLOPE_ROWS,
            _SLOPE_BLOCK, num_warps=4,
        )  # fmt: skip
    return losses.sum(), sums.sum(dim=0)


def _gradients_like(
    features: Tensor, weight: Tensor, bias: Tensor | None, of_features: bool, of_weight: bool, of_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients that are wanted."""
    none = features.new_empty(0)
    return (
        torch.empty_like(features) if of_features else none,
        torch.empty_like(weight) if of_weight else none.clone(),
        torch.empty_like(bias) if bias is not None and of_bias else none.clone(),
    )


@_fused.register_fake
def _(features: Tensor, weight: Tensor, bias: Tensor | None, *more: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return features.new_empty((), dtype=torch.float32), *_gradients_like(features, weight, bias, *more[4:])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.wanted = inputs[-3:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:])


def _scaled(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # create_graph: autograd would treat the saved gradients as constants
        raise KernelError("fused_linear_cross_entropy has no second derivative", fix="use linear_cross_entropy")
    found = [
        gradient * upstream if wanted and upstream is not None else None
        for wanted, gradient in zip(ctx.wanted, ctx.saved_tensors, strict=True)
    ]
    return (*found, *[None] * 7)


_fused.register_autograd(_scaled, setup_context=_save)
