"""W x + b by the kernel that fits; the plain operator is `F.linear`.

one row   on a GPU: generation of one text multiplies every matrix by a single row. torch's kernels for matrices give
          that row a tile of its own, and add up the parts of a product in a second kernel. The Triton kernel in
          `triton_linear` reads each weight once, with all multiprocessors. It is not used where Python launches the
          kernels, which would cost more than is saved.
onednn    on some CPUs: `linear_onednn`
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook

from seqloom.errors import ConfigError, KernelError, did_you_mean
from seqloom.nn.ops.kernels import Choice, is_recorded, named, on_its_device, report_choice, triton_refuses
from seqloom.nn.ops.linear_onednn import onednn_declines, onednn_linear, onednn_refuses
from seqloom.nn.ops.transforms import is_transformed

KERNELS = ("plain", "onednn")
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
    if is_recorded() and values.is_cuda and one_row_refuses(values, weight) is None:
        return one_row(values, weight, bias)
    if _is_for_onednn(values, weight, rows=values.numel() // max(1, values.shape[-1])):
        return onednn_linear(values, weight, bias)
    return F.linear(values, weight, bias)


def add_linear(total: Tensor, values: Tensor, weight: Tensor) -> None:
    """Add y^T x of a batch to a total [O,D] in place: values y^T [O,N], weight x^T [D,N]."""
    if _is_for_onednn(values, weight, rows=values.shape[-1]):
        total += onednn_linear(values, weight, None)
    else:
        total.addmm_(values, weight.T)


def _is_for_onednn(values: Tensor, weight: Tensor, rows: int) -> bool:
    """Whether oneDNN computes a product: the user named it, or nothing speaks against it."""
    if is_transformed() or forward_ad._current_level >= 0 or not (values.numel() and weight.numel()):
        return False  # its gradients have no tangents, and those of nothing raise
    if (name := named("linear")) is None:
        chosen = onednn_declines(values, weight, rows) is None and onednn_refuses(values, weight) is None
    elif name not in KERNELS:
        raise ConfigError(f"there is no kernel '{name}' for linear layers", fix=did_you_mean(name, KERNELS))
    else:
        chosen = name == "onednn"
        if chosen and (reason := onednn_refuses(values, weight)):
            raise KernelError(f"the kernel 'onednn' cannot be used here: {reason}", fix="choose another kernel")
    if chosen:
        report_choice("linear", lambda: Choice("onednn", {}))
    return chosen


def through(layer: nn.Module, values: Tensor) -> Tensor:
    """A linear layer applied to vectors [...,D]; one that does more than its type, or is not of it, applies itself."""
    if type(layer) is nn.Linear and not _is_changed(layer):
        return linear(values, layer.weight, layer.bias)
    result: Tensor = layer(values)
    return result


def _is_changed(layer: nn.Module) -> bool:
    """Whether Python runs beside the forward pass of the type of a layer, or instead of it."""
    if "forward" in vars(layer) or layer._compiled_call_impl is not None:
        return True
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(hooks) or _has_any_global_hook()  # type: ignore[no-untyped-call]
