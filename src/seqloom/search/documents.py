"""The rows of a file, as texts with names or as documents; and a copy of the file with more columns.

*Texts with names*: a row is called by its id where every row has one of its own, else by its number from 1, without the
header: so a name holds in the file and in a copy of it. A row without text is no fault: it has a name and stays.

*Documents*: the file is read twice. First all of it is checked, so that nothing is embedded before every row is known
to be good; then its documents come one by one. Without a column of ids, a document is called by its file and line.

*A copy* has all rows or some, in the format that its name promises. It is written whole or not at all, and only if the
file is still what was read before.

    .csv .jsonl   of any file, in UTF-8; csv with the delimiter of the input
    .tsv          of tsv: another file may hold tabs
    .parquet      of parquet, with all its columns and types
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.data import BadRows, Format, ReadingConfig
from seqloom.data.cells import cell
from seqloom.data.inputs import InputColumns, find_columns
from seqloom.data.kinds.text import TextInput
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.readers.delimited import dialect_of
from seqloom.data.readers.files import fingerprint, require_state, state_of
from seqloom.data.readers.registry import format_of, read_table
from seqloom.data.roles import IDS
from seqloom.data.values import Record, Table, Unfit, kind_name
from seqloom.errors import ConfigError, did_you_mean, needing
from seqloom.files.disk import write_file
from seqloom.report.numbers import counted
from seqloom.search.store import TextDocument


class GivenRows(NamedTuple):
    """What a file holds: the text of each row, '' where there is none, and what each row is called."""

    texts: list[str]
    names: list[str]
    state: str  # of the file, when it was read
    blank: int = 0  # lines that are no rows

    @property
    def by_name(self) -> dict[str, str]:
        """The text of each row by what the row is called."""
        return dict(zip(self.names, self.texts, strict=True))

    @property
    def gaps(self) -> list[str]:
        """What people should know of rows that say nothing.

        >>> GivenRows(["a", ""], ["1", "2"], "", blank=3).gaps
        ['1 row has no text', '3 blank lines are no rows, and are not counted']
        """
        empty = sum(not text for text in self.texts)
        found = [f"{counted(empty, 'row')} {'has' if empty == 1 else 'have'} no text"] if empty else []
        many = "is no row, and is" if self.blank == 1 else "are no rows, and are"
        return [*found, f"{counted(self.blank, 'blank line')} {many} not counted"] if self.blank else found


class FileRows(NamedTuple):
    """A file of texts, and how it is read."""

    path: Path
    text: tuple[str, ...] = ()  # the columns of the text, joined with a space; none: one of a usual name
    id: str | None = None
    usual: tuple[str, ...] = ()  # the column that the training of a model read
    reading: ReadingConfig = ReadingConfig()

    def read(self) -> GivenRows:
        """The texts and names of all rows; RejectedError that names the bad ones."""
        ledger, texts, ids, state = Ledger(), list[str](), list[Any](), state_of(self.path)
        table = read_table((self.path,), self.reading, ledger)
        columns = text_columns(table, InputColumns(self.text, self.usual), self.path, ledger)
        identity = id_column(table, self.id, self.path)
        for record in table.records:
            try:  # no text is no fault, but anything else than a text is
                texts.append(" ".join(filter(None, (_cell(record, column).strip() for column in columns))))
            except Unfit as unfit:
                texts.append("")
                _refuse(ledger, table, record, unfit)
            ids.append(None if identity is None else record.values[identity])
        ledger.close()
        require_state(self.path, state, state_of(self.path), ledger)
        blank = sum(count for code, count in ledger.counts.items() if code.endswith(".blank"))
        return GivenRows(texts, self._names(ids), state, blank)

    @property
    def format(self) -> Format:
        """The format of the file, said or by its name."""
        return self.reading.format or format_of(self.path, Ledger())

    def table(self) -> Table:
        """The table in the file."""
        return read_table((self.path,), self.reading, Ledger())

    def _names(self, ids: list[Any]) -> list[str]:
        """The ids if they are names, one for each row; else the numbers of the rows."""
        named = [str(one) for one in ids if type(one) in (str, int) and str(one).strip()]
        if len(set(named)) == len(ids):
            return named
        if self.id is not None:
            fix = "name another column, or leave --id out to call rows by their numbers"
            raise ConfigError(f"{self.path}: --id {self.id}: not every row has an id of its own", fix=fix)
        return [str(row) for row in range(1, len(ids) + 1)]


def text_columns(table: Table, asked: InputColumns, path: Path, ledger: Ledger) -> tuple[int, ...]:
    """The numbers of the columns that are the text: all that were named, or one of a usual name."""
    if len(asked.named) > 1:
        return tuple(named_column(name, table.columns, "--input", path) for name in asked.named)
    return find_columns(table, TextInput(), asked, path, ledger)


def id_column(table: Table, name: str | None, path: Path) -> int | None:
    """The number of the column of ids: the one that was named, or one of a usual name if there is one."""
    return usual_column(IDS, table.columns) if name is None else named_column(name, table.columns, "--id", path)


def usual_column(usual: Sequence[str], names: Sequence[str]) -> int | None:
    """The number of the first of these names that a column has, in any case of letters."""
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in usual if name in lower), None)


def named_column(name: str, names: tuple[str, ...], flag: str, path: Path) -> int:
    """The number of the column that a flag names; ConfigError if there is none."""
    if name not in names:
        raise ConfigError(f"{path}: {flag} {name}: there is no such column", fix=did_you_mean(name, names))
    return names.index(name)


def _refuse(ledger: Ledger, table: Table, record: Record, unfit: Unfit) -> None:
    ledger.rows -= 1  # the reader has counted it as a good one
    ledger.bad_row(unfit.code, unfit.text, table.locate(record, unfit.column), unfit.fix)


def _cell(record: Record, column: int) -> str:
    """The text in a cell; Unfit if it holds something else."""
    value = record.values[column]
    if value is not None and type(value) is not str:
        raise Unfit(column, "type.text", f"expected a string, got {kind_name(value)}", "is this the right column?")
    return value or ""


ONCE = "give every document an id of its own, or --bad-rows skip"


class CheckedDocuments(NamedTuple):
    """What is known of a file that was read once: how many documents it has, and the sum of its bytes and columns."""

    documents: int
    skipped: int  # bad rows that were read over
    sha256: str
    bad: tuple[Problem, ...] = ()  # the first of them


class Collection(NamedTuple):
    """A file of documents, and how it is read."""

    path: Path
    text: tuple[str, ...] = ()  # the columns of the text, joined with a space; none: one of a usual name
    id: str | None = None
    usual: tuple[str, ...] = ()  # the column that the training of the model read
    reading: ReadingConfig = ReadingConfig()
    bad_rows: BadRows = BadRows()

    def checked(self) -> CheckedDocuments:
        """What the file holds; RejectedError that names the bad rows, if there are more than are read over."""
        ledger = Ledger(self.bad_rows)
        count = sum(1 for _ in self.documents(ledger))
        ledger.close()
        if not count:
            ledger.bad_file("data.empty", "there is no document in this file", Place(str(self.path)), "another file")
        # the sum changes with the bytes of the file and with what is read of them
        rule = (self.bad_rows.skip, self.bad_rows.share)
        read = (fingerprint(self.path).sha256, self.text, self.id, self.usual, self.reading, rule)
        sha256 = hashlib.sha256(msgspec.json.encode(read)).hexdigest()
        return CheckedDocuments(count, ledger.skipped, sha256, tuple(ledger.refused))

    def documents(self, ledger: Ledger | None = None) -> Iterator[TextDocument]:
        """The documents in the order of the file; bad rows are counted in the ledger and left out."""
        told = Ledger(self.bad_rows) if ledger is None else ledger
        table = read_table((self.path,), self.reading, told)
        columns = text_columns(table, InputColumns(self.text, self.usual), self.path, told)
        identity, seen = id_column(table, self.id, self.path), dict[str, int]()
        # all columns are kept but one that is the text by itself
        others = [(name, number) for number, name in enumerate(table.columns) if (number,) != columns]
        for record in table.records:
            try:
                texts = [_without_zero(_cell(record, column), column).strip() for column in columns]
                text = " ".join(filter(None, texts))
                if not text:
                    raise Unfit(columns[-1], "row.empty_text", "the text is empty", "fill it in, or --bad-rows skip")
                name = _id(record, identity)
                if name in seen:
                    twice = f"the id '{name}' is that of line {seen[name]:,} too"
                    raise Unfit(identity or 0, "document.twice", twice, ONCE)
            except Unfit as unfit:
                _refuse(told, table, record, unfit)
                continue
            seen[name] = record.line
            yield TextDocument(name, text, {other: kept(record.values[number]) for other, number in others})


def _id(record: Record, column: int | None) -> str:
    if column is None:
        return f"{Path(record.path).name}:{record.line}"
    value = record.values[column]
    if type(value) not in (str, int) or not str(value).strip():
        raise Unfit(column, "document.id", f"expected an id, got {kind_name(value)}", "fill it in, or another --id")
    return _without_zero(str(value), column)


def _without_zero(text: str, column: int) -> str:
    """The text; Unfit if it holds a zero byte, which no text has and no database keeps."""
    if "\0" in text:
        raise Unfit(column, "row.zero_byte", "the text holds a zero byte", "take it out, or --bad-rows skip")
    return text


def kept(value: Any) -> Any:
    """A value as JSON has it; what JSON has not is written as text.

    >>> kept([1, None, float("nan"), 2.5]), kept(b"a")
    ([1, None, None, 2.5], "b'a'")
    """
    if isinstance(value, list | tuple):
        return [kept(one) for one in value]
    if isinstance(value, dict):
        return {str(name): kept(one) for name, one in value.items()}
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
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
    form = ENDINGS[out.suffix.lower()]

    def pieces() -> Iterator[bytes]:
        yield from _parquet(rows, added, wanted) if form == "parquet" else _lines(form, rows, added, wanted)
        # an error before the copy has its name, if the file is not what was read first
        require_state(rows.path, state, state_of(rows.path), Ledger())

    write_file(out, pieces())


def _lines(form: Format, rows: FileRows, added: Added, wanted: np.ndarray) -> Iterator[bytes]:
    table = rows.table()
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


class Drained(io.RawIOBase):
    """A file that gives away what was written to it: pieces of a parquet file, as they come."""

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
        """What was written since the last time."""
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


def _parquet(rows: FileRows, added: Added, wanted: np.ndarray) -> Iterator[bytes]:
    """The bytes of a parquet file that has all columns of another, also those that no reader of ours reads."""
    with needing("data"):
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    columns = {name: pyarrow.array(new.values, pyarrow.type_for_alias(TYPES[new.kind])) for name, new in added.items()}
    with pyarrow.parquet.ParquetFile(rows.path, memory_map=False) as given:
        schema = given.schema_arrow
        for name, values in columns.items():
            schema = schema.append(pyarrow.field(name, values.type))
        sink, done = Drained(), 0
        with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(sink, "w"), schema) as writer:
            for batch in given.iter_batches(BATCH, use_threads=False):
                new = [values.slice(done, len(batch)) for values in columns.values()]
                mask = pyarrow.array(wanted[done : done + len(batch)])
                whole = pyarrow.RecordBatch.from_arrays([*batch.columns, *new], schema=schema)
                writer.write_batch(whole.filter(mask))
                done += len(batch)
                yield sink.drained()
        yield sink.drained()
