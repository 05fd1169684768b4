"""csv and tsv: a header, then rows with as many fields as it has. A tsv file has no quoting: a quote is a character.

Lines without a quote are split, a megabyte at a time; a line with one goes through the rules of RFC 4180. A field that
begins with a quote ends at the next quote that is not doubled; delimiters and line ends inside belong to it. Any other
field is read as it stands, quotes included. What spreadsheets leave behind is understood: lines of delimiters alone are
blank, columns at the end may have no name.

Python's own reader is not used: its limit on the size of a field is one for the whole process, a bare CR ends its rows,
and it cannot say where a quote was opened.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import LONGEST_LINE, Passage, lines_in, open_passages
from seqloom.data.values import Record, Table
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

MOST_COLUMNS = 1_024
NAMES = {",": "comma", "\t": "tab", ";": "semicolon"}
SEPARATOR_LINE = re.compile(r'"?sep=([^\w"]|\\t)"?', re.IGNORECASE)


class CsvRow(NamedTuple):
    """One row: the line where it begins, the text it was read from without its end, and the fields."""

    line: int
    raw: str
    fields: list[str]


class QuotedRows:
    """Takes one line after the other, with their ends, and gives a row when one is complete."""

    def __init__(self, delimiter: str, path: str, ledger: Ledger) -> None:
        self.delimiter, self.path, self.ledger = delimiter, path, ledger
        self.refuse: Callable[[str, str, Place, str], None] = ledger.bad_row
        self.refused = 0  # rows
        self._begin(0)

    def _begin(self, number: int) -> None:
        self.line = number
        self.lines: list[str] = []  # of the row that is not complete
        self.fields: list[str] = []
        self.starts: list[tuple[int, int]] = []  # line and column of each field
        self.inside: list[str] | None = None  # pieces of a quoted field that has not ended
        self.size = 0

    @property
    def is_open(self) -> bool:
        """Whether a quote was opened and not closed."""
        return self.inside is not None

    def take(self, number: int, line: str) -> CsvRow | None:
        """The row that this line completes, if it does; a broken row is refused and left out."""
        if not self.is_open:
            self._begin(number)
        self.lines.append(line)
        self.size += len(line)
        end = len(line.removesuffix("\n")) - line.endswith("\r\n")
        at: int | None = 0
        while at is not None:
            at = self._close(number, line, end, at) if self.inside is not None else self._field(number, line, end, at)
        if self.is_open or not self.fields:
            if self.size > LONGEST_LINE:
                self._refuse_open(f"not closed for {LONGEST_LINE >> 20} MiB")
            return None
        raw = "".join(self.lines)
        return CsvRow(self.line, raw[: len(raw) - len(line) + end], self.fields)

    def _field(self, number: int, line: str, end: int, at: int) -> int | None:
        """Read the field that begins here; where the next one begins, or None at the end of the line."""
        self.starts.append((number, at + 1))
        if line.startswith('"', at):
            self.inside = []
            return at + 1
        stop = line.find(self.delimiter, at)
        stop = end if stop < 0 else stop
        self.fields.append(line[at:stop])
        if (stray := line.find('"', at, stop)) >= 0:
            text = "a quote inside a field that does not begin with one; it is read as it stands"
            self.ledger.warn("csv.stray_quote", text, Place(self.path, number, stray + 1))
        return None if stop == end else stop + len(self.delimiter)

    def _close(self, number: int, line: str, end: int, at: int) -> int | None:
        """Read on inside quotes; where the next field begins, or None when the line or the row ends."""
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
        fix = 'a quote inside quotes is written twice: ""' + (", not escaped with a backslash" if escaped else "")
        if self.starts[-1][0] < number:  # nobody knows how many of the lines between were rows of their own
            self._refuse_open(f"closed at line {number:,} with text behind it")
        self.fields = []
        self.refused += 1
        self.refuse("csv.quote", "text follows a closing quote", Place(self.path, number, close + 2), fix)
        return None

    def finish(self) -> None:
        """Refuse a quote that is still open at the end of the file."""
        if self.is_open:
            self._refuse_open("not closed by the end of the file")

    def _refuse_open(self, how: str) -> None:
        line, column = self.starts[-1]
        text = f"a quote opened at line {line:,}, {how}"
        fix = 'close it, or write a quote that is meant as "" inside quotes'
        self.ledger.bad_file("csv.quote", text, Place(self.path, line, column), fix)


class Dialect(NamedTuple):
    """What stands between fields, and whether fields may be quoted."""

    delimiter: str
    quoted: bool


def dialect_of(reading: ReadingConfig) -> Dialect:
    """The dialect that was asked for; `\\t` in two characters is a tab, which no shell types easily."""
    quoted = reading.format != "tsv"
    given = "\t" if reading.delimiter == "\\t" else reading.delimiter
    if given is not None and (not given or any(mark in given for mark in '"\r\n')):
        raise ConfigError(f"{given!r} is no delimiter", fix="take one or more characters, no quotes or line ends")
    return Dialect(given or ("," if quoted else "\t"), quoted)


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of one csv or tsv file; without a header its columns are named 1, 2, ..."""
    (path,) = paths
    file = Delimited(path, reading, ledger)
    columns = file.first.fields if reading.header else [str(number) for number in range(1, file.width + 1)]
    return Table(tuple(columns[: file.used]), file.records(), file.locate, named=reading.header)


def _rows(passages: Iterator[Passage], dialect: Dialect, parser: QuotedRows) -> Iterator[CsvRow]:
    for first_line, text in passages:
        if not dialect.quoted or ('"' not in text and not parser.is_open):
            for number, line in enumerate(lines_in(text), first_line):
                yield CsvRow(number, line, line.split(dialect.delimiter))
            continue
        for number, line in enumerate(ended_lines(text), first_line):
            if '"' in line or parser.is_open:
                if row := parser.take(number, line):
                    yield row
            else:
                plain = line.removesuffix("\n") if line[-2:] != "\r\n" else line[:-2]
                yield CsvRow(number, plain, plain.split(dialect.delimiter))
    parser.finish()


def ended_lines(text: str) -> list[str]:
    r"""The lines of a text, each with its end.

    >>> ended_lines("a\r\nb\nc")
    ['a\r\n', 'b\n', 'c']
    """
    *ended, last = text.split("\n")
    return [line + "\n" for line in ended] + ([last] if last else [])


class Delimited:
    """One file that is being read: its rows become records, and a field of a record is found again."""

    def __init__(self, path: Path, reading: ReadingConfig, ledger: Ledger) -> None:
        self.path, self.reading, self.ledger = str(path), reading, ledger
        self.dialect = dialect_of(reading)
        self.parser = QuotedRows(self.dialect.delimiter, self.path, ledger)
        self.rows = _rows(open_passages(path, reading, ledger), self.dialect, self.parser)
        self.first = self._find_first()
        self.width = self.used = len(self.first.fields)
        self._require_columns()
        if reading.header:
            named = (number for number, name in enumerate(self.first.fields, 1) if name.strip())
            self.used = max(named, default=self.width)

    def _find_first(self) -> CsvRow:
        if self.reading.header:
            self.parser.refuse = self.ledger.bad_file  # a broken header leaves nothing to read by
        first = next((row for row in self.rows if not self._pass_over(row)), None)
        if first is None:
            fix = "give a file with rows"
            self.ledger.bad_file("data.empty", "there is nothing in the file", Place(self.path), fix)
        self.parser.refuse = self.ledger.bad_row
        if found := SEPARATOR_LINE.fullmatch(first.raw):
            mark = found[1].replace("\t", "\\t")
            same = found[1] == self.dialect.delimiter
            fix = "delete this line" if same else f"delete this line and give --delimiter '{mark}'"
            text = f"'sep={mark}' tells Excel the delimiter; it is neither a header nor a row"
            self.ledger.bad_file("csv.sep_line", text, Place(self.path, first.line), fix)
        return first

    def _pass_over(self, row: CsvRow) -> bool:
        """Whether this line is blank or holds nothing but delimiters, which is noted."""
        marks = self.dialect.delimiter in row.raw
        blank = not row.raw.replace(self.dialect.delimiter, "") if marks else not row.raw or row.raw.isspace()
        if blank:
            text = "a line of delimiters alone, passed over" if marks else "a blank line, passed over"
            self.ledger.note("csv.blank", text, Place(self.path, row.line))
        return blank

    def _require_columns(self) -> None:
        place = Place(self.path, self.first.line)
        if self.width > MOST_COLUMNS:
            text = f"{counted(self.width, 'column')}; the limit is {MOST_COLUMNS:,}"
            self.ledger.bad_file("csv.too_many_columns", text, place, "keep the columns that are needed")
        if self.width == 1 and self.reading.delimiter is None:  # and another delimiter would cut it
            own = self.dialect.delimiter
            others = [mark for mark in "\t;,|" if mark != own]
            known = others if self.reading.header else others[: int(own != "\t")]  # data may hold any mark but a tab
            for other in (mark for mark in known if mark in self.first.raw):
                shown, meant = (mark.replace("\t", "\\t") for mark in (other, own))
                fix = f"--delimiter '{shown}', or --delimiter '{meant}' if one column is meant"
                self.ledger.bad_file("csv.delimiter", f"1 column; looks like '{shown}'", place, fix)
        names = self.first.fields if self.reading.header else []
        for number, name in enumerate(names):
            if (before := names.index(name)) < number and name.strip():
                text = f"columns {before + 1} and {number + 1} are both named '{name}'"
                fix = "give each column a name of its own"
                self.ledger.bad_file("csv.dup_header", text, self._place(self.first, number), fix)

    def records(self) -> Iterator[Record]:
        """The rows that have the right width."""
        path, width, used, ledger, good, bad = self.path, self.width, self.used, self.ledger, 0, 0
        for line, raw, fields in self.rows if self.reading.header else itertools.chain([self.first], self.rows):
            if len(fields) != width or not fields[0]:
                row = CsvRow(line, raw, fields)
                if self._pass_over(row):
                    continue
                if len(fields) != width:
                    self._refuse(row)
                    bad += 1
                    continue
            if used < width:
                fields = self._cut(CsvRow(line, raw, fields))
            good += 1
            ledger.rows += 1
            yield Record(tuple(fields), path, line, raw)
        if not good + bad + self.parser.refused:
            ledger.bad_file("data.no_rows", "a header and no rows", Place(path), "give a file with rows")

    def _cut(self, row: CsvRow) -> list[str]:
        """The fields of the columns up to the last that has a name; a filled one behind it is warned about."""
        filled = next((number for number in range(self.used, self.width) if row.fields[number].strip()), None)
        if filled is not None:
            text, fix = f"column {filled + 1} has no name and is not used", "name it in the header, or empty it"
            self.ledger.warn("csv.unnamed", text, self._place(row, filled), fix)
        return row.fields[: self.used]

    def _refuse(self, row: CsvRow) -> None:
        count, first = len(row.fields), "header" if self.reading.header else "first row"
        text, fix = f"{counted(count, 'field')}, the {first} has {self.width:,}", "add the missing ones"
        if count > self.width:
            text = f"{text}; is a {NAMES.get(self.dialect.delimiter, 'delimiter')} unquoted?"
            fix = "put quotes around the field that holds it" if self.dialect.quoted else "take it out of the field"
        self.ledger.bad_row("csv.ragged", text, Place(self.path, row.line), fix)

    def locate(self, record: Record, column: int) -> Place:
        """The place of the first character of a field."""
        return self._place(CsvRow(record.line, record.raw, list(record.values)), column)

    def _place(self, row: CsvRow, column: int) -> Place:
        if not self.dialect.quoted or '"' not in row.raw:
            before = sum(len(field) + len(self.dialect.delimiter) for field in row.fields[:column])
            return Place(self.path, row.line, before + 1)
        parser = QuotedRows(self.dialect.delimiter, self.path, Ledger())
        for number, line in enumerate(ended_lines(row.raw), row.line):
            parser.take(number, line)
        return Place(self.path, *parser.starts[column])
