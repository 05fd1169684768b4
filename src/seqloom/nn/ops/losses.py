"""Losses as weighted sums, so that a training step can add them over batches and devices and divide once.

A position of weight zero (padding, an ignored label) is removed before anything is computed: its scores and its target,
even an invalid target, affect neither the value nor a gradient. Weights are data: they get no gradient.

The losses share one derivative. With z the scores, y the targets and a the prediction made from the scores,

    softmax    a = exp(z) / sum exp(z)      L = -sum_c y_c log a_c                     dL/dz = a - y
    logistic   a = 1 / (1 + exp(-z))        L = -y log a - (1 - y) log(1 - a)          dL/dz = a - y
    identity   a = z                        L = (z - y)^2                              dL/dz = 2 (a - y)

`chunked_linear_cross_entropy` uses dL/dz in closed form, so it never has to store the scores.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.errors import KernelError
from seqloom.nn.ops.linear import add_linear, linear
from seqloom.nn.ops.linear_onednn import fitting_rows, mkl_is_slow
from seqloom.nn.types import Loss


def cross_entropy(
    scores: Tensor,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Loss:
    """The weighted sum of -log p(target), from scores [...,C], targets [...] and weights [...].

        L = sum_n w_n (-sum_c q_nc v_c log p_nc)         p_n = softmax(z_n)
        q_nc = (1 - s) [c = y_n] + s / C

    with z scores, y targets, w weights, v class weights and s smoothing (Szegedy et al. 2016). The weight is
    sum_n w_n v_{y_n}, so that `Loss.mean` is the weighted mean that torch computes.

    >>> loss = cross_entropy(torch.zeros(3, 4), torch.tensor([0, 3, -100]), weights=torch.tensor([1.0, 1.0, 0.0]))
    >>> f"{loss.total.item():.4f} over {loss.weight.item():.0f}"  # 2 log 4
    '2.7726 over 2'
    """
    scores, all_count = _at_least_float32(scores), weights is None
    weights = _weights_like(targets, weights, scores.dtype)
    if not all_count:
        used = weights != 0
        scores, targets = scores.masked_fill(~used[..., None], 0), targets.masked_fill(~used, 0)
    log_p = scores.log_softmax(dim=-1)
    if class_weights is not None:
        class_weights = class_weights.detach().to(log_p.dtype)
        log_p = log_p * class_weights
    losses = -(1 - smoothing) * log_p.gather(-1, targets[..., None]).squeeze(-1)
    if smoothing:
        losses = losses - smoothing * log_p.mean(dim=-1)
    counted = weights if class_weights is None else weights * class_weights[targets]
    return Loss((weights * losses).sum(), counted.sum())


def cross_entropy_curvature(
    scores: Tensor,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """The second derivative of `cross_entropy` by its scores: the product with a direction x [...,C].

    H_n x_n = c_n (p_n * x_n - p_n (p_n . x_n))          c_n = w_n sum_c q_nc v_c
    """
    scores = _at_least_float32(scores)
    shares = _weights_like(targets, weights, scores.dtype)
    if class_weights is not None:
        class_weights = class_weights.detach().to(scores.dtype)
        of_target = class_weights[targets.masked_fill(shares == 0, 0)]
        shares = shares * ((1 - smoothing) * of_target + smoothing * class_weights.mean())
    probabilities = scores.masked_fill(shares[..., None] == 0, 0).softmax(dim=-1)
    weighed = probabilities * shares[..., None]

    def times(along: Tensor) -> Tensor:
        return (along - (probabilities * along).sum(dim=-1, keepdim=True)).mul_(weighed)

    return times


def binary_cross_entropy(scores: Tensor, targets: Tensor, *, weights: Tensor | None = None) -> Loss:
    """The weighted sum of -y log a - (1 - y) log(1 - a) with a = sigmoid(z), element by element; y may be in [0,1].

    log a is computed as log-sigmoid of z and log(1 - a) as log-sigmoid of -z: neither overflows, and neither loses the
    last digits of a confident prediction.
    """
    scores, targets, weights = _elements(scores, targets, weights)
    losses = -targets * F.logsigmoid(scores) - (1 - targets) * F.logsigmoid(-scores)
    return Loss((weights * losses).sum(), weights.sum())


def squared_error(scores: Tensor, targets: Tensor, *, weights: Tensor | None = None) -> Loss:
    """The weighted sum of (z - y)^2, element by element."""
    scores, targets, weights = _elements(scores, targets, weights)
    return Loss((weights * (scores - targets) ** 2).sum(), weights.sum())


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
) -> Loss:
    """The cross-entropy of z = features weight^T + bias: features [N,D], weight [V,D], bias [V], targets [N]."""
    return cross_entropy(F.linear(features, weight, bias), targets, weights=weights, smoothing=smoothing)


ALIGNED = 64  # classes: matrix products in half precision are several times slower if rows begin anywhere
MOST_SCORES = 2**32  # that a compiled loss holds at once


def aligned_rows(weight: Tensor) -> Tensor | None:
    """The weight with further rows from the memory behind it, up to a multiple of `ALIGNED`; None if it ends before.

    What is in these rows does not matter: each row of a matrix is the weight of one class.
    """
    rows, end = len(weight) + -len(weight) % ALIGNED, weight.untyped_storage().nbytes() // weight.element_size()
    if not weight.is_contiguous() or weight.storage_offset() + rows * weight[0].numel() > end:
        return None
    return weight.detach().as_strided((rows, *weight.shape[1:]), weight.stride())


def aligned_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
) -> Loss:
    """The same as `linear_cross_entropy`, in a form that a compiler makes fast: a whole number of `ALIGNED` classes.

    Scores of the additional classes are computed and dropped. The compiler computes the rest in two passes over the
    scores, in float32, without storing them so.
    """
    classes, extra = len(weight), -len(weight) % ALIGNED
    if extra:
        weight, bias = F.pad(weight, (0, 0, 0, extra)), None if bias is None else F.pad(bias, (0, extra))
    scores = F.linear(features, weight, bias)[:, :classes]
    return cross_entropy(scores, targets, weights=weights, smoothing=smoothing)


LARGEST_CHUNK = 1024  # rows
SCORES_OF_CHUNK = 2**22  # on a CPU


def chunked_linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> Loss:
    """The same as `linear_cross_entropy`, but it stores scores [chunk,V] instead of [N,V].

    On a CPU a chunk has about 16 MB of scores, unless given: for more, the memory comes from the system page by page.

    With a large vocabulary the scores and their gradient are the largest tensors of a language model. Here each chunk
    of rows is scored, converted to dL/dz = w (p - q) in place and multiplied into the required gradients:

        dL/dfeatures = dL/dz weight        dL/dweight = (dL/dz)^T features        dL/dbias = sum_n dL/dz_n

    so that the backward pass only scales them by the gradient of the total.
    """
    weights = _weights_like(targets, weights, torch.promote_types(features.dtype, torch.float32))
    if chunk is None:
        chunk = LARGEST_CHUNK
        if features.device.type == "cpu":
            chunk = max(1, min(chunk, SCORES_OF_CHUNK // len(weight)))
            chunk = fitting_rows(chunk) if mkl_is_slow() else chunk
    rows = _Rows(targets.masked_fill(weights == 0, 0), weights, smoothing, chunk)
    if torch.is_grad_enabled():
        total = _ChunkedLinearCrossEntropy.apply(features, weight, bias, rows)  # type: ignore[no-untyped-call]
    else:
        total = _score_chunks(features, weight, bias, rows, wanted=(False, False, False))[0]
    return Loss(total, weights.sum())


class _Rows(NamedTuple):
    """The targets and weights of the rows of features."""

    targets: Tensor  # [N] a class for each row, also for rows of weight zero
    weights: Tensor  # [N] float32 or wider
    smoothing: float
    chunk: int


class _ChunkedLinearCrossEntropy(torch.autograd.Function):
    """The total, with gradients that are computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, rows: _Rows) -> Tensor:
        total, *gradients = _score_chunks(features, weight, bias, rows, wanted=ctx.needs_input_grad[:3])
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: autograd would treat the saved gradients as constants
            raise KernelError("chunked_linear_cross_entropy has no second derivative", fix="use linear_cross_entropy")
        return (*(None if gradient is None else gradient * upstream for gradient in ctx.saved_tensors), None)


def _score_chunks(
    features: Tensor, weight: Tensor, bias: Tensor | None, rows: _Rows, *, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the total and the gradients by features, weight and bias; None for one that is not wanted."""
    # Sums over chunks are in float32 or wider, because in bfloat16 the hundredth chunk would hardly change them;
    # autograd casts each gradient to the dtype of its parameter.
    wide = rows.weights.dtype
    total = features.new_zeros((), dtype=wide)
    # float16 has no small numbers, and the loss scale of a trainer is only applied in the backward pass
    kept = wide if features.dtype == torch.float16 else features.dtype
    by_features = torch.empty_like(features, dtype=kept) if wanted[0] else None
    by_weight = torch.zeros_like(weight, dtype=wide) if wanted[1] else None
    by_bias = torch.zeros_like(bias, dtype=wide) if bias is not None and wanted[2] else None
    for start in range(0, len(features), rows.chunk):
        here = slice(start, start + rows.chunk)
        y, w = rows.targets[here, None], rows.weights[here, None]  # [chunk,1]
        x = features[here].masked_fill(w == 0, 0)  # [chunk,D]
        scores = linear(x, weight, bias)  # [chunk,V], in bfloat16 under autocast
        logs, precision = scores.log_softmax(dim=-1, dtype=wide), scores.dtype
        del scores  # its memory is needed below
        with torch.autocast(features.device.type, enabled=False):  # it would undo the casts below
            total -= (w * _expected(logs, y, rows.smoothing)).sum()
            if not any(wanted):
                continue
            slope = _slope_over(logs, y, w, rows.smoothing)
            if by_bias is not None:
                by_bias += slope.sum(dim=0)
            run = wide if precision == torch.float16 else precision  # else in the precision of the product above
            slope = slope.to(run)
            if by_features is not None:
                by_features[here] = linear(slope, weight.to(run).T, None)
            if by_weight is not None and run == wide:
                add_linear(by_weight, slope.T, x.to(run).T)
            elif by_weight is not None:
                by_weight += slope.T @ x.to(run)
    return total, by_features, by_weight, by_bias


def _expected(logs: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """[n,1] sum_c q_c log p_c of log-probabilities [n,V] and targets y [n,1]."""
    hit = logs.gather(-1, y)
    return (1 - smoothing) * hit + smoothing * logs.mean(dim=-1, keepdim=True) if smoothing else hit


def _slope_over(logs: Tensor, y: Tensor, w: Tensor, smoothing: float) -> Tensor:
    """[n,V] dL/dz = w (p - q), written over log p, which is not needed any more."""
    p = logs.exp_()
    slope = (p.sub_(smoothing / p.shape[-1]) if smoothing else p).mul_(w)
    return slope.scatter_add_(-1, y, (smoothing - 1) * w)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _weights_like(targets: Tensor, weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Weights of the targets' shape; ones by default."""
    if weights is None:
        return torch.ones(targets.shape, dtype=dtype, device=targets.device)
    return weights.detach().to(dtype).expand(targets.shape)


def _elements(scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, targets and weights in one dtype and shape; the first two are zero where the weight is zero."""
    scores = _at_least_float32(scores)
    targets = targets.to(scores.dtype).expand(scores.shape)
    weights = _weights_like(scores, weights, scores.dtype)
    unused = weights == 0
    return scores.masked_fill(unused, 0), targets.masked_fill(unused, 0), weights
