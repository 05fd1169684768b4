"""Inputs without targets, for a model that is trained: a file, standard input, or values from Python.

    reviews.csv  ──▶ the column that training read, one of a usual name, the only one, or --input NAME
    steps.csv    ──▶ rows that share a column are the steps of one sequence of vectors
    lines.txt    ──▶ one text a line; standard input is read in `arriving`
    x.npz        ──▶ vectors or pictures
    1.png, a folder of pictures

What else is in a file, also the targets, is passed over. Nothing is learnt here, so nothing is inferred but the column;
one of several that training did not read is named aloud.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from seqloom.config.data import DataConfig, Format, ReadingConfig
from seqloom.data.dataset import in_sequences, make_examples
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.nothing import NoTarget
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.readers.files import is_file, is_folder
from seqloom.data.readers.folders import load_column, read_file
from seqloom.data.readers.jsonl import First, Line, first_object, records_of
from seqloom.data.readers.passages import diagnose, lines_in, passages_of
from seqloom.data.readers.registry import read_table
from seqloom.data.roles import IDS, Roles
from seqloom.data.schema import INPUT_KINDS, Example, Schema
from seqloom.data.values import Record, Table, plain
from seqloom.errors import ConfigError, did_you_mean


class InputColumns(NamedTuple):
    """Which columns hold the input: those that the user named, else those that training read, if the file has them.

    `sequence` is the column whose value is the same in all steps of a sequence, in `usual_sequence` training read it.
    """

    named: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    sequence: str | None = None
    usual_sequence: str | None = None


def read_inputs(
    path: Path,
    kind: InputKind,
    ledger: Ledger,
    *,
    columns: InputColumns = InputColumns(),  # noqa: B008  # an immutable value
    reading: ReadingConfig = ReadingConfig(),  # noqa: B008
) -> Iterator[Example]:
    """The inputs in a file, a folder of pictures or a file of one, in order and without targets."""
    other = next((one for one in INPUT_KINDS.values() if path.suffix.lower() in one.suffixes), kind)
    if other != kind:
        text = f"a {other}, and the model reads {kind.wanted}"
        ledger.bad_file("file.format", text, Place(str(path)), "another file")
    table = (_files(path, kind, ledger) if kind.in_files else None) or read_table((path,), reading, ledger)
    steps = _steps(table, kind, columns)
    if steps is not None:
        return made_of(in_sequences(table, steps, ledger)._replace(columns=("vectors", "id")), kind, (0,), ledger)
    usual = columns.usual if columns.usual_sequence is None else ()  # columns of steps are no whole input
    found = find_columns(table, kind, columns._replace(usual=usual), path, ledger)
    if kind.in_files:
        table = load_column(table, found[0], kind, ledger)
    return made_of(table, kind, found, ledger)


def _steps(table: Table, kind: InputKind, columns: InputColumns) -> DataConfig | None:
    """How rows of a table become sequences, if that is asked for, or was so in training and the table has the columns.

    The name of a sequence stands in for its target: it is the one thing that all steps share.
    """
    inputs, asked = columns.named or columns.usual, columns.sequence
    if asked is not None and not kind.of_numbers:
        raise ConfigError(f"--sequence makes vectors of rows, and the model reads {kind.wanted}", fix="leave it out")
    name = asked or columns.usual_sequence
    if name is None or (asked is None and not {name, *inputs} <= set(table.columns)):
        return None
    return DataConfig(train=("inputs",), input=inputs, target=(name,), sequence=name, task="classify")


def given_inputs(values: Iterable[Any], kind: InputKind, ledger: Ledger) -> Iterator[Example]:
    """The same values as inputs; the n-th one's place is `inputs:n`, counted from 1."""
    rows = enumerate(map(plain, values), 1)
    records = (Record(kind.cells(value), "inputs", number) for number, value in rows)
    columns = tuple(f"input {number}" for number in range(1, kind.num_columns + 1))
    return made_of(Table(columns, _counted(records, ledger)), kind, tuple(range(kind.num_columns)), ledger)


def _counted(records: Iterator[Record], ledger: Ledger) -> Iterator[Record]:
    for record in records:
        ledger.rows += 1
        yield record


def _files(path: Path, kind: InputKind, ledger: Ledger) -> Table | None:
    """The table of one file of a kind, or of those in a folder without class folders; None for anything else."""
    if is_file(path) and path.suffix.lower() in kind.suffixes:
        files = [path]
    elif not is_folder(path) or any(entry.is_dir() for entry in path.iterdir()):
        return None
    else:
        files = sorted(entry for entry in path.iterdir() if entry.suffix.lower() in kind.suffixes)
    if not files:
        fix = f"name them {', '.join(kind.suffixes)}"
        ledger.bad_file("data.empty", f"no {kind.wanted} in this folder", Place(str(path)), fix)
    values = ((file, read_file(file, kind, ledger)) for file in files)
    records = (Record((value,), str(file), 1) for file, value in values if value is not None)
    return Table(kind.usual[0], _counted(records, ledger))


def made_of(table: Table, kind: InputKind, columns: tuple[int, ...], ledger: Ledger) -> Iterator[Example]:
    """The examples of a table whose input stands in these columns; the id in one of a usual name."""
    lower = [name.lower() for name in table.columns]
    identity = next((lower.index(name) for name in IDS if name in lower), None)
    spaces = lower.index("spaces") if kind.in_words and "spaces" in lower else None
    roles = Roles(columns, (), Schema(kind, NoTarget()), identity, spaces=spaces)
    return (made.example for made in make_examples(table, roles, ledger))


def find_columns(table: Table, kind: InputKind, columns: InputColumns, path: Path, ledger: Ledger) -> tuple[int, ...]:
    """The numbers of the columns that hold the input."""
    names = columns.named or _known(table, kind, columns.usual)
    for name in names:
        if name not in table.columns:
            near = did_you_mean(name, table.columns).replace("did you mean '", "did you mean --input '")
            _refuse(f"no column '{name}'; found {_shown(table)}", path, near, ledger)
    needed = kind.num_columns
    if not names or (len(names) != needed and not kind.of_numbers):
        asked = f"--input names {len(names)}" if names else "none has a usual name"
        text = f"the model reads {kind.wanted}; {asked}. The columns are {_shown(table)}"
        _refuse(text, path, "--input NAME" + " --input NAME" * (needed - 1), ledger)
    if not columns.named and columns.usual and names != columns.usual and len(table.columns) != len(names):
        # Training did not read it; there are others, and one of them may be meant.
        read, trained = (" and ".join(f"'{escaped(name)}'" for name in one) for one in (names, columns.usual))
        text = f"{read} is read; training read {trained}, and the columns are {_shown(table)}"
        ledger.warn("data.another_column", text, Place(str(path), 1), "--input NAME, if another one is meant")
    return tuple(table.columns.index(name) for name in names)


def _known(table: Table, kind: InputKind, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the input where the user gave none: as in training, by a usual name, or the only one there is."""
    if usual and set(usual) <= set(table.columns):
        return usual
    lower = {name.lower(): name for name in reversed(table.columns)}
    known = next((names for names in kind.readable() if set(names) <= lower.keys()), ())
    return tuple(lower[name] for name in known) or (table.columns if len(table.columns) == kind.num_columns else ())


def _shown(table: Table) -> str:
    return ", ".join(f"'{escaped(name)}'" for name in table.columns[:20])


def _refuse(text: str, path: Path, fix: str, ledger: Ledger) -> NoReturn:
    ledger.bad_file("data.column", text, Place(str(path), 1), fix)


STANDARD_INPUT = "standard input"  # how messages call it
CHUNK = 1 << 20  # bytes
MARK = "\ufeff"  # a byte order mark


class Stream(Protocol):
    """Bytes as they come."""

    def read1(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""


class Arriving:
    """One stream of lines of UTF-8 that is read by a model; blank lines are passed over and counted.

        bytes ──▶ whole lines ──▶ characters ──▶ records ──▶ a list of examples for each piece that has arrived

    Whoever writes one line and waits gets an answer to it: nothing is held back but a line that has not ended. A line
    that is not UTF-8 spoils itself alone, for the next line feed is where it ends.
    """

    def __init__(self, stream: Stream, kind: InputKind, ledger: Ledger, *, name: str = STANDARD_INPUT) -> None:
        self.stream, self.kind, self.ledger, self.path = stream, kind, ledger, Path(name)
        self.lost: set[int] = set()  # lines that are no UTF-8

    def texts(self) -> Iterator[list[Example]]:
        """The inputs, one text a line, as many at a time as have arrived."""
        for lines in self._lines():
            records = (Record((text,), str(self.path), number) for number, text in lines)
            yield list(made_of(Table(("text",), _counted(records, self.ledger)), self.kind, (0,), self.ledger))

    def objects(self, columns: InputColumns) -> Iterator[list[Example]]:
        """The inputs in JSON lines, whose keys are the columns, as many at a time as have arrived."""
        first: First | None = None
        found: tuple[int, ...] = ()
        for lines in self._lines():
            rest = iter(lines)
            if first is None:
                first = first_object(rest, self.path, self.ledger)
                if first is None:
                    continue
                found = find_columns(Table(first.columns, iter(())), self.kind, columns, self.path, self.ledger)
                rest = iter([first.line, *rest])
            table = Table(first.columns, records_of(self.path, first, rest, self.ledger))
            yield list(made_of(table, self.kind, found, self.ledger))

    def _lines(self) -> Iterator[list[Line]]:
        """The lines of each piece that are not blank, with their numbers."""
        for passage in passages_of(self._characters(), self.path, self.ledger):
            numbered = list(enumerate(lines_in(passage.text), passage.first_line))
            for number, line in numbered:
                if (not line or line.isspace()) and number not in self.lost:
                    self.ledger.note("text.blank", "a blank line, passed over", Place(str(self.path), number))
            yield [(number, line) for number, line in numbered if line and not line.isspace()]

    def _characters(self) -> Iterator[str]:
        """The text of whole lines; in place of one that is no UTF-8 an empty one."""
        number, held = 1, b""
        while chunk := self.stream.read1(CHUNK):
            whole, feed, rest = (held + chunk).rpartition(b"\n")
            held = rest
            if feed:
                yield self._decoded(whole + feed, number)
                number += whole.count(b"\n") + 1
        if held:
            yield self._decoded(held, number)

    def _decoded(self, data: bytes, first: int) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\n".join(self._line(line, number) for number, line in enumerate(data.split(b"\n"), first))
        return text.removeprefix(MARK) if first == 1 else text

    def _line(self, line: bytes, number: int) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.lost.add(number)
            found = diagnose(line[error.start :], at_end=False, plain=True)
            place = Place(str(self.path), number, len(line[: error.start].decode()) + 1)
            self.ledger.bad_row("enc.utf8", found.text, place, found.fix)
            return ""


def arriving(
    stream: Stream,
    kind: InputKind,
    ledger: Ledger,
    format: Format | None,  # noqa: A002
    columns: InputColumns,
    name: str = STANDARD_INPUT,
) -> Iterator[list[Example]]:
    """The inputs of a stream in one of the two formats that have lines; any other is refused."""
    source = Arriving(stream, kind, ledger, name=name)
    if format not in (None, "text", "jsonl"):
        raise ConfigError(f"{name} holds lines, and {format} has none", fix="--format text or jsonl, or give a file")
    if format == "jsonl":
        return source.objects(columns)
    if not kind.in_lines:
        text = f"{name} holds lines of text, and the model reads {kind.wanted}"
        raise ConfigError(text, fix="give a file, or JSON lines: --format jsonl")
    return source.texts()


def lines_of(
    path: Path,
    kind: InputKind,
    ledger: Ledger,
    format: Format,  # noqa: A002
    columns: InputColumns,
) -> Iterator[list[Example]]:
    """The same of a file, where a bad line spoils itself alone."""
    with path.open("rb") as stream:
        yield from arriving(stream, kind, ledger, format, columns, str(path))
