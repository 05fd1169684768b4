"""Tensors as bytes and back: safetensors, looked at by ourselves before the library sees them.

    8 bytes: size of the header │ header: JSON of names, types, shapes, places │ the numbers of each tensor

A header can claim anything: tensors larger than the file, overlapping ones, millions of them. So every claim is
compared with the bytes that are there before memory is taken for one tensor. Nothing is mapped: a page that a disk
loses from under a map kills the process. Model folders, checkpoints and imported weights all come through here.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from seqloom.errors import DamagedError

HEADER_LIMIT = 8 << 20  # bytes
MOST_TENSORS = 65_536
NOTE = "seqloom"  # the one key of the metadata: the order of several would differ from writing to writing
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPES |= {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./-]{0,255}")
_RESTORE = "restore it from a copy, or train the model again"

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Slot(NamedTuple):
    """What a tensor is, without its numbers."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Slot":
        """The slot that a tensor fits."""
        return cls(tensor.dtype, tuple(tensor.shape))

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor in a header."""

    dtype: str
    shape: tuple[Whole, ...]
    data_offsets: tuple[Whole, Whole]


class TensorHeader(NamedTuple):
    """What a file of weights claims to hold."""

    slots: dict[str, Slot]
    note: dict[str, Any]  # written beside them


def to_bytes(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> bytes:
    """The bytes of a file of weights: the same for the same tensors and note."""
    whole = {}
    for name, tensor in tensors.items():
        here = tensor.detach().to("cpu").contiguous()
        # In memory of its own: a view of a larger one would be refused, or written with all of it.
        whole[name] = here if here.untyped_storage().nbytes() == here.nbytes else here.clone()
    return bytes(safetensors.torch.save(whole, metadata={NOTE: json.dumps(note, sort_keys=True)}))


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that hold a number that is none, or infinite."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    return [name for name, tensor in floating.items() if not bool(all_finite(tensor))]


def all_finite(tensor: Tensor) -> Tensor:
    """Whether all numbers of a floating tensor are finite, on its device: its least and its largest tell, in one pass.

    >>> [bool(all_finite(torch.tensor([0.0, number]))) for number in (-2.0, float("nan"), float("-inf"))]
    [True, False, False]
    """
    if not tensor.numel():
        return torch.ones((), dtype=torch.bool, device=tensor.device)
    return torch.stack(torch.aminmax(tensor)).isfinite().all()


def from_bytes(data: bytes, place: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note in the bytes of a file; DamagedError, with the place, for anything else."""
    header = read_header(data, place)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise _damaged(place, f"tensors that the library refuses ({error})") from None
    return tensors, header.note


def read_header(data: bytes, place: str) -> TensorHeader:
    """What the file claims to hold, every claim compared with its size."""
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 0 < size <= min(HEADER_LIMIT, len(data) - 8):
        raise _damaged(place, f"a header of {size:,} bytes in a file of {len(data):,}")
    text = data[8 : 8 + size]
    if (count := text.count(b'"data_offsets"')) > MOST_TENSORS:  # of each one; before they are taken apart
        raise _damaged(place, f"{count:,} tensors, more than {MOST_TENSORS:,}")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise _damaged(place, f"a header that is not JSON ({str(error)[:80]})") from None
    if not isinstance(header, dict):
        raise _damaged(place, "a header that is not a JSON object")
    entries: dict[str, Any] = header
    note = _note(entries.pop("__metadata__", {}), place)
    checked = {name: _entry(name, entry, place) for name, entry in entries.items()}
    _require_filled(checked, len(data) - 8 - size, place)
    return TensorHeader({name: Slot(DTYPES[entry.dtype], entry.shape) for name, entry in checked.items()}, note)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name that occurs twice")
    return found


def _note(metadata: Any, place: str) -> dict[str, Any]:
    try:
        texts = msgspec.convert(metadata, dict[str, str])
        return msgspec.json.decode(texts.get(NOTE, "{}"), type=dict[str, Any])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise _damaged(place, "metadata that is not text") from None


def _entry(name: str, entry: Any, place: str) -> _Entry:
    if not _NAME.fullmatch(name):
        raise _damaged(place, f"a tensor called {name[:80]!r}")
    try:
        found = msgspec.convert(entry, _Entry)
    except ValueError as error:
        raise _damaged(place, f"'{name}' without type, shape and offsets ({error})") from None
    if found.dtype not in DTYPES:
        raise _damaged(place, f"'{name}' of the unknown type {found.dtype[:20]!r}")
    begin, end = found.data_offsets
    if end - begin != (needed := Slot(DTYPES[found.dtype], found.shape).size):
        raise _damaged(place, f"'{name}', which needs {needed:,} bytes, in a range of {end - begin:,}")
    return found


def _require_filled(entries: Mapping[str, _Entry], room: int, place: str) -> None:
    """Refuse tensors that overlap, leave holes, or do not end where the file ends."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1].data_offsets):
        begin, end = entry.data_offsets
        if begin != at:
            raise _damaged(place, f"'{name}' at byte {begin:,} of the data instead of {at:,}")
        at = end
    if at != room:
        raise _damaged(place, f"{room:,} bytes of data for tensors of {at:,} bytes")


def _damaged(place: str, found: str) -> DamagedError:
    return DamagedError(f"{place}: expected weights, found {found}", fix=_RESTORE)
