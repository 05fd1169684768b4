"""The loss of a step as a module; and the same compiled by torch.compile.

    Batch(Padded(values, lengths, ...), targets), state ──▶ tensors ──▶ compiled ──▶ tensors ──▶ total, weight, state

The compiled function takes and returns plain tensors, and makes the named tuples of a batch inside: older versions of
torch cannot compile a function of named tuples. If batches have many shapes, sizes are symbols in the compiled code, so
that it is compiled once or twice and not for every shape.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.nn.types import Batch, Padded, map_state
from seqloom.tasks.task import Batcher
from seqloom.training.checkpoint import leaves_of
from seqloom.training.devices import Device

COMPILER = "inductor"

AnyBatch = Batch[Any, Any]
Compiled = Callable[..., tuple[Tensor, ...]]


class LossOf(nn.Module):
    """The loss of a task as a module, so that DDP, sharding and compilation can wrap it."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, task: Batcher, batch: AnyBatch | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """The summed loss, its weight, and the next state, detached.

        A rank without a batch takes part with a loss of zero over all weights.
        """
        if batch is None:
            total = torch.stack([weight.sum() * 0 for weight in self.model.parameters() if weight.requires_grad]).sum()
            return total, total.detach(), state
        with self.device.mixed():
            loss, after = task.loss(self.model, batch, state)
        return loss.total, loss.weight.detach(), None if after is None else map_state(Tensor.detach, after)


class CompiledLoss(nn.Module):
    """The loss of a task, with the signature of `LossOf`."""

    def __init__(self, loss: LossOf, task: Batcher, *, dynamic: bool) -> None:
        """`task` is the one whose loss is compiled; another one that saves memory is not."""
        super().__init__()
        self.loss, self.task, self.dynamic = loss, task, dynamic
        self._compiled: dict[Any, Compiled] = {}

    def forward(self, task: Batcher, batch: AnyBatch | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """The summed loss, its weight, and the next state, detached."""
        if batch is None or task is not self.task:
            return self.loss(task, batch, state)  # type: ignore[no-any-return]
        parts = (without_layout(batch.inputs), without_layout(batch.targets), state)
        key = _structure(parts)
        if key not in self._compiled:
            self._compiled[key] = self._compile(parts)
        total, weight, *rest = self._compiled[key](*_tensors(parts))
        if not rest:
            return total, weight, None
        following = iter(rest)
        # a model that carries a state
        like = self.loss.model.initial_state(len(batch.targets))  # type: ignore[operator]
        return total, weight, map_state(lambda _: next(following), like)

    def _compile(self, parts: tuple[Any, ...]) -> Compiled:
        loss, task, shape = self.loss, self.task, _skeleton(parts)

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            inputs, targets, state = _filled(shape, iter(tensors))
            total, weight, after = loss(task, Batch(inputs, targets), state)
            return total, weight, *(() if after is None else leaves_of(after))

        return torch.compile(run, backend=COMPILER, dynamic=self.dynamic)


def without_layout(part: Any) -> Any:
    """The same nested tuples; layouts, which know the lengths of one batch, are made anew."""
    if isinstance(part, Padded):
        part = part._replace(shared=None)
    if isinstance(part, Tensor) or not isinstance(part, tuple):
        return part
    inner = map(without_layout, part)
    return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)


def _tensors(part: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, from left to right."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for inner in part:
            yield from _tensors(inner)


def _structure(part: Any) -> Any:
    """What must agree so that a compiled function fits: types, and all that is no tensor."""
    if isinstance(part, Tensor):
        return part.dtype, part.ndim
    return (type(part), *map(_structure, part)) if isinstance(part, tuple) else part


def _skeleton(part: Any) -> Any:
    """The nested tuples with None for each tensor, as (type, parts); the rest as it is."""
    if isinstance(part, Tensor):
        return Tensor
    return (type(part), [_skeleton(inner) for inner in part]) if isinstance(part, tuple) else part


def _filled(shape: Any, tensors: Iterator[Tensor]) -> Any:
    """The nested tuples of a skeleton with these tensors."""
    if shape is Tensor:
        return next(tensors)
    if not isinstance(shape, tuple):
        return shape
    kind, inner = shape
    parts: Sequence[Any] = [_filled(one, tensors) for one in inner]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
