"""Selection of the kernel for the cross-entropy of a vocabulary: each equals `plain` where it does not refuse.

fused    on a GPU: the scores of some rows at a time, two passes over them
aligned  in compiled code, if all scores find room: the compiler fuses the passes
chunked  the scores of some rows at a time
plain    the definition, with the scores of all rows
"""

from collections.abc import Callable

import torch
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.nn.ops.kernels import Choice, named, report_choice
from seqloom.nn.ops.losses import (
    MOST_SCORES,
    aligned_linear_cross_entropy,
    chunked_linear_cross_entropy,
    linear_cross_entropy,
)
from seqloom.nn.ops.losses_fused import fused_linear_cross_entropy, fused_refuses
from seqloom.nn.types import Loss

KERNELS: dict[str, Callable[..., Loss]] = {
    "plain": linear_cross_entropy,
    "chunked": chunked_linear_cross_entropy,
    "aligned": aligned_linear_cross_entropy,
    "fused": fused_linear_cross_entropy,
}


def vocabulary_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    smoothing: float = 0.0,
) -> Loss:
    """The same as `linear_cross_entropy` by the named kernel, or by the best for the device."""
    name = named("cross_entropy")
    if name is not None and name not in KERNELS:
        raise ConfigError(f"there is no cross-entropy kernel '{name}'", fix=did_you_mean(name, KERNELS))
    choice = _best(features, weight) if name is None else Choice(name, {})
    report_choice("cross_entropy", lambda: choice)
    return KERNELS[choice.kernel](features, weight, bias, targets, weights=weights, smoothing=smoothing)


def _best(features: Tensor, weight: Tensor) -> Choice:
    refused: dict[str, str] = {}
    if features.is_cuda:
        if (reason := fused_refuses(features, weight)) is None:
            return Choice("fused", refused)
        refused["fused"] = reason
    compiled = torch.compiler.is_compiling() and len(features) * len(weight) <= MOST_SCORES
    return Choice("aligned" if compiled else "chunked", refused)
