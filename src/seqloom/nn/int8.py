"""Large linear layers in 8-bit integers, for generating text on a CPU.

    W ~ s_o q        q in -127..127, a scale for each output        rounded once
    x ~ t_r p        p in -63..63, a scale for each row              for each call, inside the operator of the product
    y = t_r s_o (q p) + b                                           products and sums in integers

Generation reads every weight for every token, so a quarter of the bytes takes less time. This pays from 512 x 512
weights with VNNI, and from twice as many without; for smaller ones, rounding x takes longer than it saves. W_Q, W_K and
W_V are multiplied together. The output of a row does not depend on other rows. Float weights stay in the model: they
are used whenever gradients are computed. x has 7 bits: with 8, sums of two products overflow on CPUs without VNNI, and
torch does not say so.
"""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.nn.heads import NextTokenHead
from seqloom.nn.mixers.attention import CausalSelfAttention, SelfAttention

LEVELS = 127
ENGINES = ("x86", "fbgemm")  # of torch's quantized operators, that have the product with a given step
SMALLEST = 1e-30  # scale of a row of zeros
LARGE = 2**18  # weights of a matrix that is worth it; on CPUs without VNNI, twice as many
MANY = 2**18  # numbers of x whose copy takes longer than reading them twice
STEP, MIDDLE = 1 / 63, 64  # of the 7 bits for x in -1..1, which are 1..127


class Int8Product:
    """W x + b in int8, laid out for this CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        exact = weight.detach().float()
        scales = (exact.abs().amax(dim=1) / LEVELS).clamp(min=SMALLEST).double()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():  # torch has no successor yet for these types of numbers
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch.quantize_per_channel(exact, scales, zeros, 0, torch.qint8)
        self._packed: Any = torch.ops.quantized.linear_prepack(rounded, None)
        self._bias = exact.new_zeros(()) if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        """[...,O] from x [...,D]."""
        x = x.float()  # autocast gives bfloat16
        scale = _largest(x).clamp_(min=SMALLEST)
        # It rounds x / scale to integers and returns floats. With a step that is given, no row depends on another.
        product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        found: Tensor = product(x / scale, STEP, MIDDLE, self._packed)
        return torch.addcmul(self._bias, found, scale, out=found)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Int8Product":
        return self  # it never changes, and torch cannot copy it


def _largest(x: Tensor) -> Tensor:
    """[...,1] the largest absolute number of each row."""
    if x.numel() < MANY:
        return x.abs().amax(dim=-1, keepdim=True)
    return torch.maximum(x.amax(dim=-1, keepdim=True), x.amin(dim=-1, keepdim=True).neg_())


class QuantizedLinear(nn.Linear):
    """A linear layer that uses int8 when no gradients are computed."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.product = Int8Product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) if torch.is_grad_enabled() else self.product(x)


def is_large(weight: Tensor) -> bool:
    """Whether a matrix of so many weights is faster in int8 on this CPU."""
    return weight.numel() >= (LARGE if torch.cpu._is_vnni_supported() else 2 * LARGE)


def quantize(model: nn.Module) -> None:
    """Use int8 in the large linear layers of a model and in the head that scores tokens; in place.

    ConfigError if the model is not on a CPU in float32, or torch has no such product for the CPU.
    """
    if (engine := torch.backends.quantized.engine) not in ENGINES:
        raise ConfigError(f"int8 is for the CPUs of {' and '.join(ENGINES)}, found {engine}", fix="leave int8 out")
    if any(weight.device.type != "cpu" or weight.dtype != torch.float32 for weight in model.parameters()):
        raise ConfigError("int8 is for models on the CPU in float32", fix="use --device cpu, or leave int8 out")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and is_large(child.weight):
                setattr(module, name, QuantizedLinear(child))
        if isinstance(module, NextTokenHead) and is_large(module.table):
            module.matrix = Int8Product(module.table, module.bias)
        if isinstance(module, SelfAttention | CausalSelfAttention):
            heads = module.heads
            weight, bias = heads.joined(heads.query, heads.key, heads.value)
            heads.together = Int8Product(weight, bias) if is_large(weight) else None
