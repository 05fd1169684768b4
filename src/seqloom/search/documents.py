"""Read the rows of a file as named texts or as documents, and write a copy of the file with more columns.

*Named texts* (`TextFile`): a row is named by its id if every row has a unique id, otherwise by its number from 1, not
counting the header. So names agree between the file and a copy of it. Rows without text are allowed.

*Documents* (`Collection`): the file is read twice. The first pass checks every row before anything is embedded; the
second yields documents one by one. Without an id column a document is named FILE:LINE.

*A copy* has all or some of the rows, in the format of its file extension. It is written completely or not at all, and
only if the input has not changed since it was read.

    .csv .jsonl   from any input, in UTF-8; csv uses the delimiter of the input
    .tsv          only from tsv, because other files may contain tabs
    .parquet      only from parquet, with all columns and types
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
from seqloom.data.inputs import InputColumns, as_text, find_columns
from seqloom.data.kinds.text import TextInput
from seqloom.data.problems import KEEP_REPEATS, UNLIMITED, Ledger, Place, Problem
from seqloom.data.readers.delimited import dialect_of
from seqloom.data.readers.files import fingerprint, require_state, state_of
from seqloom.data.readers.registry import format_of, read_table
from seqloom.data.roles import IDS
from seqloom.data.values import BadValue, Record, Table, kind_name
from seqloom.errors import ConfigError, did_you_mean, needing
from seqloom.files.disk import write_file
from seqloom.report.numbers import counted
from seqloom.search.store import TextDocument


class TextRows(NamedTuple):
    """The rows of a file: the text of each ('' if it has none) and its name."""

    texts: list[str]
    names: list[str]
    state: str  # of the file when it was read
    blank: int = 0  # lines that are not rows

    @property
    def by_name(self) -> dict[str, str]:
        """Return the texts by row name."""
        return dict(zip(self.names, self.texts, strict=True))

    @property
    def notices(self) -> list[str]:
        """Return notices about rows without text and blank lines.

        >>> TextRows(["a", ""], ["1", "2"], "", blank=3).notices
        ['1 row has no text', '3 blank lines are not counted as rows']
        """
        empty = sum(not text for text in self.texts)
        found = [f"{counted(empty, 'row')} {'has' if empty == 1 else 'have'} no text"] if empty else []
        many = "is not counted as a row" if self.blank == 1 else "are not counted as rows"
        return [*found, f"{counted(self.blank, 'blank line')} {many}"] if self.blank else found


def _ledger(file: "TextFile | Collection", bad_rows: BadRows) -> Ledger:
    """A ledger whose commands clean the file as it is read."""
    asked, ledger = InputColumns(file.text, file.default_columns), Ledger(bad_rows)
    ledger.read_as(lambda: as_text(file.path, TextInput(), asked, file.reading), KEEP_REPEATS)
    return ledger


class TextFile(NamedTuple):
    """A file of texts and how to read it."""

    path: Path
    text: tuple[str, ...] = ()  # text columns, joined with a space; empty: found by name
    id: str | None = None
    default_columns: tuple[str, ...] = ()  # text columns of the model's training data
    reading: ReadingConfig = ReadingConfig()

    def read(self) -> TextRows:
        """Read the texts and names of all rows; RejectedError lists the bad rows."""
        ledger, texts, ids, state = _ledger(self, UNLIMITED), list[str](), list[Any](), state_of(self.path)
        table = read_table((self.path,), self.reading, ledger)
        columns = text_columns(table, InputColumns(self.text, self.default_columns), self.path, ledger)
        identity = id_column(table, self.id, self.path)
        for record in table.records:
            try:  # an empty text is fine, a value that is not text is an error
                texts.append(" ".join(filter(None, (_cell(record, column).strip() for column in columns))))
            except BadValue as bad:
                texts.append("")
                _refuse(ledger, table, record, bad)
            ids.append(None if identity is None else record.values[identity])
        ledger.close()
        require_state(self.path, state, state_of(self.path), ledger)
        blank = sum(count for code, count in ledger.counts.items() if code.endswith(".blank"))
        return TextRows(texts, self._names(ids), state, blank)

    @property
    def format(self) -> Format:
        """Return the format of the file, as given or by its extension."""
        return self.reading.format or format_of(self.path, Ledger())

    def table(self) -> Table:
        return read_table((self.path,), self.reading, _ledger(self, UNLIMITED))

    def _names(self, ids: list[Any]) -> list[str]:
        """Return the ids if every row has a unique one, otherwise row numbers."""
        named = [str(one) for one in ids if type(one) in (str, int) and str(one).strip()]
        if len(set(named)) == len(ids):
            return named
        if self.id is not None:
            fix = "choose another column, or leave out --id to name rows by number"
            raise ConfigError(f"{self.path}: --id {self.id}: the ids are not unique, or some are missing", fix=fix)
        return [str(row) for row in range(1, len(ids) + 1)]


def text_columns(table: Table, asked: InputColumns, path: Path, ledger: Ledger) -> tuple[int, ...]:
    """Return the numbers of the text columns: those given, or one found by name."""
    if len(asked.named) > 1:
        return tuple(named_column(name, table.columns, "--input", path) for name in asked.named)
    return find_columns(table, TextInput(), asked, path, ledger)


def id_column(table: Table, name: str | None, path: Path) -> int | None:
    """Return the number of the id column: the one given, one found by name, or None."""
    return find_column(IDS, table.columns) if name is None else named_column(name, table.columns, "--id", path)


def find_column(usual: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the number of the first of these names that is a column, ignoring case."""
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in usual if name in lower), None)


def named_column(name: str, names: tuple[str, ...], flag: str, path: Path) -> int:
    """Return the number of the column that a flag names; ConfigError if it does not exist."""
    if name not in names:
        raise ConfigError(f"{path}: {flag} {name}: there is no such column", fix=did_you_mean(name, names))
    return names.index(name)


def _refuse(ledger: Ledger, table: Table, record: Record, unfit: BadValue) -> None:
    ledger.rows -= 1  # the reader counted it as a good row
    ledger.bad_row(unfit.code, unfit.text, table.locate(record, unfit.column), unfit.fix)


def _cell(record: Record, column: int) -> str:
    """Return the text in a cell; BadValue if it is not text."""
    value = record.values[column]
    if value is not None and type(value) is not str:
        raise BadValue(column, "type.text", f"expected a string, got {kind_name(value)}", "is this the right column?")
    return value or ""


ONCE = "give every document a unique id, or use --skip-bad-rows"


class CheckedDocuments(NamedTuple):
    """The result of checking a file: the number of documents, and a checksum of its bytes and columns."""

    documents: int
    skipped: int  # bad rows that were skipped
    sha256: str
    bad: tuple[Problem, ...] = ()  # the first of them


class Collection(NamedTuple):
    """A file of documents and how to read it."""

    path: Path
    text: tuple[str, ...] = ()  # text columns, joined with a space; empty: found by name
    id: str | None = None
    default_columns: tuple[str, ...] = ()  # text columns of the model's training data
    reading: ReadingConfig = ReadingConfig()
    bad_rows: BadRows = BadRows()

    def checked(self) -> CheckedDocuments:
        """Check the complete file; RejectedError lists the bad rows if there are more than may be skipped."""
        ledger = _ledger(self, self.bad_rows)
        count = sum(1 for _ in self.documents(ledger))
        ledger.close()
        if not count:
            ledger.bad_file("data.empty", "the file has no documents", Place(str(self.path)), "another file")
        # the checksum covers the bytes of the file and how they are read
        rule = (self.bad_rows.skip_bad_rows, self.bad_rows.max_bad_rows)
        read = (fingerprint(self.path).sha256, self.text, self.id, self.default_columns, self.reading, rule)
        sha256 = hashlib.sha256(msgspec.json.encode(read)).hexdigest()
        return CheckedDocuments(count, ledger.skipped, sha256, tuple(ledger.refused))

    @property
    def has_ids(self) -> bool:
        """Whether the documents have ids of their own, not their lines."""
        table = read_table((self.path,), self.reading, _ledger(self, self.bad_rows))
        return id_column(table, self.id, self.path) is not None

    def documents(self, ledger: Ledger | None = None) -> Iterator[TextDocument]:
        """Yield the documents in file order; bad rows are counted in the ledger and skipped."""
        problems = _ledger(self, self.bad_rows) if ledger is None else ledger
        table = read_table((self.path,), self.reading, problems)
        columns = text_columns(table, InputColumns(self.text, self.default_columns), self.path, problems)
        identity, seen = id_column(table, self.id, self.path), dict[str, int]()
        # every column is kept, except a text column that is the complete text
        others = [(name, number) for number, name in enumerate(table.columns) if (number,) != columns]
        for record in table.records:
            try:
                texts = [_without_zero(_cell(record, column), column).strip() for column in columns]
                text = " ".join(filter(None, texts))
                if not text:
                    raise BadValue(
                        columns[-1], "row.empty_text", "the text is empty", "fill it in, or use --skip-bad-rows"
                    )
                name = _id(record, identity)
                if name in seen:
                    twice = f"the id '{name}' is also used in line {seen[name]:,}"
                    raise BadValue(identity or 0, "document.twice", twice, ONCE)
            except BadValue as unfit:
                _refuse(problems, table, record, unfit)
                continue
            seen[name] = record.line
            yield TextDocument(name, text, {other: json_value(record.values[number]) for other, number in others})


def _id(record: Record, column: int | None) -> str:
    if column is None:
        return f"{Path(record.path).name}:{record.line}"
    value = record.values[column]
    if type(value) not in (str, int) or not str(value).strip():
        raise BadValue(
            column, "document.id", f"expected an id, got {kind_name(value)}", "fill it in, or choose another --id"
        )
    return _without_zero(str(value), column)


def _without_zero(text: str, column: int) -> str:
    """Return the text; BadValue if it contains a zero byte, which databases cannot store."""
    if "\0" in text:
        raise BadValue(column, "row.zero_byte", "the text contains a zero byte", "remove it, or use --skip-bad-rows")
    return text


def json_value(value: Any) -> Any:
    """Convert a value to what JSON can hold; other types become text.

    >>> json_value([1, None, float("nan"), 2.5]), json_value(b"a")
    ([1, None, None, 2.5], "b'a'")
    """
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(name): json_value(one) for name, one in value.items()}
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

TYPES = {int: "int64", float: "float64", str: "string"}  # Arrow type names


class AddedColumn(NamedTuple):
    """A new column: a value of one type, or None, for every row of the file."""

    kind: type[int] | type[float] | type[str]
    values: Sequence[Any]


Added = Mapping[str, AddedColumn]


def is_same(one: Path, other: Path) -> bool:
    """Return whether two paths are the same file, now or once written."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def require_copy(out: Path, rows: TextFile, added: Sequence[str], log: Path | None = None) -> None:
    """Raise ConfigError, before any work, if a copy cannot be written or would replace a file or the label log."""
    form, given = ENDINGS.get(out.suffix.lower()), rows.format
    if form is None or (form in ("tsv", "parquet") and form != given):
        fix = "use the extension .csv or .jsonl" + (f", or .{given}" if given in ("tsv", "parquet") else "")
        raise ConfigError(f"{out}: a copy of {rows.path.name} ({given}) cannot have this extension", fix=fix)
    if is_same(out, rows.path):
        raise ConfigError(f"{out} is the input file, which the copy would replace", fix="give another name")
    if log is not None and is_same(out, log):
        raise ConfigError(f"{out} is the label log, which the copy would replace", fix="give another name")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} already exists", fix="choose another name, or delete it")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: the folder {out.parent} does not exist", fix="create it first")
    if both := [name for name in added if name in rows.table().columns]:
        raise ConfigError(f"{rows.path} already has a column '{both[0]}'", fix="rename or remove that column")


def write_copy(out: Path, rows: TextFile, state: str, added: Added, wanted: np.ndarray) -> None:
    """Write the selected rows [rows] to `out`, with the values of the added columns."""
    form = ENDINGS[out.suffix.lower()]

    def pieces() -> Iterator[bytes]:
        yield from _parquet(rows, added, wanted) if form == "parquet" else _lines(form, rows, added, wanted)
        # raises before the copy gets its name, if the input has changed
        require_state(rows.path, state, state_of(rows.path), Ledger())

    write_file(out, pieces())


def _lines(form: Format, rows: TextFile, added: Added, wanted: np.ndarray) -> Iterator[bytes]:
    table = rows.table()
    names = (*table.columns, *added)
    records = zip(table.records, wanted, *(column.values for column in added.values()), strict=True)
    chosen = ((*record.values, *values) for record, is_wanted, *values in records if is_wanted)
    if form == "jsonl":
        return (
            msgspec.json.encode(dict(zip(names, map(json_value, values), strict=True))) + b"\n" for values in chosen
        )
    delimiter = "," if rows.format != form else dialect_of(msgspec.structs.replace(rows.reading, format=form)).delimiter
    head = [names] if table.named else []
    return (_delimited(values, delimiter, quoted=form == "csv") for values in chain(head, chosen))


def _delimited(values: Sequence[Any], delimiter: str, *, quoted: bool) -> bytes:
    r"""Return one line of csv or tsv; fields are quoted where the format needs and allows it.

    >>> _delimited(["a;b", 'a "b" c', None, 0.5], ";", quoted=True)
    b'"a;b";"a ""b"" c";;0.5\n'
    """
    cells = [str(cell(value)) for value in values]
    marks = (delimiter, '"', "\n", "\r") if quoted else ()
    fields = (f'"{one.replace(chr(34), chr(34) * 2)}"' if any(mark in one for mark in marks) else one for one in cells)
    return f"{delimiter.join(fields)}\n".encode()


class ChunkBuffer(io.RawIOBase):
    """A writable file that hands out the bytes written so far, for streaming parquet."""

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
        """Return what was written since the last call."""
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


def _parquet(rows: TextFile, added: Added, wanted: np.ndarray) -> Iterator[bytes]:
    """Yield the bytes of a parquet copy with all columns, also those of types that Seqloom does not read."""
    with needing("data"):
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    columns = {name: pyarrow.array(new.values, pyarrow.type_for_alias(TYPES[new.kind])) for name, new in added.items()}
    with pyarrow.parquet.ParquetFile(rows.path, memory_map=False) as given:
        schema = given.schema_arrow
        for name, values in columns.items():
            schema = schema.append(pyarrow.field(name, values.type))
        sink, done = ChunkBuffer(), 0
        with pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(sink, "w"), schema) as writer:
            for batch in given.iter_batches(BATCH, use_threads=False):
                new = [values.slice(done, len(batch)) for values in columns.values()]
                mask = pyarrow.array(wanted[done : done + len(batch)])
                whole = pyarrow.RecordBatch.from_arrays([*batch.columns, *new], schema=schema)
                writer.write_batch(whole.filter(mask))
                done += len(batch)
                yield sink.drained()
        yield sink.drained()
