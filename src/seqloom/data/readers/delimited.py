"""csv and tsv: a header, then rows with as many fields. A tsv file has no quoting: a quote is a normal character.

Lines without a quote are simply split; lines with one follow RFC 4180. A field that begins with a quote ends at the
next quote that is not doubled; delimiters and line ends inside belong to it. Any other field is read as it is, with its
quotes. As spreadsheets write them, lines with delimiters only are blank, and the last columns may have no name.

Python's own csv reader is not used: its limit on the field size applies to the whole process, a bare CR ends its rows,
and it does not say where a quote was opened.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, overload

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import LONGEST_LINE, Passage, QuotedLineEnds, lines_in, open_passages
from seqloom.data.values import Record, Records, Table
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

MOST_COLUMNS = 1_024
LONGEST_SHOWN = 80  # characters of a row in a message
BLOCK_LINES = 1_024  # read together
LOOKED_AHEAD, FEW_ROWS = 20, 5  # rows that are compared to find another delimiter, and too few of them
NAMES = {",": "comma", "\t": "tab", ";": "semicolon"}
SEPARATOR_LINE = re.compile(r'"?sep=([^\w"]|\\t)"?', re.IGNORECASE)


class CsvRow(NamedTuple):
    """One row: its first line, its text without the line end, and its fields."""

    line: int
    raw: str
    fields: list[str]


class PlainRows(Sequence[CsvRow]):
    """Rows that are one line each, and about whose quotes there is nothing to say.

    They become `CsvRow` only when they are asked for.
    """

    __slots__ = ("delimiter", "line", "lines", "quoted")

    def __init__(self, line: int, lines: list[str], delimiter: str, *, quoted: bool = False) -> None:
        self.line, self.lines, self.delimiter = line, lines, delimiter  # the number of the first line
        self.quoted = quoted  # whether lines may have quotes: then they are `regular`

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, row: int) -> CsvRow: ...

    @overload
    def __getitem__(self, row: slice) -> "PlainRows": ...

    def __getitem__(self, row: int | slice) -> "CsvRow | PlainRows":
        if isinstance(row, slice):
            first = self.line + row.indices(len(self.lines))[0]
            return PlainRows(first, self.lines[row], self.delimiter, quoted=self.quoted)
        return CsvRow(self.line + range(len(self.lines))[row], self.lines[row], self._fields(self.lines[row]))

    def _fields(self, line: str) -> list[str]:
        if not self.quoted or '"' not in line:
            return line.split(self.delimiter)
        fields = [
            inside.replace('""', '"') if inside else plain for inside, plain in _field(self.delimiter).findall(line)
        ]
        return fields if line.endswith(self.delimiter) else fields[:-1]  # an empty field is found at the end

    def columns(self, width: int) -> list[list[str]] | None:
        """The fields by columns, if all rows have so many, else None.

        >>> PlainRows(2, ["a,b", "c,d"], ",").columns(2), PlainRows(2, ["a,b", "c"], ",").columns(2)
        ([['a', 'c'], ['b', 'd']], None)
        """
        if self.quoted or len(self.delimiter) > 1:  # it could lie across the end of a line
            rows = list(map(self._fields, self.lines))
            return list(map(list, zip(*rows, strict=True))) if set(map(len, rows)) == {width} else None
        if {line.count(self.delimiter) for line in self.lines} != {width - 1}:
            return None
        fields = self.delimiter.join(self.lines).split(self.delimiter)
        return [fields[column::width] for column in range(width)]


@cache
def _field(delimiter: str) -> re.Pattern[str]:
    """A field of a `regular` line with the delimiter after it: its text in quotes, or its text without."""
    mark = re.escape(delimiter)
    return re.compile(rf'(?:"((?:[^"]|"")*+)"|([^{mark}"]*+))(?:{mark}|\Z)')


@cache
def regular(delimiter: str) -> re.Pattern[str]:
    """A line about which nothing is to be said: each field is in quotes, or has none. The pattern never backtracks."""
    mark = re.escape(delimiter)
    field = rf'(?:"(?:[^"]|"")*+"|[^{mark}"]*+)'
    return re.compile(rf"{field}(?:{mark}{field})*+")


class QuotedRows:
    """Parses lines with their line ends one by one, and returns each row when it is complete."""

    def __init__(self, delimiter: str, path: str, ledger: Ledger) -> None:
        self.delimiter, self.path, self.ledger = delimiter, path, ledger
        self.refuse: Callable[[str, str, Place, str], None] = ledger.unreadable_row
        self.refused = 0  # rows
        self.line_ends = QuotedLineEnds()
        self._begin(0)

    def _begin(self, number: int) -> None:
        self.line = number
        self.lines: list[str] = []  # of the incomplete row
        self.fields: list[str] = []
        self.starts: list[tuple[int, int]] = []  # line and column of each field
        self.inside: list[str] | None = None  # parts of an open quoted field
        self.size = 0

    @property
    def is_open(self) -> bool:
        """Whether a quote is open."""
        return self.inside is not None

    def take(self, number: int, line: str) -> CsvRow | None:
        """Return the row that this line completes, or None; a malformed row is counted and skipped."""
        if not self.is_open:
            self._begin(number)
        self.lines.append(line)
        self.size += len(line)
        end = len(line.removesuffix("\n")) - line.endswith("\r\n")
        at: int | None = 0
        while at is not None:
            at = self._close(number, line, end, at) if self.inside is not None else self._field(number, line, end, at)
        if self.is_open:
            self.line_ends.take(line)
        if self.is_open or not self.fields:
            if self.size > LONGEST_LINE:
                self._refuse_open(f"is not closed after {LONGEST_LINE >> 20} MiB")
            return None
        raw = "".join(self.lines)
        return CsvRow(self.line, raw[: len(raw) - len(line) + end], self.fields)

    def _field(self, number: int, line: str, end: int, at: int) -> int | None:
        """Read the field that begins here; return the start of the next one, or None at the end of the line."""
        self.starts.append((number, at + 1))
        if line.startswith('"', at):
            self.inside = []
            return at + 1
        stop = line.find(self.delimiter, at)
        stop = end if stop < 0 else stop
        self.fields.append(line[at:stop])
        if (stray := line.find('"', at, stop)) >= 0:
            text = "a quote inside a field that does not begin with a quote; it is read as a character"
            self.ledger.warn("csv.stray_quote", text, Place(self.path, number, stray + 1))
        return None if stop == end else stop + len(self.delimiter)

    def _close(self, number: int, line: str, end: int, at: int) -> int | None:
        """Continue inside quotes; return the start of the next field, or None at the end of the line or row."""
        assert self.inside is not None
        close = line.find('"', at)
        while close >= 0 and line.startswith('"', close + 1):
            close = line.find('"', close + 2)
        if close < 0:
            self.inside.append(line[at:])
            return None
        self.inside.append(line[at:close])
        self.fields.append("".join(self.inside).replace('""', '"'))
        self.inside = None
        if close + 1 == end:
            return None
        if line.startswith(self.delimiter, close + 1):
            return close + 1 + len(self.delimiter)
        escaped = close > 0 and line[close - 1] == "\\"
        fix = 'write a quote inside quotes twice: ""' + (", not with a backslash" if escaped else "")
        if self.starts[-1][0] < number:  # it is unknown which of the lines between are separate rows
            self._refuse_open(f"is closed in line {number:,} and followed by text")
        self.fields = []
        self.refused += 1
        self.refuse("csv.quote", "text follows a closing quote", Place(self.path, number, close + 2), fix)
        return None

    def finish(self) -> None:
        """Raise RejectedError if a quote is still open at the end of the file."""
        if self.is_open:
            self._refuse_open("is never closed")

    def _refuse_open(self, how: str) -> None:
        line, column = self.starts[-1]
        text = f"a quote opened in line {line:,} {how}"
        fix = 'close the quote; write a literal quote as "" inside quotes'
        self.ledger.bad_file("csv.quote", text, Place(self.path, line, column), fix)


class Dialect(NamedTuple):
    """The delimiter, and whether fields may be quoted."""

    delimiter: str
    quoted: bool


COMMAS = Dialect(",", True)


def dialect_of(reading: ReadingConfig) -> Dialect:
    """The dialect of the settings; `\\t` in two characters means a tab."""
    quoted = reading.format != "tsv"
    given = "\t" if reading.delimiter == "\\t" else reading.delimiter
    if given is not None and (not given or any(mark in given for mark in '"\r\n')):
        raise ConfigError(f"{given!r} is not a delimiter", fix="use one or more characters, but no quote or line end")
    return Dialect(given or ("," if quoted else "\t"), quoted)


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of one csv or tsv file; without a header its columns are named 1, 2, ..."""
    (path,) = paths
    file = Delimited(path, reading, ledger)
    columns = file.first.fields if reading.header else [str(number) for number in range(1, file.width + 1)]
    blocks = file.blocks()
    records = itertools.chain.from_iterable(blocks)
    return Table(tuple(columns[: file.used]), records, file.locate, named=reading.header, blocks=blocks)


def _blocks(passages: Iterator[Passage], dialect: Dialect, parser: QuotedRows) -> Iterator[Sequence[CsvRow]]:
    """The rows: many together where nothing is reported between them, as in lines with few quotes."""
    for first_line, text in passages:
        if not dialect.quoted or ('"' not in text and not parser.is_open):
            lines = lines_in(text)
            for start in range(0, len(lines), BLOCK_LINES):
                yield PlainRows(first_line + start, lines[start : start + BLOCK_LINES], dialect.delimiter)
            continue
        lines, sound, at = ended_lines(text), regular(dialect.delimiter), 0
        while at < len(lines):
            some = list[str]()
            while at < len(lines) and len(some) < BLOCK_LINES and not parser.is_open:
                line = lines[at].removesuffix("\n") if lines[at][-2:] != "\r\n" else lines[at][:-2]
                if '"' in line and (len(dialect.delimiter) > 1 or not sound.fullmatch(line)):
                    break
                some.append(line)
                at += 1
            if some:
                yield PlainRows(first_line + at - len(some), some, dialect.delimiter, quoted=True)
                continue
            row = parser.take(first_line + at, lines[at])
            at += 1
            if row:
                yield [row]
    parser.finish()


def ended_lines(text: str) -> list[str]:
    r"""The lines of a text, each with its end.

    >>> ended_lines("a\r\nb\nc")
    ['a\r\n', 'b\n', 'c']
    """
    *ended, last = text.split("\n")
    return [line + "\n" for line in ended] + ([last] if last else [])


def _starts(raw: str, dialect: Dialect) -> list[tuple[int, int]]:
    """The line, from 0, and the column, from 1, where each field of a row begins."""
    if not dialect.quoted or '"' not in raw:
        lengths = (len(field) + len(dialect.delimiter) for field in raw.split(dialect.delimiter)[:-1])
        return [(0, before + 1) for before in itertools.accumulate(lengths, initial=0)]
    parser = QuotedRows(dialect.delimiter, "", Ledger())
    for number, line in enumerate(ended_lines(raw)):
        parser.take(number, line)
    return parser.starts


def with_fields(raw: str, changed: Mapping[int, str], dialect: Dialect) -> str:
    r"""Return the text of a row with other fields, quoted where needed; all others are as they were written.

    >>> with_fields('"007",b,"x, y"', {1: "d, e"}, COMMAS)
    '"007","d, e","x, y"'
    """
    before = [0, *itertools.accumulate(map(len, ended_lines(raw)))]  # characters before each line
    starts = [before[line] + column - 1 for line, column in _starts(raw, dialect)]
    ends = [*(start - len(dialect.delimiter) for start in starts[1:]), len(raw)]
    fields = (
        quoted(changed[number], dialect) if number in changed else raw[start:end]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    )
    return dialect.delimiter.join(fields)


def quoted(field: str, dialect: Dialect) -> str:
    """The field as it is written in a file: in quotes if it needs them and the dialect has them.

    >>> quoted('a "b" c', COMMAS), quoted("a", COMMAS)
    ('"a ""b"" c"', 'a')
    """
    if not dialect.quoted or not any(mark in field for mark in (dialect.delimiter, '"', "\n", "\r")):
        return field
    doubled = field.replace('"', '""')
    return f'"{doubled}"'


def shown(row: str) -> str:
    """A sentence with the row; of a long one, with its beginning.

    >>> shown("a,b"), shown("word," * 30)[-20:]
    ("The row is 'a,b'", ",word,word,word,...'")
    """
    start = row[:LONGEST_SHOWN].rstrip()
    return f"The row is '{row}'" if len(row) <= LONGEST_SHOWN else f"The row begins '{start}...'"


class Delimited:
    """A file that is being read: its rows as records, and the places of their fields."""

    def __init__(self, path: Path, reading: ReadingConfig, ledger: Ledger) -> None:
        self.path, self.reading, self.ledger = str(path), reading, ledger
        self.dialect = dialect_of(reading)
        self.parser = QuotedRows(self.dialect.delimiter, self.path, ledger)
        passages = open_passages(path, reading, ledger, quoted=self.parser.line_ends)
        self._left = _blocks(passages, self.dialect, self.parser)  # the rows that are not read yet
        self.first = self._find_first()
        self.width = self.used = len(self.first.fields)
        self._require_columns()
        if reading.header:
            named = (number for number, name in enumerate(self.first.fields, 1) if name.strip())
            self.used = max(named, default=self.width)

    def _find_first(self) -> CsvRow:
        if self.reading.header:
            self.parser.refuse = self.ledger.bad_file  # without a header no row can be read
        first = self._first_row()
        if first is None:
            fix = "give a file with rows"
            self.ledger.bad_file("data.empty", "the file is empty", Place(self.path), fix)
        self.parser.refuse = self.ledger.unreadable_row
        if found := SEPARATOR_LINE.fullmatch(first.raw):
            mark = found[1].replace("\t", "\\t")
            same = found[1] == self.dialect.delimiter
            fix = "delete this line" if same else f"delete this line and give --delimiter '{mark}'"
            text = f"'sep={mark}' is a setting for Excel, not a header or a row"
            self.ledger.bad_file("csv.sep_line", text, Place(self.path, first.line), fix)
        return first

    def _first_row(self) -> CsvRow | None:
        for block in self._left:
            for number, row in enumerate(block):
                if not self._pass_over(row):
                    self._left = itertools.chain([block[number + 1 :]], self._left)
                    return row
        return None

    def _pass_over(self, row: CsvRow) -> bool:
        """Whether this line is blank or has only delimiters, which is noted."""
        marks = self.dialect.delimiter in row.raw
        blank = not row.raw.replace(self.dialect.delimiter, "") if marks else not row.raw or row.raw.isspace()
        if blank:
            text = "a line with only delimiters, skipped" if marks else "a blank line, skipped"
            self.ledger.note("csv.blank", text, Place(self.path, row.line))
        return blank

    def _require_columns(self) -> None:
        place = Place(self.path, self.first.line)
        if self.width > MOST_COLUMNS:
            text = f"{counted(self.width, 'column')}; the limit is {MOST_COLUMNS:,}"
            self.ledger.bad_file("csv.too_many_columns", text, place, "remove columns that are not needed")
        if self.width == 1 and self.reading.delimiter is None:  # another delimiter may be meant
            own = self.dialect.delimiter
            others = [mark for mark in "\t;,|" if mark != own]
            known = others if self.reading.header else others[: int(own != "\t")]  # data may contain any mark but a tab
            for other in (mark for mark in known if mark in self.first.raw):
                shown, meant = (mark.replace("\t", "\\t") for mark in (other, own))
                fix = f"use --delimiter '{shown}', or --delimiter '{meant}' if the file has one column"
                text = f"1 column; the delimiter looks like '{shown}'"
                self.ledger.bad_file("csv.delimiter", text, place, fix, {"delimiter": shown})
        elif self.reading.delimiter is None:
            self._require_regular(place)
        names = self.first.fields if self.reading.header else []
        for number, name in enumerate(names):
            if (before := names.index(name)) < number and name.strip():
                text = f"columns {before + 1} and {number + 1} are both named '{name}'"
                fix = "give each column its own name"
                self.ledger.bad_file("csv.dup_header", text, self._place(self.first, number), fix)

    def _require_regular(self, place: Place) -> None:
        """Refuse a file whose first rows differ in their number of fields, but not with another delimiter."""
        ahead, taken = list[CsvRow](), list[Sequence[CsvRow]]()
        while len(ahead) < LOOKED_AHEAD and (block := next(self._left, None)) is not None:
            taken.append(block)
            ahead += block[:LOOKED_AHEAD]
        self._left = itertools.chain(taken, self._left)
        rows = [self.first, *(row for row in ahead[:LOOKED_AHEAD] if row.raw.strip())]
        if len(rows) < FEW_ROWS or len({len(row.fields) for row in rows}) == 1:
            return
        for mark in "\t;,|":
            counts = {row.raw.count(mark) for row in rows}
            if mark != self.dialect.delimiter and len(counts) == 1 and counts != {0}:
                shown = mark.replace("\t", "\\t")
                text = f"the rows differ in their number of fields; the delimiter looks like '{shown}'"
                self.ledger.bad_file("csv.delimiter", text, place, f"use --delimiter '{shown}'", {"delimiter": shown})

    def blocks(self) -> Iterator[Sequence[Record]]:
        """Yield the rows with the right number of fields: by columns, where nothing is to be said about any of them."""
        path, width, found = self.path, self.width, False
        for block in self._left if self.reading.header else itertools.chain([[self.first]], self._left):
            columns = block.columns(width) if isinstance(block, PlainRows) and self.used == width else None
            if isinstance(block, PlainRows) and columns is not None and all(columns[0]):
                found = True
                self.ledger.rows += len(block)
                yield Records(columns, path, range(block.line, block.line + len(block)), block.lines)
                continue
            for row in block:
                if self._pass_over_empty(row):
                    continue
                found = True
                if len(row.fields) != width:
                    self._refuse(row)
                    continue
                values = tuple(self._cut(row) if self.used < width else row.fields)
                self.ledger.rows += 1
                yield [Record(values, path, row.line, row.raw)]
        if not found and not self.parser.refused:
            text, fix = "the file has a header but no rows", "give a file with rows"
            self.ledger.bad_file("data.no_rows", text, Place(path), fix)

    def _pass_over_empty(self, row: CsvRow) -> bool:
        return (len(row.fields) != self.width or not row.fields[0]) and self._pass_over(row)

    def _cut(self, row: CsvRow) -> list[str]:
        """The fields up to the last named column; a later field with content gives a warning."""
        filled = next((number for number in range(self.used, self.width) if row.fields[number].strip()), None)
        if filled is not None:
            text, fix = f"column {filled + 1} has no name and is ignored", "name it in the header, or remove it"
            self.ledger.warn("csv.unnamed", text, self._place(row, filled), fix)
        return row.fields[: self.used]

    def _refuse(self, row: CsvRow) -> None:
        count, first = len(row.fields), "header" if self.reading.header else "first row"
        text, fix = f"{counted(count, 'field')}, but the {first} has {self.width:,}.", "add the missing fields"
        if count > self.width:
            name = NAMES.get(self.dialect.delimiter, "delimiter")
            text = f"{text[:-1]}; is there an unquoted {name}?"
            fix = f"quote the field that contains the {name}" if self.dialect.quoted else f"remove the {name}"
        self.ledger.unreadable_row("csv.ragged", f"{text} {shown(row.raw)}", Place(self.path, row.line), fix)

    def locate(self, record: Record, column: int) -> Place:
        """The place where a field begins."""
        return self._place(CsvRow(record.line, record.raw, list(record.values)), column)

    def _place(self, row: CsvRow, column: int) -> Place:
        line, start = _starts(row.raw, self.dialect)[column]
        return Place(self.path, row.line + line, start)
