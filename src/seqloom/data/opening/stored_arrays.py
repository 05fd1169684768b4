"""The arrays of an .npz file, each checked against the real size of the file before anything is allocated.

An .npz file is a zip of .npy files: a short header (type, shape, order) and the bytes. An array of Python objects is a
pickle, which could run code: it is refused by its header and never touched.
"""

import math
import zipfile
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

import numpy as np
from numpy.lib import format as npy

from seqloom.data.opening.blocks import require_magic, require_regular
from seqloom.data.problems import Ledger, Place

LARGEST = 16 << 30  # bytes of all arrays of a file
RATIO = 200  # of unpacked to packed bytes: more is a bomb, unless it is no larger than FREE
FREE = 64 << 20
WIDEST = {"i": 8, "u": 8, "f": 8, "U": 4 << 20}  # bytes of one element, by kind: a text has four for each character
PLAIN_MEMBERS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class StoredArray(NamedTuple):
    """An array that can be loaded: where it stands, and what its header says."""

    path: Path
    member: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    stored: int  # bytes behind the header

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    def load(self, ledger: Ledger) -> np.ndarray:
        """The array itself, in the byte order of this machine."""
        try:
            with zipfile.ZipFile(self.path) as file, file.open(self.member) as stream:
                _read_header(stream)
                content = stream.read()  # to the end, where its checksum is compared
            array: np.ndarray = np.frombuffer(content, self.dtype).reshape(
                self.shape, order="F" if self.fortran else "C"
            )
            return array.astype(self.dtype.newbyteorder("="), copy=False)
        except Exception as error:  # whatever it is that a decoder of foreign bytes raises
            _refuse_damaged(self.path, error, ledger)


def stored_arrays(path: Path, ledger: Ledger) -> dict[str, StoredArray]:
    """The arrays of a file by name; refuses whatever is no plain array, or larger than it should be."""
    require_regular(path, ledger)
    require_magic(path, "npz", ledger)
    members = _members(path, ledger)
    _require_sizes(path, members, ledger)
    arrays = {member.filename.removesuffix(".npy"): _described(path, member, ledger) for member in members}
    if len(arrays) != len(members):
        ledger.bad_file("array.damaged", "two arrays have the same name", Place(str(path)), "write the file again")
    for name, array in arrays.items():
        _require_plain(name, array, ledger)
    return arrays


def _members(path: Path, ledger: Ledger) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as file:
            return file.infolist()
    except Exception as error:
        _refuse_damaged(path, error, ledger)


def _require_sizes(path: Path, members: list[zipfile.ZipInfo], ledger: Ledger) -> None:
    """Refuse bombs by what the list of members says; no more than that is ever unpacked."""
    place = Place(str(path))
    for member in members:
        if member.flag_bits & 1 or member.compress_type not in PLAIN_MEMBERS:
            ledger.bad_file("array.damaged", f"{member.filename} is encrypted or packed in an unknown way", place)
    unpacked = sum(member.file_size for member in members)
    if unpacked > LARGEST:
        text = f"the arrays have {unpacked:,} bytes, more than {LARGEST:,}"
        ledger.bad_file("array.too_large", text, place, "divide the file")
    if unpacked > FREE and unpacked > RATIO * path.stat().st_size:
        text = f"{path.stat().st_size:,} bytes would unpack to {unpacked:,}"
        ledger.bad_file("array.bomb", text, place, "save it with numpy.savez, which does not pack")


def _described(path: Path, member: zipfile.ZipInfo, ledger: Ledger) -> StoredArray:
    try:
        with zipfile.ZipFile(path) as file, file.open(member) as stream:
            shape, fortran, dtype = _read_header(stream)
            return StoredArray(path, member.filename, shape, fortran, dtype, member.file_size - stream.tell())
    except Exception as error:
        _refuse_damaged(path, error, ledger)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in the order of Fortran, and type."""
    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the array format")


def _require_plain(name: str, array: StoredArray, ledger: Ledger) -> None:
    place, fix = Place(str(array.path)), "save it with numpy.savez as an array of numbers or texts"
    if array.dtype.hasobject:
        ragged = f"{fix}; sequences of several lengths as one array [total,D] and the array lengths [N]"
        ledger.bad_file("array.pickle", f"{name!r} is a pickle; we do not read pickles", place, ragged)
    if not any(array.dtype.kind == kind and 0 < array.dtype.itemsize <= most for kind, most in WIDEST.items()):
        ledger.bad_file("array.dtype", f"{name!r} is {array}; expected numbers or texts", place, fix)
    if min(array.shape, default=0) < 0 or math.prod(array.shape) * array.dtype.itemsize != array.stored:
        text = f"{name!r} claims to be {array}, and {array.stored:,} bytes are there"
        ledger.bad_file("array.damaged", text, place, "copy or write the file again")


def _refuse_damaged(path: Path, error: Exception, ledger: Ledger) -> NoReturn:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    ledger.bad_file("array.damaged", f"this cannot be decoded: {reason}", Place(str(path)), "copy or write it again")
