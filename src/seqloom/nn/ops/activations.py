"""Nonlinearities by name."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": identity,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": F.gelu,
}
