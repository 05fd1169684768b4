"""W x + b in float32 by oneDNN, on CPUs of AMD with AVX-512: torch's own product, by MKL, uses half of them.

MKL computes with AVX2 on CPUs that Intel has not made. On an EPYC with AVX-512, one thread, float32, in ms:

    rows x inputs x outputs     MKL     oneDNN        and the gradients    MKL           oneDNN
    2,048 x 384 x 1,536        22.3        9.6                             22.3, 22.5    9.7, 12.4
    256 x 384 x 16,384         33.7       14.0                             30.9, 32.1   13.8, 16.8
    1 x 512 x 2,048            0.25       0.15

Both round once for each sum of a few products, in another order. For every new shape oneDNN generates code, in 0.15 ms
and more, and keeps it: about 0.8 MiB each, for the newest 1,024. So small products are left to MKL, and those of
numbers of rows that hardly repeat, as in batches of ragged texts. Which numbers these are does not depend on what was
computed before: a run that is resumed computes the same.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import has_torch_function

from seqloom.nn.ops.kernels import is_recorded

MANY_WEIGHTS = 2**20
MANY_PRODUCTS = 2**24
FEW_ROWS, MANY_ROWS = 64, 256


def onednn_refuses(values: Tensor, weight: Tensor) -> str | None:
    """Return why the kernel does not support a product."""
    if values.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "it needs oneDNN on a CPU"
    if values.dtype != torch.float32 or weight.dtype != torch.float32:
        return f"it needs float32, found {values.dtype} and {weight.dtype}"
    if type(weight) not in (Tensor, nn.Parameter) or torch.is_autocast_enabled("cpu"):
        return "weights are sharded, or the product is in another precision"
    if has_torch_function((weight,)) and not is_recorded():
        return "recorders of operations know torch's own product"
    return None


def onednn_declines(values: Tensor, weight: Tensor, rows: int) -> str | None:
    """Return why another kernel is better; `rows` is the axis of a product whose size depends on the batch."""
    if not mkl_is_slow():
        return "MKL uses all of this CPU"
    if weight.numel() < MANY_WEIGHTS and values.numel() * len(weight) < MANY_PRODUCTS:
        return "the product is too small"
    if rows != fitting_rows(rows):
        return f"{rows} rows are a number that hardly repeats"
    return None


def fitting_rows(rows: int) -> int:
    """Return the largest number of rows up to this one that repeats: up to 64, a power of two, or a multiple of 256.

    >>> [fitting_rows(rows) for rows in (3, 64, 83, 131, 262, 1000, 2048)]
    [3, 64, 64, 128, 256, 768, 2048]
    """
    if rows <= FEW_ROWS:
        return rows
    return rows - rows % MANY_ROWS if rows >= MANY_ROWS else 1 << (rows.bit_length() - 1)


@cache
def mkl_is_slow() -> bool:
    """Whether MKL leaves half of this CPU unused: it has AVX-512, and is not one of Intel's."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "AuthenticAMD" in facts


def onednn_linear(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b of vectors [...,D]."""
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (values, weight, bias)):
        found: Tensor = _OneDnnLinear.apply(values, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return _product(values, weight, bias)


def _product(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    dense = None if bias is None else bias.contiguous()  # the kernel ignores its stride
    found: Tensor = torch.ops.mkldnn._linear_pointwise(values, weight, dense, "none", [], "")
    return found


class _OneDnnLinear(torch.autograd.Function):
    """The product, whose gradients are products too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, weight)
        return _product(values, weight, bias)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        values, weight = ctx.saved_tensors
        rows, wanted = upstream.reshape(-1, upstream.shape[-1]), ctx.needs_input_grad  # [N,O]
        by_values = onednn_linear(upstream, weight.T, None) if wanted[0] else None
        by_weight = onednn_linear(rows.T, values.reshape(-1, values.shape[-1]).T, None) if wanted[1] else None
        return by_values, by_weight, rows.sum(dim=0) if wanted[2] else None
