"""W x + b of one vector on a GPU: generation of one text multiplies every matrix by a single row.

torch's kernels for matrices give that row a tile of its own, and add up the parts of a product in a second kernel. The
Triton kernel in `triton_linear` reads each weight once, with all multiprocessors. The plain operator is `F.linear`; it
is used wherever Python launches the kernels, which would cost more than is saved.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from seqloom.errors import KernelError
from seqloom.nn.ops.kernels import launches_are_free, on_its_device, triton_refuses

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TILE = 8192  # weights
_WIDEST = 4096  # columns of a tile


def one_row_refuses(values: Tensor, weight: Tensor) -> str | None:
    """Return why the kernel does not support a product."""
    if torch.is_grad_enabled():
        return "it has no gradient"
    if reason := triton_refuses(values.device):
        return reason
    if values.numel() != weight.shape[1] or values.shape[-1] != weight.shape[1]:
        return f"it multiplies one row, found {list(values.shape)}"
    if values.dtype not in DTYPES or values.dtype != weight.dtype or torch.is_autocast_enabled(values.device.type):
        return "it needs vectors and weights of one dtype, float32, bfloat16 or float16, without autocast"
    if weight.stride(1) != 1:
        return "rows of the weight are not contiguous"
    return None


@on_its_device
def one_row(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of one row [...,D] with weight [N,D]; KernelError for what `one_row_refuses`."""
    if reason := one_row_refuses(values, weight):
        raise KernelError(f"the product of one row cannot be used here: {reason}", fix="use F.linear")
    from seqloom.nn.ops import triton_linear

    rows, width = weight.shape
    output = values.new_empty(*values.shape[:-1], rows)
    columns = min(_WIDEST, max(16, 1 << (width - 1).bit_length()))
    outputs = max(1, _TILE // columns)
    triton_linear.one_row_product[(-(-rows // outputs),)](
        values.contiguous(), weight, weight if bias is None else bias.contiguous(), output, rows, width,
        weight.stride(0), bias is not None, outputs, columns, num_warps=4,
    )  # fmt: skip
    return output


def linear(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b of vectors [...,D] by the kernel that fits."""
    if launches_are_free() and values.is_cuda and one_row_refuses(values, weight) is None:
        return one_row(values, weight, bias)
    return F.linear(values, weight, bias)


def through(layer: nn.Module, values: Tensor) -> Tensor:
    """A linear layer applied to vectors [...,D]; one of another type, such as int8, or with hooks applies itself."""
    if launches_are_free() and type(layer) is nn.Linear:
        hooks = layer._forward_hooks or layer._forward_pre_hooks or _has_any_global_hook()  # type: ignore[no-untyped-call]
        if not hooks:
            return linear(values, layer.weight, layer.bias)
    result: Tensor = layer(values)
    return result
