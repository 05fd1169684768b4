"""Inputs for a trained model, without targets: from a file, standard input, or Python values.

    reviews.csv  ──▶ the column that training read, one with a common name, the only one, or --input NAME
    steps.csv    ──▶ rows that share a column are the steps of one sequence of vectors
    lines.txt    ──▶ one text per line; `read_stream` reads standard input
    x.npz        ──▶ vectors or pictures
    1.png, a folder of pictures

Other columns, including targets, are ignored. If the column is not the one that training read, and there are others, a
warning names it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec

from seqloom.config.data import BadRows, DataConfig, Format, ReadingConfig, Task
from seqloom.config.options import typed_changes
from seqloom.data.dataset import in_sequences, make_examples
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.problems import KEEP_REPEATS, Ledger, Place, escaped
from seqloom.data.readers.files import is_file, is_folder
from seqloom.data.readers.folders import load_column, read_file
from seqloom.data.readers.jsonl import First, Line, first_object, records_of
from seqloom.data.readers.passages import (
    LONGEST_LINE,
    OTHER_ENCODING,
    WIDE,
    diagnose,
    error_handler,
    in_either_encoding,
    known_encoding,
    lines_in,
    passages_of,
)
from seqloom.data.readers.registry import read_table
from seqloom.data.roles import IDS, Roles, flagged
from seqloom.data.schema import INPUT_KINDS, Example, Schema
from seqloom.data.values import Record, Table, plain
from seqloom.errors import ConfigError, RejectedError, did_you_mean


class InputColumns(NamedTuple):
    """Which columns are read: those named by the user, else those that training read, if the file has them."""

    named: tuple[str, ...] = ()  # by the user
    trained: tuple[str, ...] = ()  # read in training
    sequence: str | None = None  # column that identifies the steps of one sequence, named by the user
    trained_sequence: str | None = None  # the same, read in training
    as_trained: bool = False  # whether the format is that of training
    id: str | None = None  # column with the id of each row, named by the user; empty: none
    trained_id: str | None = None  # the same, read in training

    def kind(self, kind: InputKind, read: tuple[str, ...]) -> InputKind:
        """The kind that reads these columns: in the format and the columns of training, as training did."""
        return kind.in_columns() if self.as_trained and read == (self.trained or read) else kind

    def identity(self, table: Table, path: Path, ledger: Ledger) -> int | None:
        """The number of the column of ids: the named one, that of training, or one with a common name."""
        if self.id and self.id not in table.columns:
            near = did_you_mean(self.id, table.columns)
            text = f"there is no column '{self.id}'; found {_shown(table)}"
            _refuse(text, path, flagged(near, "--id") or near, ledger)
        usual = self.trained_id if self.trained_id in ("", *table.columns) else None
        name = self.id if self.id is not None else usual
        if name is not None:
            return table.columns.index(name) if name else None
        lower = [name.lower() for name in table.columns]
        return next((lower.index(name) for name in IDS if name in lower), None)


def read_inputs(
    path: Path,
    kind: InputKind,
    ledger: Ledger,
    *,
    columns: InputColumns = InputColumns(),  # noqa: B008  # an immutable value
    reading: ReadingConfig = ReadingConfig(),  # noqa: B008
) -> Iterator[Example]:
    """Yield the inputs of a file, a folder of pictures or a single picture, in order and without targets."""
    other = next((one for one in INPUT_KINDS.values() if path.suffix.lower() in one.suffixes), kind)
    if other != kind:
        text = f"this is a {other}, but the model reads {kind.noun}"
        ledger.bad_file("file.format", text, Place(str(path)), "give another file")
    ledger.read_as(lambda: as_text(path, kind, columns, reading), KEEP_REPEATS)
    table = (_files(path, kind, ledger) if kind.in_files else None) or read_table((path,), reading, ledger)
    steps = _steps(table, kind, columns)
    if steps is not None:
        if columns.id is not None:
            text = f"--id {columns.id}: the id of a sequence is its value in '{escaped(steps.target[0])}'"
            raise ConfigError(text, fix="leave out --id")
        joined = in_sequences(table, steps, ledger)._replace(columns=("vectors", "id"))
        return examples_of(joined, kind, (0,), ledger, identity=1)
    usual = columns.trained if columns.trained_sequence is None else ()  # columns of steps are not complete inputs
    found = find_columns(table, kind, columns._replace(trained=usual), path, ledger)
    kind, identity = (
        columns.kind(kind, tuple(table.columns[number] for number in found)),
        columns.identity(table, path, ledger),
    )
    if kind.in_files:
        table = load_column(table, found[0], kind, ledger)
    return examples_of(table, kind, found, ledger, identity=identity)


def as_text(path: Path, kind: InputKind, columns: InputColumns, reading: ReadingConfig) -> DataConfig:
    """The settings with which the file is cleaned: texts alone, because it may have no targets.

    Its columns are those that are found in its header, also if some lines are in another encoding, and rows that cannot
    be read are left out.
    """
    ledger, names = Ledger(BadRows()), columns.named
    try:
        table = read_table((path,), in_either_encoding(reading, path, ledger), ledger)
        if len(names) < 2:  # several texts that are joined have these names
            names = tuple(table.columns[number] for number in find_columns(table, kind, columns, path, ledger))
        for _ in table.records:
            pass
    except RejectedError:
        pass
    bad_rows = ledger.skipping() or BadRows()
    task: Task | None = ("lm" if len(names) < 2 else "embed") if kind.is_text else None
    return DataConfig(train=(str(path),), input=names, reading=reading, task=task, bad_rows=bad_rows)


def _steps(table: Table, kind: InputKind, columns: InputColumns) -> DataConfig | None:
    """How rows become sequences: if --sequence is given, or training used it and the table has the columns.

    The name of a sequence takes the place of its target, because all steps share it.
    """
    inputs, requested = columns.named or columns.trained, columns.sequence
    if requested is not None and not kind.of_numbers:
        raise ConfigError(f"--sequence is for vectors, but the model reads {kind.noun}", fix="leave out --sequence")
    name = requested or columns.trained_sequence
    if name is None or (requested is None and not {name, *inputs} <= set(table.columns)):
        return None
    return DataConfig(train=("inputs",), input=inputs, target=(name,), sequence=name, task="classify")


def given_inputs(values: Iterable[Any], kind: InputKind, ledger: Ledger) -> Iterator[Example]:
    """Yield Python values as inputs; the place of the n-th is `inputs:n`, counted from 1."""
    rows = enumerate(map(plain, values), 1)
    records = (Record(kind.cells(value), "inputs", number) for number, value in rows)
    columns = tuple(f"input {number}" for number in range(1, kind.num_columns + 1))
    return examples_of(Table(columns, _counted(records, ledger)), kind, tuple(range(kind.num_columns)), ledger)


def _counted(records: Iterator[Record], ledger: Ledger) -> Iterator[Record]:
    for record in records:
        ledger.rows += 1
        yield record


def _files(path: Path, kind: InputKind, ledger: Ledger) -> Table | None:
    """The table of one file, or of the files in a folder without class folders; None for anything else."""
    if is_file(path) and path.suffix.lower() in kind.suffixes:
        files = [path]
    elif not is_folder(path) or any(entry.is_dir() for entry in path.iterdir()):
        return None
    else:
        files = sorted(entry for entry in path.iterdir() if entry.suffix.lower() in kind.suffixes)
    if not files:
        fix = f"name them {', '.join(kind.suffixes)}"
        ledger.bad_file("data.empty", f"no {kind.noun} in this folder", Place(str(path)), fix)
    values = ((file, read_file(file, kind, ledger)) for file in files)
    records = (Record((value,), str(file), 1) for file, value in values if value is not None)
    return Table(kind.column_names[0], _counted(records, ledger))


def examples_of(
    table: Table, kind: InputKind, columns: tuple[int, ...], ledger: Ledger, *, identity: int | None = None
) -> Iterator[Example]:
    """Yield the examples of a table with its input in these columns, and its ids in the column `identity`."""
    lower = [name.lower() for name in table.columns]
    spaces = lower.index("spaces") if kind.in_words and "spaces" in lower else None
    roles = Roles(columns, (), Schema(kind, NoTarget()), identity, spaces=spaces)
    return (made.example for made in make_examples(table, roles, ledger))


def find_columns(table: Table, kind: InputKind, columns: InputColumns, path: Path, ledger: Ledger) -> tuple[int, ...]:
    """Return the numbers of the input columns."""
    names = columns.named or _known(table, kind, columns.trained)
    for name in names:
        if name not in table.columns:
            guess = did_you_mean(name, table.columns)
            near = flagged(guess, "--input") or guess
            _refuse(f"there is no column '{name}'; found {_shown(table)}", path, near, ledger)
    needed = kind.num_columns
    if not names or (len(names) != needed and not kind.of_numbers):
        asked = f"--input names {len(names)}" if names else "no column has a known name"
        text = f"the model reads {kind.noun}; {asked}. The columns are {_shown(table)}"
        _refuse(text, path, "name the input with --input NAME" + " --input NAME" * (needed - 1), ledger)
    if not columns.named and columns.trained and names != columns.trained and len(table.columns) != len(names):
        # Training read another column, and one of the other columns may be meant.
        read, trained = (" and ".join(f"'{escaped(name)}'" for name in one) for one in (names, columns.trained))
        text = f"reading {read}, but training read {trained}; the columns are {_shown(table)}"
        ledger.warn("data.another_column", text, Place(str(path), 1), "use --input NAME if another column is meant")
    return tuple(table.columns.index(name) for name in names)


def _known(table: Table, kind: InputKind, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The input columns if none are given: those of training, with a common name, or the only one."""
    if usual and set(usual) <= set(table.columns):
        return usual
    lower = {name.lower(): name for name in reversed(table.columns)}
    known = next((names for names in kind.readable() if set(names) <= lower.keys()), ())
    return tuple(lower[name] for name in known) or (table.columns if len(table.columns) == kind.num_columns else ())


def _shown(table: Table) -> str:
    return ", ".join(f"'{escaped(name)}'" for name in table.columns[:20])


def _refuse(text: str, path: Path, fix: str, ledger: Ledger) -> NoReturn:
    ledger.bad_file("data.column", text, Place(str(path), 1), fix)


STANDARD_INPUT = "standard input"  # its name in messages
CHUNK = 1 << 20  # bytes
MARK = "\ufeff"  # a byte order mark


class Stream(Protocol):
    """A stream of bytes."""

    def read1(self, size: int, /) -> bytes:
        """Up to `size` bytes; empty at the end."""


class StreamReader:
    """Reads inputs from a stream of lines; blank lines are skipped and counted.

        bytes ──▶ complete lines ──▶ characters ──▶ records ──▶ a list of examples for each chunk

    Every complete line is yielded immediately, so a program that writes one line and waits gets its output. A line that
    does not fit the encoding is one bad row.
    """

    def __init__(
        self,
        stream: Stream,
        kind: InputKind,
        ledger: Ledger,
        *,
        encoding: str = "utf-8",
        name: str = STANDARD_INPUT,
    ) -> None:
        self.stream, self.kind, self.ledger, self.path = stream, kind, ledger, Path(name)
        self.encoding = known_encoding(encoding, self.path, ledger).name
        if self.encoding in WIDE:
            text = f"--encoding {encoding}: lines of {name} are read from encodings whose line breaks are one byte"
            raise ConfigError(text, fix="convert it to UTF-8, or give a file")
        self.errors = error_handler(encoding)
        self.lost: set[int] = set()  # lines that do not fit the encoding

    def texts(self) -> Iterator[list[Example]]:
        """Yield the inputs, one text per line, in lists of all that have arrived."""
        for lines in self._lines():
            records = (Record((self.kind.line(text),), str(self.path), number) for number, text in lines)
            yield list(examples_of(Table(("text",), _counted(records, self.ledger)), self.kind, (0,), self.ledger))

    def objects(self, columns: InputColumns) -> Iterator[list[Example]]:
        """Yield the inputs of JSON lines, whose keys are the columns, in lists of all that have arrived."""
        first: First | None = None
        found: tuple[int, ...] = ()
        identity: int | None = None
        kind = self.kind
        for lines in self._lines():
            rest = iter(lines)
            if first is None:
                first = first_object(rest, self.path, self.ledger)
                if first is None:
                    continue
                empty = Table(first.columns, iter(()))
                found = find_columns(empty, self.kind, columns, self.path, self.ledger)
                identity = columns.identity(empty, self.path, self.ledger)
                kind = columns.kind(self.kind, tuple(first.columns[number] for number in found))
                rest = iter([first.line, *rest])
            table = Table(first.columns, records_of(self.path, first, rest, self.ledger))
            yield list(examples_of(table, kind, found, self.ledger, identity=identity))

    def _lines(self) -> Iterator[list[Line]]:
        """Yield the lines of each chunk that are not blank, with their numbers."""
        for passage in passages_of(self._characters(), self.path, self.ledger):
            numbered = list(enumerate(lines_in(passage.text), passage.first_line))
            for number, line in numbered:
                if (not line or line.isspace()) and number not in self.lost:
                    self.ledger.blank_line(Place(str(self.path), number))
            yield [(number, line) for number, line in numbered if line and not line.isspace()]

    def _characters(self) -> Iterator[str]:
        """Yield the text of complete lines; a line that does not fit the encoding becomes an empty one."""
        number, pending = 1, b""
        while chunk := self.stream.read1(CHUNK):
            whole, feed, rest = (pending + chunk).rpartition(b"\n")
            pending = rest
            if feed:
                yield self._decoded(whole + feed, number)
                number += whole.count(b"\n") + 1
            if len(pending) > LONGEST_LINE:  # it may have no end
                text = f"the line is longer than {LONGEST_LINE >> 20} MiB"
                self.ledger.bad_file(
                    "line.too_long", text, Place(str(self.path), number), "end lines with a line break"
                )
        if pending:
            yield self._decoded(pending, number)

    def _decoded(self, data: bytes, first: int) -> str:
        try:
            text = data.decode(self.encoding, self.errors)
        except UnicodeDecodeError:
            text = "\n".join(self._line(line, number) for number, line in enumerate(data.split(b"\n"), first))
        return text.removeprefix(MARK) if first == 1 else text

    def _line(self, line: bytes, number: int) -> str:
        try:
            return line.decode(self.encoding, self.errors)
        except UnicodeDecodeError as error:
            self.lost.add(number)
            before = line[: error.start].decode(self.encoding, self.errors)
            place = Place(str(self.path), number, len(before) + 1)
            if self.encoding == "utf-8":
                found = diagnose(line[error.start :], at_end=False, plain=True)
                self.ledger.bad_row("enc.utf8", found.text, place, found.fix)
            else:
                shown = " ".join(f"0x{byte:02X}" for byte in line[error.start : error.end][:4])
                text = f"{shown} is not {self.encoding} ({error.reason})"
                self.ledger.bad_row("enc.bytes", text, place, OTHER_ENCODING)
            return ""


def require_lines(reading: ReadingConfig, name: str) -> None:
    """Raise ConfigError for a format that is not read line by line, and for settings that lines do not have."""
    if reading.format not in (None, "text", "jsonl"):
        text = f"{reading.format} cannot be read from {name}"
        raise ConfigError(text, fix="use --format text or jsonl, or give a file")
    if reading.unit == "line":
        reading = msgspec.structs.replace(reading, unit=None)
    for given in typed_changes(reading, ("format", "encoding")):
        text = f"{given}: {name} is read as lines of text or JSON lines"
        raise ConfigError(text, fix=f"leave out {given.partition(' ')[0]}, or give a file")


def read_stream(
    stream: Stream,
    kind: InputKind,
    ledger: Ledger,
    reading: ReadingConfig,
    columns: InputColumns,
    name: str = STANDARD_INPUT,
) -> Iterator[list[Example]]:
    """Yield the inputs of a stream of text lines or JSON lines; raise ConfigError for other formats and options."""
    require_lines(reading, name)
    source = StreamReader(stream, kind, ledger, encoding=reading.encoding, name=name)
    if reading.format == "jsonl":
        return source.objects(columns)
    if columns.id:
        raise ConfigError(f"--id {columns.id}: lines of text in {name} have no columns", fix="leave out --id")
    if not kind.in_lines:
        text = f"{name} has lines of text, but the model reads {kind.noun}"
        raise ConfigError(text, fix="give a file, or JSON lines with --format jsonl")
    return source.texts()


def lines_of(
    path: Path,
    kind: InputKind,
    ledger: Ledger,
    format: Format,
    columns: InputColumns,
) -> Iterator[list[Example]]:
    """The same for a file; a bad line affects only itself."""
    with path.open("rb") as stream:
        yield from read_stream(stream, kind, ledger, ReadingConfig(format=format), columns, str(path))
