"""Tensors to bytes and back: safetensors, validated here before the library reads them.

    8 bytes: size of the header │ header: JSON of names, types, shapes, offsets │ the numbers of each tensor

A header can claim anything: tensors larger than the file, overlapping ones, millions of them. So every claim is checked
against the actual bytes before memory is allocated. Nothing is memory-mapped: a page lost on disk would kill the
process. Model folders, checkpoints and imported weights are all read here.
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
NOTE = "seqloom"  # the only metadata key: several would be written in varying order
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPES |= {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./-]{0,255}")
_RESTORE = "restore it from a copy, or train the model again"

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Slot(NamedTuple):
    """The type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Slot":
        """Return the slot of a tensor."""
        return cls(tensor.dtype, tuple(tensor.shape))

    @property
    def size(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor in a header."""

    dtype: str
    shape: tuple[Whole, ...]
    data_offsets: tuple[Whole, Whole]


class TensorHeader(NamedTuple):
    """The declared contents of a weights file."""

    slots: dict[str, Slot]
    note: dict[str, Any]  # stored with the tensors


def to_bytes(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> bytes:
    """Return the bytes of a weights file; equal tensors and notes give equal bytes."""
    whole = {}
    for name, tensor in tensors.items():
        here = tensor.detach().to("cpu").contiguous()
        # In its own memory: a view of a larger tensor would be refused, or written with all of it.
        whole[name] = here if here.untyped_storage().nbytes() == here.nbytes else here.clone()
    return bytes(safetensors.torch.save(whole, metadata={NOTE: json.dumps(note, sort_keys=True)}))


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors with NaN or infinite values."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    return [name for name, tensor in floating.items() if not bool(all_finite(tensor))]


def all_finite(tensor: Tensor) -> Tensor:
    """Return whether all values of a floating tensor are finite, as a tensor on its device, from min and max.

    >>> [bool(all_finite(torch.tensor([0.0, number]))) for number in (-2.0, float("nan"), float("-inf"))]
    [True, False, False]
    """
    if not tensor.numel():
        return torch.ones((), dtype=torch.bool, device=tensor.device)
    return torch.stack(torch.aminmax(tensor)).isfinite().all()


def from_bytes(data: bytes, place: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the note of a weights file; raise DamagedError naming `place` if the bytes are invalid."""
    header = read_header(data, place)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise _damaged(place, f"tensors that the library refuses ({error})") from None
    return tensors, header.note


def read_header(data: bytes, place: str) -> TensorHeader:
    """Return the declared contents of the file, checked against its size."""
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 0 < size <= min(HEADER_LIMIT, len(data) - 8):
        raise _damaged(place, f"a header of {size:,} bytes in a file of {len(data):,}")
    text = data[8 : 8 + size]
    if (count := text.count(b'"data_offsets"')) > MOST_TENSORS:  # once per tensor; counted before decoding
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
    """Raise DamagedError for tensors that overlap, leave gaps, or do not end at the end of the file."""
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
