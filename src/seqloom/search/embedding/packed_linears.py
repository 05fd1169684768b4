"""Faster linear layers for inference on a CPU: packed weights, or int8.

    float32   y = W x + b, with weights laid out once for the oneDNN kernel instead of for each batch
    int8      y = s_x s_W (W_q x_q) + b,   x_q = round(x / s_x),  W_q = round(W / s_W),  both in -127..127

There is one s_W per output and one s_x per row, max|x| / 127, so the result of a row does not depend on other rows of
the batch (Dettmers et al. 2022, "LLM.int8()", vector-wise). Products of int8 are summed exactly, in int32.

torch's dynamic quantization (`quantize_dynamic`) uses tensor types that are deprecated, warns about it, and scales by
the whole batch; it is not faster.
"""

import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inference.model import LoadedModel

Precision = Literal["float32", "int8"]
LARGEST = 127
SMALLEST = 1e-30  # smallest scale, for rows of zeros
USUAL_ROWS = 1_024  # rows that oneDNN optimizes the layout for


class PackedLinear(nn.Linear):
    """W x + b with weights that are packed once."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.packed: Any = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), USUAL_ROWS)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(values, self.packed, self.bias, "none", [], "")
        return result


class Int8Linear(nn.Linear):
    """W x + b in int8."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        scale, whole = quantize_rows(linear.weight.detach())
        self.scale, self.whole = scale[:, 0], whole.T  # [out], [in,out]

    def forward(self, values: Tensor) -> Tensor:
        scale, whole = quantize_rows(values.flatten(0, -2))
        # in place, because allocating memory costs more than the computation
        result = torch._int_mm(whole, self.whole).float().mul_(scale).mul_(self.scale)
        if self.bias is not None:
            result.add_(self.bias)
        return result.view(*values.shape[:-1], self.out_features)


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize rows [N,D] to int8; returns the scale of each row [N,1] and the rows.

    >>> quantize_rows(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))[1].tolist()
    [[64, -127], [0, 0]]
    """
    scale = rows.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST).div_(LARGEST)
    return scale, (rows / scale).round_().to(torch.int8)


def require_precision(loaded: LoadedModel, precision: str) -> None:
    """Raise ConfigError for an unknown precision, or one that the device does not support."""
    if precision not in get_args(Precision):
        raise ConfigError(f"unknown precision '{precision}'", fix=did_you_mean(precision, get_args(Precision)))
    if precision == "int8" and loaded.device.type != "cpu":
        raise ConfigError(f"int8 needs a CPU, but the model is on {loaded.device}", fix="--device cpu")


def with_precision(loaded: LoadedModel, precision: str) -> LoadedModel:
    """Return the model with faster linear layers, for inference.

    Args:
        loaded: A loaded model; one that is not on a CPU is returned unchanged.
        precision: "float32" packs the weights, "int8" quantizes them.
    """
    require_precision(loaded, precision)
    packs = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if loaded.device.type != "cpu" or (precision == "float32" and not packs):
        return loaded
    faster = copy.copy(loaded)
    shared = {id(weight): weight for weight in loaded.model.parameters()}
    faster.model = copy.deepcopy(loaded.model, shared)
    _replace(faster.model, Int8Linear if precision == "int8" else PackedLinear)
    return faster


def _replace(module: nn.Module, kind: type[PackedLinear] | type[Int8Linear]) -> None:
    """Replace every plain linear layer with a faster one that still has `weight` and `bias`."""
    for name, child in module.named_children():
        if type(child) is nn.Linear and child.weight.dtype == torch.float32:
            setattr(module, name, kind(child))
        else:
            _replace(child, kind)
