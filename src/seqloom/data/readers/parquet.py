"""Parquet: columns of texts, numbers, booleans, or lists of these, read in batches.

Nulls become None. A row with a NaN or an infinity is a bad row. Columns of other types (dates, decimals, maps, bytes)
are ignored, and a note names each.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import opened, require_regular
from seqloom.data.values import Record, Table
from seqloom.errors import needing

BATCH = 1_024  # rows in memory at a time


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:  # noqa: ARG001  # as all readers
    """The table of the rows of a file."""
    (path,) = paths
    require_regular(path, ledger)
    with opened(path, ledger, "parquet"):
        schema = _opened(path, ledger).schema_arrow
    names = tuple(schema.names)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        ledger.bad_file("parquet.dup_column", f"two columns are named {twice!r}", Place(str(path)), "rename one")
    odd = {field.name: f"the column {field.name!r} holds {field.type}" for field in schema if not _is_plain(field.type)}
    if odd and len(odd) == len(names):
        text = f"{next(iter(odd.values()))}, and no column has text, numbers, booleans or lists of these"
        ledger.bad_file("parquet.type", text, Place(str(path)), "convert the columns that are needed")
    for text in odd.values():
        ledger.note("parquet.left_out", f"{text} and is ignored", Place(str(path)))
    columns = tuple(name for name in names if name not in odd)
    return Table(columns, _records(path, columns, ledger))


def _opened(path: Path, ledger: Ledger) -> Any:
    """A pyarrow.parquet.ParquetFile; pyarrow has no type annotations."""
    with needing("data"):
        import pyarrow.parquet  # type: ignore[import-untyped]
    try:
        return pyarrow.parquet.ParquetFile(path, memory_map=False, page_checksum_verification=True)
    except Exception as error:  # a decoder may raise anything
        _refuse_damaged(path, error, ledger)


def _refuse_damaged(path: Path, error: Exception, ledger: Ledger) -> NoReturn:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    text, fix = f"the file cannot be decoded: {reason}", "copy or write it again"
    ledger.bad_file("parquet.damaged", text, Place(str(path)), fix)


def _is_plain(kind: Any) -> bool:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return types.is_null(kind) or any(is_kind(kind) for is_kind in plain)


def _records(path: Path, names: tuple[str, ...], ledger: Ledger) -> Iterator[Record]:
    name, number = str(path), 0
    with _opened(path, ledger) as file:
        batches = file.iter_batches(BATCH, columns=names, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
                arrays = [] if batch is None else [batch.column(name) for name in names]
                columns, finite = [array.to_pylist() for array in arrays], all(map(_all_finite, arrays))
            except Exception as error:
                _refuse_damaged(path, error, ledger)
            if batch is None:
                break
            for values in zip(*columns, strict=True):
                number += 1
                if finite or all(map(_is_finite, values)):
                    ledger.rows += 1
                    yield Record(values, name, number)
                else:
                    place = Place(name, number)
                    ledger.bad_row("parquet.nonfinite", "a number is NaN or infinite", place, "remove the row")
    if number == 0:
        ledger.bad_file("data.no_rows", "the file has columns but no rows", Place(name), "give a file with rows")


def _all_finite(column: Any) -> bool:
    from pyarrow import types

    while hasattr(column, "flatten") and hasattr(column.type, "value_type") and not types.is_dictionary(column.type):
        column = column.flatten()
    if not types.is_floating(column.type):
        return not types.is_dictionary(column.type) or not types.is_floating(column.type.value_type)
    return bool(np.isfinite(column.drop_null().to_numpy(zero_copy_only=False)).all())


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or bool(np.isfinite(value))
