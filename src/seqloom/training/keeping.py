"""The tensors of a run by name: what is kept in a checkpoint, and put back from one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.errors import DurableError
from seqloom.training import sharding


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of a model as they are; what is known by two names (a tied table) comes under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


@torch.no_grad()
def put(mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Nothing; `mine` has the numbers of `given`."""
    for name, tensor in mine.items():
        sharding.put(tensor, given[name])


def copy_all(part: str, mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Nothing; every tensor of a part was put back. DurableError if one is missing, unknown, or of another shape."""
    wrong = sorted(mine.keys() ^ given.keys())
    wrong = wrong or [name for name, tensor in mine.items() if tensor.shape != given[name].shape]
    if wrong:
        raise DurableError(
            f"the part '{part}' of the checkpoint does not fit this run: {', '.join(wrong[:3])}"
            f"{' and so on' if len(wrong) > 3 else ''} {'is' if len(wrong) == 1 else 'are'} not on both sides alike",
            fix="go on with the model and the optimiser of the run, or begin in a new folder",
        )
    put(mine, given)


def leaves_of(state: Any) -> list[Tensor]:
    """The tensors of a nest of tuples, from left to right."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves_of(part)]


def plain(tensor: Tensor) -> Tensor:
    """The tensor, whole: one that is spread over ranks is gathered."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
