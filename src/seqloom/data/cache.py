"""The cache of encoded columns: memory-mapped files, so that data may be larger than memory.

    folder/                    a write-once folder of seqloom.files
      input.values             all rows, concatenated: raw little-endian numbers
      input.starts             [rows + 1] int64
      target.values  ...
      meta.json                format, key, and the type, shape and rows of each column
      manifest.json            size and sha256 of every file

The key describes what the columns were made from: fingerprints of sources, configuration, tokenizer. A store is used
only if its key is equal, and rebuilt otherwise.

The arrays are memory maps: the system reads pages when they are used and drops them when memory is short. A store is
never changed in place; one that is replaced stays readable through its open maps.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.errors import DamagedError, DataError, DurableError
from seqloom.events import Progress, Work
from seqloom.files.disk import CACHE_FILES, make_folder
from seqloom.files.folders import (
    GrowingFolder,
    grow_folder,
    read_file_of,
    read_manifest,
    remove_folder,
    sweep,
    verify_folder,
)
from seqloom.files.lock import alone
from seqloom.text.ragged import Ragged

FORMAT = 1
META = "meta.json"
TYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
_REBUILD = "remove the folder; it is only a cache and will be rebuilt"

Columns = Mapping[str, Ragged]
Key = Mapping[str, Any]
Notes = Callable[[], Mapping[str, bytes]]


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The type and shape of one column."""

    dtype: str
    shape: tuple[int, ...]  # of all values
    rows: int


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a store."""

    format: int
    key: dict[str, Any]
    columns: dict[str, Column]


class ColumnStore(NamedTuple):
    """A verified store: its memory-mapped columns, and the small files next to them."""

    path: Path
    columns: dict[str, Ragged]
    notes: dict[str, bytes]

    @property
    def rows(self) -> int:
        """The number of examples."""
        return next(iter(self.columns.values())).rows


class Unusable(NamedTuple):
    """The store cannot be used: it is missing, damaged, or built from something else."""

    reason: str


def write_store(path: Path, key: Key, chunks: Iterable[Columns | Progress], notes: Notes = dict) -> Iterator[Progress]:
    """Write a store from chunks of rows, and commit it at the end; yield the progress that the chunks report.

    A chunk is a few rows of all columns; only one is in memory at a time. `notes` returns small files to store next to
    the columns; it is called after the last chunk.
    """
    text = _canonical(key)
    totals: dict[str, Column] = {}
    with grow_folder(path, files=CACHE_FILES) as folder:
        for chunk in chunks:
            if isinstance(chunk, Progress):
                yield chunk
                continue
            _require_alike(chunk, totals)
            totals = {name: _append(folder, name, column, totals.get(name)) for name, column in chunk.items()}
        if not totals:
            raise DataError(f"{path} would have no columns", fix="give at least one chunk, even if it has no rows")
        meta = Meta(FORMAT, json.loads(text), totals)
        for name, note in notes().items():
            folder.append(name, note)
        folder.append(META, json.dumps(msgspec.to_builtins(meta), indent=2).encode())


def open_store(path: Path, key: Key, *, verify: bool = True) -> ColumnStore | Unusable:
    """Return the store at `path` if it has this key and is complete, else `Unusable` with the reason.

    Sizes are always compared with the manifest; `verify` also reads all bytes and compares the checksums.
    """
    try:
        manifest = verify_folder(path) if verify else read_manifest(path)
        meta = _read_meta(path)
        if _canonical(meta.key) != _canonical(key):
            both = [{name: _canonical({"": value}) for name, value in one.items()} for one in (meta.key, key)]
            names = [name for name in sorted(both[0] | both[1]) if both[0].get(name) != both[1].get(name)]
            return Unusable(f"{path} was built for another key: {', '.join(names)} changed")
        sizes = {name: entry.size for name, entry in manifest.files.items()}
        columns = {name: _mapped(path, name, column, sizes) for name, column in meta.columns.items()}
        described = {META, *(f"{name}.{kind}" for name in meta.columns for kind in ("values", "starts"))}
        notes = {name: read_file_of(path, name) for name in manifest.files if name not in described}
        if read_manifest(path) != manifest:  # files are opened one by one, so they could be of two versions
            return Unusable(f"{path} was replaced while it was opened")
        return ColumnStore(path, columns, notes)
    except (DurableError, OSError) as error:
        return Unusable(str(error))


def open_or_build(
    path: Path, key: Key, build: Callable[[], Iterable[Columns | Progress]], notes: Notes = dict, *, verify: bool = True
) -> Work[ColumnStore]:
    """Return the store at `path`; if it cannot be used, it is rebuilt from `build` and `notes`.

    If several processes need one folder at the same time, one builds it and the others wait.
    """
    found = open_store(path, key, verify=verify)
    if isinstance(found, ColumnStore):
        return found
    make_folder(path.parent)
    with alone(path):
        found = open_store(path, key, verify=verify)  # another process may have built it meanwhile
        if isinstance(found, Unusable):
            sweep(path.parent, name=path.name)
            if path.exists():
                remove_folder(path)
            yield from write_store(path, key, build(), notes)
            found = open_store(path, key, verify=False)  # it was written just now
    if isinstance(found, Unusable):
        raise DurableError(f"{path} was written but cannot be read: {found.reason}", fix="check the disk")
    return found


def _canonical(key: Key) -> str:
    """The key as JSON text: 1, 1.0 and true are equal in Python, but different here."""
    try:
        return json.dumps(key, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"the key of a store cannot be written as JSON: {error}", fix="use text and numbers") from error


def _require_alike(chunk: Columns, totals: Mapping[str, Column]) -> None:
    """Raise DataError for a chunk that does not continue the ones before it."""
    if len({column.rows for column in chunk.values()}) != 1:
        counts = {name: column.rows for name, column in chunk.items()}
        raise DataError(f"expected equally many rows in all columns of a chunk, found {counts or 'none'}")
    for name, column in chunk.items():
        if _little(column.values.dtype).str not in TYPES:
            raise DataError(f"column {name!r} holds {column.values.dtype}", fix="store numbers")
    form = {name: (_little(column.values.dtype).str, column.values.shape[1:]) for name, column in chunk.items()}
    before = {name: (column.dtype, column.shape[1:]) for name, column in totals.items()}
    if before and form != before:
        raise DataError(f"expected a chunk with {before}, found {form}", fix="encode all chunks in the same way")


def _append(folder: GrowingFolder, name: str, column: Ragged, before: Column | None) -> Column:
    """Append a chunk to the files of a column, and return the column's new description."""
    values = column.values[column.starts[0] : column.starts[-1]]
    values = np.ascontiguousarray(values, _little(values.dtype))
    total, rows = (before.shape[0], before.rows) if before else (0, 0)
    starts = np.asarray(column.starts, "<i8") - column.starts[0] + total
    folder.append(f"{name}.values", values.data)
    folder.append(f"{name}.starts", np.ascontiguousarray(starts if before is None else starts[1:], "<i8").data)
    return Column(values.dtype.str, (total + len(values), *values.shape[1:]), rows + column.rows)


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _read_meta(path: Path) -> Meta:
    try:
        meta = msgspec.json.decode(read_file_of(path, META), type=Meta)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path / META}: expected the columns of a store, found {error}", fix=_REBUILD) from error
    if meta.format != FORMAT or not meta.columns:
        raise DamagedError(f"{path / META}: expected format {FORMAT}, found {meta.format}", fix=_REBUILD)
    return meta


def _mapped(path: Path, name: str, column: Column, sizes: Mapping[str, int]) -> Ragged:
    if column.dtype not in TYPES or not column.shape or min(*column.shape, column.rows) < 0:
        raise DamagedError(f"{path}: column {name!r} cannot be {column}", fix=_REBUILD)
    values = _map_file(path / f"{name}.values", np.dtype(column.dtype), column.shape, sizes)
    starts = _map_file(path / f"{name}.starts", np.dtype("<i8"), (column.rows + 1,), sizes)
    if starts[0] != 0 or starts[-1] != len(values):
        raise DamagedError(f"{path}: the rows of {name!r} end at {starts[-1]} of {len(values)}", fix=_REBUILD)
    return Ragged(values, starts)


def _map_file(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    """A file as a read-only array. Its size is checked first: reading beyond its end would crash the process."""
    expected, promised = math.prod(shape) * dtype.itemsize, sizes.get(path.name)
    found = path.stat().st_size if path.is_file() else None
    if not expected == promised == found:
        raise DamagedError(
            f"{path}: expected {expected} bytes, the manifest says {promised}, found {found}", fix=_REBUILD
        )
    if not expected:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r", shape=shape))


def chunks_of(columns: Columns, rows: int) -> Iterator[dict[str, Ragged]]:
    """Yield the same columns, `rows` rows at a time, without copying."""
    count = next(iter(columns.values())).rows
    for start in range(0, max(count, 1), rows):
        stop = min(start + rows, count)
        yield {name: Ragged(column.values, column.starts[start : stop + 1]) for name, column in columns.items()}
