"""Inputs from a stream of bytes as they come: lines of text, or JSON lines.

bytes ──▶ whole lines ──▶ characters ──▶ records ──▶ a list of examples for each piece that has arrived

Whoever writes one line and waits gets an answer to it: nothing is held back but a line that has not ended. A line that
is not UTF-8 spoils itself alone, for the next line feed is where it ends.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from seqloom.config.data import Format
from seqloom.data.examples import Example
from seqloom.data.inputs import Columns, find_columns, made_of, wanted
from seqloom.data.opening.blocks import lines_in
from seqloom.data.opening.characters import diagnose
from seqloom.data.opening.lines import passages_of
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.jsonl import First, Line, first_object, records_of
from seqloom.data.schema import InputKind
from seqloom.data.tables import Record, Table
from seqloom.errors import ConfigError

STANDARD_INPUT = "standard input"  # how messages call it
CHUNK = 1 << 20  # bytes
MARK = "\ufeff"  # a byte order mark


class Stream(Protocol):
    """Bytes as they come."""

    def read1(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""


class Arriving:
    """One stream of lines of UTF-8 that is read by a model; blank lines are passed over and counted."""

    def __init__(self, stream: Stream, kind: InputKind, ledger: Ledger, *, name: str = STANDARD_INPUT) -> None:
        self.stream, self.kind, self.ledger, self.path = stream, kind, ledger, Path(name)
        self.lost: set[int] = set()  # lines that are no UTF-8

    def texts(self) -> Iterator[list[Example]]:
        """The inputs, one text a line, as many at a time as have arrived."""
        if self.kind not in ("text", "words"):
            text = f"{self.path} holds lines of text, and the model reads {wanted(self.kind)}"
            raise ConfigError(text, fix="give a file, or JSON lines: --format jsonl")
        return self._texts()

    def _texts(self) -> Iterator[list[Example]]:
        for lines in self._lines():
            records = (Record((text,), str(self.path), number) for number, text in lines)
            yield list(made_of(Table(("text",), self._counted(records)), self.kind, (0,), self.ledger))

    def objects(self, columns: Columns) -> Iterator[list[Example]]:
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

    def _counted(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            self.ledger.rows += 1
            yield record

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
    columns: Columns,
    name: str = STANDARD_INPUT,
) -> Iterator[list[Example]]:
    """The inputs of a stream in one of the two formats that have lines; any other is refused."""
    source = Arriving(stream, kind, ledger, name=name)
    if format not in (None, "text", "jsonl"):
        raise ConfigError(f"{name} holds lines, and {format} has none", fix="--format text or jsonl, or give a file")
    return source.objects(columns) if format == "jsonl" else source.texts()


def lines_of(path: Path, kind: InputKind, ledger: Ledger, format: Format, columns: Columns) -> Iterator[list[Example]]:  # noqa: A002
    """The same of a file, where a bad line spoils itself alone."""
    with path.open("rb") as stream:
        yield from arriving(stream, kind, ledger, format, columns, str(path))
