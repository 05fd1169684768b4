"""Compilers, and the transforms of torch.func, which run a model on tensors that stand for others."""

import torch


def is_transformed() -> bool:
    """Whether torch compiles, or takes gradients, tangents or many samples with torch.func.

    Then numbers of tensors cannot be read, and a `torch.autograd.Function` of ours is replaced by torch's operators.
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
