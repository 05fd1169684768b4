"""Arrays in an .npz file: numeric sequences or pictures, with targets and other columns.

    input     [N,T,D]                   sequences of one length    named x, input, vectors, frames or sequences
              [N,T,D] + lengths [N]     ... padded at the end
              [total,D] + lengths [N]   ... concatenated
              [N,H,W,C], [N,H,W]        pictures                   named pictures or images; x, if it has four axes
    target    [N] integers or texts     a label each               named y, target, label, labels, numbers, tags, series
              [N], [N,K] floats         numbers
              [N,T,K], [total,K] floats numbers per step; [N,T], [total] if they are named series
              [N,T], [total]            integers or texts: a tag per step
              [N] texts                 a text each, if they are named caption or captions
    others    [N]                       a column of that name: a group, a source, an id, ...

`x_train`, `y_train`, `x_test`, ... make a column "split". Names of inputs and targets may be in capitals: X, X_train.
Integers named `numbers` are numbers, not labels.
"""

import math
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.lib import format as npy

from seqloom.config.data import ReadingConfig
from seqloom.data.kinds.kind import InputKind, TargetKind
from seqloom.data.kinds.labels import LabelTarget, TagsTarget
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.kinds.numbers import NumbersTarget, SeriesTarget
from seqloom.data.kinds.picture import PictureInput
from seqloom.data.kinds.target_text import TextTarget
from seqloom.data.kinds.text import PairInput
from seqloom.data.kinds.vectors import VectorsInput
from seqloom.data.kinds.words import WordsInput
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import opened, require_regular
from seqloom.data.readers.folders import SPLIT_NAMES
from seqloom.data.schema import Target
from seqloom.data.values import Record, Table
from seqloom.report.numbers import counted

# The arrays of an .npz file, each checked against the real size of the file before anything is allocated.
#
# An .npz file is a zip of .npy files: a short header (type, shape, order) and the bytes. An array of Python objects is
# a pickle, which could run code: it is rejected by its header and never loaded.

LARGEST = 16 << 30  # bytes of all arrays of a file
RATIO = 200  # of unpacked to packed bytes: more is a zip bomb, unless it is at most FREE
FREE = 64 << 20
WIDEST = {"i": 8, "u": 8, "f": 8, "U": 4 << 20}  # bytes of one element, by kind: a text has four for each character
PLAIN_MEMBERS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class StoredArray(NamedTuple):
    """An array that can be loaded: its file, and what its header says."""

    path: Path
    member: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    stored: int  # bytes after the header

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    def load(self, ledger: Ledger) -> np.ndarray:
        """The array itself, in the byte order of this machine."""
        try:
            with zipfile.ZipFile(self.path) as file, file.open(self.member) as stream:
                _read_header(stream)
                content = stream.read()  # to the end, where the checksum is verified
            order: Literal["F", "C"] = "F" if self.fortran else "C"
            array: np.ndarray = np.frombuffer(content, self.dtype).reshape(self.shape, order=order)
            return array.astype(self.dtype.newbyteorder("="), copy=False)
        except Exception as error:  # a decoder may raise anything
            _refuse_damaged(self.path, error, ledger)


def stored_arrays(path: Path, ledger: Ledger) -> dict[str, StoredArray]:
    """The arrays of a file by name; raises RejectedError if one is not plain or too large."""
    require_regular(path, ledger)
    with opened(path, ledger, "npz") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        except Exception as error:
            _refuse_damaged(path, error, ledger)
    _require_sizes(path, members, ledger)
    arrays = {member.filename.removesuffix(".npy"): _described(path, member, ledger) for member in members}
    if len(arrays) != len(members):
        ledger.bad_file("array.damaged", "two arrays have the same name", Place(str(path)), "write the file again")
    for name, array in arrays.items():
        _require_plain(name, array, ledger)
    return arrays


def _require_sizes(path: Path, members: list[zipfile.ZipInfo], ledger: Ledger) -> None:
    """Reject zip bombs by the list of members, which limits what is unpacked."""
    place = Place(str(path))
    for member in members:
        if member.flag_bits & 1 or member.compress_type not in PLAIN_MEMBERS:
            ledger.bad_file("array.damaged", f"{member.filename} is encrypted or has an unknown compression", place)
    unpacked = sum(member.file_size for member in members)
    if unpacked > LARGEST:
        text = f"the arrays have {unpacked:,} bytes; the limit is {LARGEST:,}"
        ledger.bad_file("array.too_large", text, place, "split it into several files")
    if unpacked > FREE and unpacked > RATIO * path.stat().st_size:
        text = f"{path.stat().st_size:,} bytes would unpack to {unpacked:,}"
        ledger.bad_file("array.bomb", text, place, "save it with numpy.savez, which does not compress")


def _described(path: Path, member: zipfile.ZipInfo, ledger: Ledger) -> StoredArray:
    try:
        with zipfile.ZipFile(path) as file, file.open(member) as stream:
            shape, fortran, dtype = _read_header(stream)
            return StoredArray(path, member.filename, shape, fortran, dtype, member.file_size - stream.tell())
    except Exception as error:
        _refuse_damaged(path, error, ledger)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it is in Fortran order, and type."""
    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the array format")


def _require_plain(name: str, array: StoredArray, ledger: Ledger) -> None:
    place, fix = Place(str(array.path)), "save it with numpy.savez as an array of numbers or texts"
    if array.dtype.hasobject:
        ragged = f"{fix}; save sequences of different lengths as one array [total,D] and an array lengths [N]"
        ledger.bad_file("array.pickle", f"{name!r} is a pickle, and pickles are never read", place, ragged)
    if not any(array.dtype.kind == kind and 0 < array.dtype.itemsize <= most for kind, most in WIDEST.items()):
        ledger.bad_file("array.dtype", f"{name!r} is {array}; expected numbers or texts", place, fix)
    if min(array.shape, default=0) < 0 or math.prod(array.shape) * array.dtype.itemsize != array.stored:
        text = f"the header of {name!r} says {array}, but there are {array.stored:,} bytes"
        ledger.bad_file("array.damaged", text, place, "copy or write the file again")


def _refuse_damaged(path: Path, error: Exception, ledger: Ledger) -> NoReturn:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    ledger.bad_file(
        "array.damaged", f"the file cannot be decoded: {reason}", Place(str(path)), "copy or write it again"
    )


PICTURES = ("pictures", "images")
SEQUENCES = ("vectors", "frames", "sequences", "input", "x")
CAPTIONS = ("caption", "captions")
TARGETS = ("target", "y", "label", "labels", "numbers", "tags", "series", *CAPTIONS)
SPLITS = tuple(SPLIT_NAMES)
FOUND_BY_NAME = {*PICTURES, *SEQUENCES, *TARGETS, "lengths"}  # in any case; other columns keep their names
NAMING = "name the arrays x, y and lengths, followed by _train, _dev or _test for splits"
READ_FIRST = {
    *chain.from_iterable((*WordsInput.column_names, *PairInput.column_names)),
    "vectors",
    "picture",
}  # before the input
MEANT = {
    *LabelTarget.column_names,
    *NumbersTarget.column_names,
    *TagsTarget.column_names,
    *TextTarget.column_names,
}  # names of a target


class SplitArrays(NamedTuple):
    """The arrays of one split, and its name; the name is empty if the file has no splits."""

    name: str
    kind: InputKind
    target_kind: TargetKind
    input: StoredArray
    target: StoredArray | None
    lengths: StoredArray | None
    others: dict[str, StoredArray]  # further columns


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:  # noqa: ARG001  # as all readers
    """The table of the rows: "picture" or "vectors", then "label", "numbers", "tags" ..., others, then "split"."""
    (path,) = paths
    divided: dict[str, dict[str, StoredArray]] = {}
    for name, array in stored_arrays(path, ledger).items():
        in_split = name.lower().endswith(tuple(f"_{part}" for part in SPLITS))
        stem, _, part = name.rpartition("_") if in_split else (name, "", "")
        stem = stem.lower() if stem.lower() in FOUND_BY_NAME else stem
        known = divided.setdefault(part.lower(), {})
        if stem in known:
            first = known[stem].member.removesuffix(".npy")
            text = f"{first!r} and {name!r} differ only in their case"
            ledger.bad_file("array.name", text, Place(str(path)), NAMING)
        known[stem] = array
    if not divided:
        ledger.bad_file("data.empty", "there is no array in the file", Place(str(path)), NAMING)
    parts = [_part(part, divided[part], path, ledger) for part in ("", *SPLITS) if part in divided]
    columns = _columns(parts[0])
    for found in map(_columns, parts):
        if found != columns:
            text = f"expected the columns {', '.join(columns)}, found {', '.join(found)}"
            ledger.bad_file("array.parts", text, Place(str(path)), "give all splits the same kinds of arrays")
    return Table(columns, _records(parts, ledger))


def _columns(part: SplitArrays) -> tuple[str, ...]:
    target = () if part.target is None else ("caption" if part.target_kind.is_text else part.target_kind.name,)
    return (part.kind.name, *target, *part.others, *(("split",) if part.name else ()))


def _part(name: str, arrays: dict[str, StoredArray], path: Path, ledger: Ledger) -> SplitArrays:
    """The arrays of one split, checked by their headers."""
    inputs = [stem for stem in arrays if stem in PICTURES + SEQUENCES]
    targets = [stem for stem in arrays if stem in TARGETS]
    others = {stem: arrays[stem] for stem in sorted(arrays.keys() - {*inputs, *targets, "lengths"})}
    if others and not inputs:
        _refuse_unknown(next(iter(others.values())), "", ledger)
    if len(inputs) != 1 or len(targets) > 1:
        text = f"expected one input and one target{f' for {name}' if name else ''}, found {', '.join(arrays)}"
        ledger.bad_file("array.name", text, Place(str(path)), NAMING)
    array, lengths = arrays[inputs[0]], arrays.get("lengths")
    pictures = inputs[0] in PICTURES or len(array.shape) == 4
    kind: InputKind = PictureInput() if pictures else VectorsInput()
    (_require_pictures if pictures else _require_sequences)(array, lengths, ledger)
    target = arrays[targets[0]] if targets else None
    part = SplitArrays(name, kind, NoTarget(), array, target, lengths, others)
    taken = READ_FIRST | (MEANT if targets else set()) | ({"split"} if name else set())
    for stem, other in others.items():  # other columns have one value per row
        if other.shape != (_rows(part),):
            _refuse_unknown(other, f"; another column must have the shape [{_rows(part)}]", ledger)
        if stem.lower() in taken:
            _refuse_unknown(other, "; this name is reserved for the input, the target or the split", ledger)
    return part if target is None else part._replace(target_kind=_target_kind(part, target, targets[0], ledger))


def _refuse(array: StoredArray, expected: str, ledger: Ledger) -> NoReturn:
    name = array.member.removesuffix(".npy")
    text = f"{name!r} is {array}; expected {expected}"
    fix = "see 'Vectors' in docs/data.md for the arrays of an .npz file"
    ledger.bad_file("array.shape", text, Place(str(array.path)), fix)


def _refuse_unknown(array: StoredArray, why: str, ledger: Ledger) -> NoReturn:
    name = array.member.removesuffix(".npy")
    ledger.bad_file("array.name", f"unknown array {name!r}: {array}{why}", Place(str(array.path)), NAMING)


def _require_pictures(array: StoredArray, lengths: StoredArray | None, ledger: Ledger) -> None:
    expected = "uint8 or floats [N,H,W,C], the channels C last and 1 or 3, or [N,H,W]"
    axes = len(array.shape)
    if axes not in (3, 4) or (axes == 4 and array.shape[3] not in (1, 3)) or 0 in array.shape:
        _refuse(array, expected, ledger)
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        _refuse(array, expected, ledger)
    if lengths is not None:
        _refuse(lengths, "no lengths beside pictures", ledger)


def _require_sequences(array: StoredArray, lengths: StoredArray | None, ledger: Ledger) -> None:
    axes = 3 if lengths is None else len(array.shape)
    if len(array.shape) != axes or axes not in (2, 3) or 0 in array.shape or array.dtype.kind == "U":
        _refuse(array, "numbers [N,T,D], or [total,D] and the array lengths [N]", ledger)
    if lengths is None:
        return
    if len(lengths.shape) != 1 or lengths.shape[0] == 0 or lengths.dtype.kind not in "iu":
        _refuse(lengths, "integers [N]", ledger)
    if axes == 3 and lengths.shape[0] != array.shape[0]:
        _refuse(lengths, f"one length for each of {counted(array.shape[0], 'row')}", ledger)


def _rows(part: SplitArrays) -> int:
    return (part.lengths or part.input).shape[0]


def _target_kind(part: SplitArrays, target: StoredArray, name: str, ledger: Ledger) -> TargetKind:
    shape, rows = target.shape, _rows(part)
    if target.dtype.kind == "f" or (name in ("numbers", "series") and target.dtype.kind in "iu"):
        if _is_series(part, shape, named=name == "series"):
            return SeriesTarget()
        if len(shape) in (1, 2) and shape[0] == rows and 0 not in shape and name != "series":
            return NumbersTarget()
        _refuse(target, f"floats [{rows}] or [{rows},K]", ledger)
    if name in CAPTIONS and (shape != (rows,) or target.dtype.kind != "U"):
        _refuse(target, f"texts [{rows}]", ledger)
    if shape == (rows,):
        return TextTarget() if name in CAPTIONS else LabelTarget()
    if part.kind.has_steps and shape == part.input.shape[:-1]:
        return TagsTarget()
    steps = f", or {list(part.input.shape[:-1])} for a tag per step" if part.kind.has_steps else ""
    _refuse(target, f"[{rows}] for a label each{steps}", ledger)


def _is_series(part: SplitArrays, shape: tuple[int, ...], *, named: bool) -> bool:
    """Whether floats of this shape are targets of the steps: by their axes or, if these are ambiguous, by name."""
    steps = part.input.shape[:-1]
    if not part.kind.has_steps or shape[: len(steps)] != steps or 0 in shape or len(shape) > len(steps) + 1:
        return False
    return named or len(shape) == 3 or (len(steps) == 1 and steps[0] != _rows(part))


def _records(parts: list[SplitArrays], ledger: Ledger) -> Iterator[Record]:
    rows = ((part, *pair) for part in parts for pair in _pairs(part, ledger))
    for number, (part, row, target, others) in enumerate(rows, 1):
        place = Place(str(part.input.path), number)
        floats = [one for one in (row, target) if one is not None and one.dtype.kind == "f"]
        if len(row) == 0:
            ledger.bad_row("array.empty", "a sequence of length 0", place, "remove the row")
        elif not all(np.isfinite(one).all() for one in floats):
            ledger.bad_row("array.nonfinite", "a number is NaN or infinite", place, "remove the row")
        elif not all(_is_unicode(one) for one in (target, *others) if one is not None):
            ledger.bad_row("array.text", "a text is not valid Unicode", place, "write the file again")
        else:
            ledger.rows += 1
            values = (row, *(() if target is None else (_value(part.target_kind, target),)), *map(_cell, others))
            yield Record((*values, part.name) if part.name else values, place.path, number)


def _cell(one: np.ndarray) -> str | int | float | None:
    """The value of another column, [1]; None for NaN and infinity."""
    value: str | int | float = one[0].item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _is_unicode(target: np.ndarray) -> bool:
    """Whether texts are valid Unicode, without surrogates and numbers beyond U+10FFFF."""
    if target.dtype.kind != "U":
        return True
    points = np.ascontiguousarray(target).view(np.uint32)
    return bool((points < 0xD800).all()) or not bool(((points > 0x10FFFF) | (points >> 11 == 0xD800 >> 11)).any())


def _value(kind: TargetKind, target: np.ndarray) -> Target:
    if kind.measured and kind.of_steps:
        return tuple(tuple(row) for row in target.reshape(len(target), -1).astype(np.float64).tolist())
    if kind.measured:
        return tuple(float(number) for number in target)
    texts = tuple(str(one) for one in target)
    return texts if kind.of_steps else texts[0]


def _pairs(part: SplitArrays, ledger: Ledger) -> Iterator[tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]]:
    """Yield each row's input without padding, its target [1], [K] or [T], and its other columns, [1] each."""
    starts, stops = _spans(part, ledger)
    array = part.input.load(ledger)
    if part.kind.fixed_size and array.ndim == 3:
        array = array[..., None]
    target = None if part.target is None else part.target.load(ledger)
    further = [one.load(ledger) for one in part.others.values()]
    for index, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        step = slice(start, stop) if array.ndim == 2 else (index, slice(start, stop))
        wanted = None
        if target is not None:
            wanted = target[step] if part.target_kind.of_steps else target[index : index + 1].reshape(-1)
        yield array[step], wanted, [one[index : index + 1] for one in further]


def _spans(part: SplitArrays, ledger: Ledger) -> tuple[list[int], list[int]]:
    """The start and stop of each row's steps: within the row, or within the concatenation of all rows."""
    if part.lengths is None:
        return [0] * _rows(part), [part.input.shape[1]] * _rows(part)
    stored = part.lengths.load(ledger)
    flat = len(part.input.shape) == 2
    most = part.input.shape[0 if flat else 1]
    lengths = np.clip(stored, -1, most + 1).astype(np.int64)  # clipped: bad values are rejected below
    if lengths.min() < 0 or lengths.max() > most or (flat and lengths.sum() != most):
        rule = f"add up to {most:,}" if flat else f"are at most {most:,}"
        _refuse(part.lengths, f"lengths that {rule}, found {stored.min()}..{stored.max()}", ledger)
    starts = lengths.cumsum() - lengths if flat else np.zeros_like(lengths)
    return starts.tolist(), (starts + lengths).tolist()
