"""Tensors as the bytes of a safetensors file, and back: the same tensors always give the same bytes.

The header has one entry of ours, a JSON text: two would be written in an order that changes from run to run.

    {"tied": {"head.weight": "embedding.weight"}, "places": {"embedding.weight": [40, [80, 16]]}}

`tied` names that share one tensor, which is stored once; `places` of tensors of which only a part is here.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from seqloom.errors import DamagedError
from seqloom.training.distributed import ShardPart, ShardPlace

NOTES = "seqloom"


def packed(part: ShardPart) -> bytes:
    """The file of some tensors: on the processor, contiguous, each memory once."""
    stored: dict[str, Tensor] = {}
    first_of: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in part.tensors.items():
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        first = first_of.setdefault(memory, name)
        if first != name and tensor.numel():  # all empty tensors are at the same address
            tied[name] = first
        else:
            stored[name] = _own(tensor)
    notes = {"tied": tied, "places": {name: list(place) for name, place in part.places.items()}}
    return safetensors.save(stored, {NOTES: json.dumps(notes, sort_keys=True)})


def _own(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own: a view of a larger one would be refused, or written with all of it."""
    here = tensor.detach().to("cpu").contiguous()
    return here if here.untyped_storage().nbytes() == here.nbytes else here.clone()


def unpacked(data: bytes, name: str) -> ShardPart:
    """The tensors of a file; tied names share one tensor again."""
    try:
        tensors = safetensors.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        notes = json.loads(header["__metadata__"][NOTES])
        tensors |= {other: tensors[first] for other, first in notes["tied"].items()}
        places = {other: ShardPlace(first, tuple(shape)) for other, (first, shape) in notes["places"].items()}
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{name}: expected tensors, found something else ({error!r})") from error
    return ShardPart(tensors, places)


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """How many bytes a file of these tensors has, or a few more; parts of several processes are counted as a whole."""
    return 4_096 + sum(tensor.nbytes + 128 + len(name) for name, tensor in tensors.items())


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that hold a number that is none, or infinite."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    return [name for name, tensor in floating.items() if not bool(torch.isfinite(tensor).all())]
