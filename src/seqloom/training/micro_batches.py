"""A batch cut by rows into pieces that fit into memory, moved to a device, and counted.

    1 x 64 rows  =  4 x 16 rows  =  16 x 4 rows        the same sum of losses, so the same gradient

Whatever a batch is made of - padded symbols, pairs, pictures - every tensor in it has the rows on axis 0. The same is
true of a state that is carried from step to step, so both are cut and joined by the same few lines.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqloom.nn.types import Batch, Padded, Spelled, Subwords, map_state

AnyBatch = Batch[Any, Any]
Nest = TypeVar("Nest")


def cut(batch: AnyBatch, pieces: int) -> list[AnyBatch]:
    """The batch in so many pieces, or in as many as it has rows: in order, their sizes differing by one at most.

    >>> whole = Batch(Padded.of(torch.arange(10).view(5, 2)), torch.arange(5), ids=tuple("abcde"))
    >>> [(piece.ids, piece.targets.tolist()) for piece in cut(whole, 2)]
    [(('a', 'b', 'c'), [0, 1, 2]), (('d', 'e'), [3, 4])]
    """
    rows = rows_of(batch)
    if pieces == 1 or rows == 1:
        return [batch]
    whole_ids = len(batch.ids) == rows  # packed rows hold several documents each: their ids cannot be dealt out

    def rows_from(start: int, stop: int) -> AnyBatch:
        inputs = _mapped(lambda tensor: tensor[start:stop], batch.inputs)
        targets = _mapped(lambda tensor: tensor[start:stop], batch.targets)
        return Batch(inputs, targets, batch.ids[start:stop] if whole_ids else ())

    return [rows_from(start, stop) for start, stop in spans(rows, pieces)]


def spans(rows: int, pieces: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends; never an empty one.

    >>> spans(5, 2), spans(2, 4)
    ([(0, 3), (3, 5)], [(0, 1), (1, 2)])
    """
    count = min(rows, pieces)
    size, larger = divmod(rows, count)
    edges = [number * size + min(number, larger) for number in range(count + 1)]
    return list(pairwise(edges))


def rows_of(batch: AnyBatch) -> int:
    """How many rows a batch has."""
    return len(_first(batch.inputs))


def cut_state(state: Any, pieces: list[tuple[int, int]]) -> list[Any]:
    """The state of the rows of each piece; None for each where there is no state."""
    if state is None or len(pieces) == 1:
        return [state] * len(pieces)
    return [map_state(lambda tensor: tensor[start:stop], state) for start, stop in pieces]  # noqa: B023


def join_states(states: Sequence[Any]) -> Any:
    """The state of all rows, from the states of the pieces."""
    first = states[0]
    if first is None or len(states) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    joined = [join_states(parts) for parts in zip(*states, strict=True)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def moved(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """The batch on a device; to a GPU it travels from pinned memory while the host goes on."""
    if device.type == "cpu":
        return batch
    pinned = device.type == "cuda"

    def move(tensor: Tensor) -> Tensor:
        return (_pinned(tensor) if pinned else tensor).to(device, non_blocking=pinned)

    return batch._replace(inputs=_mapped(move, batch.inputs), targets=_mapped(move, batch.targets))


def elements_of(batch: AnyBatch) -> tuple[int, int]:
    """How many elements the inputs hold with padding, and without: symbols, steps of vectors, rows of pixels.

    It looks at the numbers of the batch, so it is for batches that are still on the host.

    >>> elements_of(Batch(Padded.of(torch.ones(2, 3), torch.tensor([3, 1])), torch.zeros(2)))
    (6, 4)
    """
    return _counted(batch.inputs)


def _counted(inputs: Any) -> tuple[int, int]:
    if isinstance(inputs, Padded):
        rows, time = inputs.values.shape[:2]
        return rows * time, rows * time if inputs.full else int(inputs.lengths.sum())
    if isinstance(inputs, Tensor):
        elements = inputs.shape[0] * inputs.shape[1] if inputs.ndim > 1 else len(inputs)
        return elements, elements
    if isinstance(inputs, Subwords | Spelled):  # what is read are the pieces of the words, or the words
        return _counted(inputs[0])
    sides = [_counted(side) for side in inputs]
    return sum(elements for elements, _ in sides), sum(symbols for _, symbols in sides)


def _mapped(function: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """The same nest of tuples with a function applied to the tensors; whatever else is in it stays."""
    if isinstance(nest, Tensor):
        return function(nest)  # type: ignore[return-value]  # a Tensor maps to a Tensor
    if not isinstance(nest, tuple):
        return nest
    parts = [_mapped(function, part) for part in nest]
    return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)


def _first(nest: Any) -> Tensor:
    while not isinstance(nest, Tensor):
        nest = nest[0]
    return nest


def _pinned(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type != "cpu" or tensor.is_pinned() else tensor.pin_memory()
