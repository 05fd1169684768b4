"""The tensors of a run by name: what is kept in a checkpoint, and put back from one."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.errors import DurableError
from seqloom.training import distributed


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
        distributed.put(tensor, given[name])


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


# -----------------------------------------------------------------------------
# Weights averaged over time: along the way (exponential moving average), or over the last checkpoints.
#
#     average <- average + (1 - decay) (weights - average)                       Polyak and Juditsky 1992
#     decay of step n = min(decay, (1 + n) / (10 + n))       so that the random start is soon forgotten
#
# Averaged weights are what is validated and shipped; training goes on from its own.
# -----------------------------------------------------------------------------


class Average:
    """The moving average of a model's weights, on their device."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._weights = [weight.detach() for weight in trained.values()]
        self.values = {name: weight.detach().clone() for name, weight in trained.items()}

    @torch.no_grad()
    def follow(self, step: int, hold: Tensor) -> None:
        """Nothing; the average is a little nearer to the weights, or bit for bit what it was if `hold` is 1."""
        values = list(self.values.values())
        pace = (1 - min(self.decay, (1 + step) / (10 + step))) * (1 - hold)
        change = torch._foreach_sub(self._weights, values)
        torch._foreach_mul_(change, pace)
        torch._foreach_add_(values, change)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights, name by name; whole numbers are those of the last.

    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    last = weights[-1]
    return {
        name: _mean([one[name] for one in weights]) if last[name].is_floating_point() else last[name] for name in last
    }


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean, added up in float64 where the device has it, so that it does not depend on the order."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    total = torch.zeros_like(tensors[0], dtype=wide)
    for tensor in tensors:
        total += tensor.to(total.device)
    return (total / len(tensors)).to(tensors[0].dtype)
