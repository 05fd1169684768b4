"""Linear maps that answer faster: the same model, on a processor, with packed weights or in whole numbers.

    float32   y = W x + b, the weights laid out once as the kernel of oneDNN reads them, and not again for each batch
    int8      y = s_x s_W (W_q x_q) + b,   x_q = round(x / s_x),  W_q = round(W / s_W),  both in -127..127

s_W is one number for each output, s_x one for each row, max|x| / 127: so the answer to a row does not depend on the
rows beside it (Dettmers et al. 2022, "LLM.int8()", vector-wise). Products of int8 are summed in int32, exactly.

torch's own dynamic quantisation (`quantize_dynamic`) makes tensors of types that torch is about to remove, warns of it,
and scales by the whole batch; it is no faster than this.
"""

import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inference.model import LoadedModel

Precision = Literal["float32", "int8"]
LARGEST = 127
SMALLEST = 1e-30  # of a scale: a row of zeros is divided by it
USUAL_ROWS = 1_024  # elements that oneDNN lays the weights out for


class PackedLinear(nn.Linear):
    """W x + b with weights that are laid out once."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.packed: Any = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), USUAL_ROWS)

    def forward(self, values: Tensor) -> Tensor:
        """[...,out] in float32."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(values, self.packed, self.bias, "none", [], "")
        return result


class Int8Linear(nn.Linear):
    """W x + b in whole numbers of eight bits."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        scale, whole = in_whole_numbers(linear.weight.detach())
        self.scale, self.whole = scale[:, 0], whole.T  # [out], [in,out]

    def forward(self, values: Tensor) -> Tensor:
        """[...,out] in float32."""
        scale, whole = in_whole_numbers(values.flatten(0, -2))
        # in place: fresh memory for each step costs more than the step
        result = torch._int_mm(whole, self.whole).float().mul_(scale).mul_(self.scale)
        if self.bias is not None:
            result.add_(self.bias)
        return result.view(*values.shape[:-1], self.out_features)


def in_whole_numbers(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The scale of each row [N,1], and the rows [N,D] in int8.

    >>> in_whole_numbers(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))[1].tolist()
    [[64, -127], [0, 0]]
    """
    scale = rows.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST).div_(LARGEST)
    return scale, (rows / scale).round_().to(torch.int8)


def require_precision(loaded: LoadedModel, precision: str) -> None:
    """Raise ConfigError for a precision that there is not, or not where the model is."""
    if precision not in get_args(Precision):
        raise ConfigError(f"precision '{precision}'", fix=did_you_mean(precision, get_args(Precision)))
    if precision == "int8" and loaded.device.type != "cpu":
        raise ConfigError(f"int8 is for processors, and the model is on {loaded.device}", fix="--device cpu")


def computing_in(loaded: LoadedModel, precision: str) -> LoadedModel:
    """The same model for answers only, computing in a precision; one on another device than the processor as it is."""
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
    """Put a faster map in the place of every plain linear map inside; who reads its weights finds them."""
    for name, child in module.named_children():
        if type(child) is nn.Linear and child.weight.dtype == torch.float32:
            setattr(module, name, kind(child))
        else:
            _replace(child, kind)
