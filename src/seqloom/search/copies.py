"""A copy of a file with more columns, of all its rows or of some, in the format that its name promises.

    .csv .jsonl   of any file, in UTF-8; csv with the delimiter of the input
    .tsv          of tsv: another file may hold tabs
    .parquet      of parquet, with all its columns and types

The copy is written whole or not at all, and only if the file is still what was read before.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.data.cells import cell
from seqloom.data.problems import Ledger
from seqloom.data.readers.delimited import dialect_of
from seqloom.data.readers.files import require_state, state_of
from seqloom.errors import ConfigError, needing
from seqloom.files.disk import write_file
from seqloom.search.documents import FileRows, kept

ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
BATCH = 4_096  # rows of parquet in memory at a time

TYPES = {int: "int64", float: "float64", str: "string"}  # as parquet calls them


class AddedColumn(NamedTuple):
    """A new column: a value of one type, or None, for every row of the file."""

    kind: type[int] | type[float] | type[str]
    values: Sequence[Any]


Added = Mapping[str, AddedColumn]


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, or will when it is written."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def require_copy(out: Path, rows: FileRows, added: Sequence[str], log: Path | None = None) -> None:
    """Refuse, before any work, a copy that could not be written, or would replace a file or the log to come."""
    form, given = ENDINGS.get(out.suffix.lower()), rows.format
    if form is None or (form in ("tsv", "parquet") and form != given):
        fix = "give it a name in .csv or .jsonl" + (f", or in .{given}" if given in ("tsv", "parquet") else "")
        raise ConfigError(f"{out}: a copy of {rows.path.name} ({given}) cannot have this name", fix=fix)
    if is_same(out, rows.path):
        raise ConfigError(f"{out} is the file itself, which the copy would replace", fix="give another name")
    if log is not None and is_same(out, log):
        raise ConfigError(f"{out} is the log, which the copy would replace", fix="give another name")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} is there already", fix="choose another name, or delete it")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}", fix="make the folder first")
    if both := [name for name in added if name in rows.table().columns]:
        raise ConfigError(f"{rows.path} has a column '{both[0]}' already", fix="rename it, or leave it out of the file")


def write_copy(out: Path, rows: FileRows, state: str, added: Added, wanted: np.ndarray) -> None:
    """Write the rows that are wanted [rows] to `out`, each with its new values."""
    pieces = _parquet if out.suffix.lower() == ".parquet" else _lines
    write_file(out, _unchanged(pieces(out, rows, added, wanted), rows.path, state))


def _unchanged(pieces: Iterator[bytes], path: Path, state: str) -> Iterator[bytes]:
    """The same, and an error before the copy has its name if the file is not what was read first."""
    yield from pieces
    require_state(path, state, state_of(path), Ledger())


def _lines(out: Path, rows: FileRows, added: Added, wanted: np.ndarray) -> Iterator[bytes]:
    table, form = rows.table(), ENDINGS[out.suffix.lower()]
    names = (*table.columns, *added)
    records = zip(table.records, wanted, *(column.values for column in added.values()), strict=True)
    chosen = ((*record.values, *values) for record, is_wanted, *values in records if is_wanted)
    if form == "jsonl":
        return (msgspec.json.encode(dict(zip(names, map(kept, values), strict=True))) + b"\n" for values in chosen)
    delimiter = "," if rows.format != form else dialect_of(msgspec.structs.replace(rows.reading, format=form)).delimiter
    head = [names] if table.named else []
    return (_delimited(values, delimiter, quoted=form == "csv") for values in chain(head, chosen))


def _delimited(values: Sequence[Any], delimiter: str, *, quoted: bool) -> bytes:
    r"""The line of these values; a field that holds what would end it is quoted, where the format has quotes.

    >>> _delimited(["a;b", 'a "b" c', None, 0.5], ";", quoted=True)
    b'"a;b";"a ""b"" c";;0.5\n'
    """
    cells = [str(cell(value)) for value in values]
    marks = (delimiter, '"', "\n", "\r") if quoted else ()
    fields = (f'"{one.replace(chr(34), chr(34) * 2)}"' if any(mark in one for mark in marks) else one for one in cells)
    return f"{delimiter.join(fields)}\n".encode()


class _Drained(io.RawIOBase):
    """A file that gives away what was written to it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        self.size += len(self.pieces[-1])
        return len(self.pieces[-1])

    def drained(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


def _parquet(out: Path, rows: FileRows, added: Added, wanted: np.ndarray) -> Iterator[bytes]:  # noqa: ARG001  # as `_lines`
    """The bytes of a parquet file that has all columns of another, also those that no reader of ours reads."""
    with needing("data"):
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    columns = {name: pyarrow.array(new.values, pyarrow.type_for_alias(TYPES[new.kind])) for name, new in added.items()}
    with pyarrow.parquet.ParquetFile(rows.path, memory_map=False) as given:
        schema = given.schema_arrow
        for name, values in columns.items():
            schema = schema.append(pyarrow.field(name, values.type))
        sink, done = _Drained(), 0
        with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(sink, "w"), schema) as writer:
            for batch in given.iter_batches(BATCH, use_threads=False):
                new = [values.slice(done, len(batch)) for values in columns.values()]
                mask = pyarrow.array(wanted[done : done + len(batch)])
                whole = pyarrow.RecordBatch.from_arrays([*batch.columns, *new], schema=schema)
                writer.write_batch(whole.filter(mask))
                done += len(batch)
                yield sink.drained()
        yield sink.drained()
