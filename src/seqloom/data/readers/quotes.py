"""Rows of a csv file with quotes, line by line: the rules of RFC 4180, and what is wrong where they are broken.

A field that begins with a quote ends at the next quote that is not doubled; delimiters and line ends inside belong to
it. Any other field is read as it stands, quotes included. Python's own reader is not used: its limit on the size of a
field is one for the whole process, a bare CR ends its rows, and it cannot say where a quote was opened.
"""

from collections.abc import Callable
from typing import NamedTuple

from seqloom.data.opening.lines import LONGEST_LINE
from seqloom.data.problems import Ledger, Place


class Row(NamedTuple):
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

    def take(self, number: int, line: str) -> Row | None:
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
            self._require_short()
            return None
        raw = "".join(self.lines)
        return Row(self.line, raw[: len(raw) - len(line) + end], self.fields)

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
        if not line.startswith(self.delimiter, close + 1):
            self._give_up(number, line, close)
            return None
        return close + 1 + len(self.delimiter)

    def _give_up(self, number: int, line: str, close: int) -> None:
        escaped = close > 0 and line[close - 1] == "\\"
        fix = 'a quote inside quotes is written twice: ""' + (", not escaped with a backslash" if escaped else "")
        text = "text follows a closing quote"
        self.fields = []
        self.refused += 1
        self.refuse("csv.quote", text, Place(self.path, number, close + 2), fix)

    def _require_short(self) -> None:
        if self.size > LONGEST_LINE:
            self._refuse_open(f"not closed for {LONGEST_LINE >> 20} MiB")

    def finish(self) -> None:
        """Refuse a quote that is still open at the end of the file."""
        if self.is_open:
            self._refuse_open("not closed by the end of the file")

    def _refuse_open(self, how: str) -> None:
        line, column = self.starts[-1]
        text = f"a quote opened at line {line:,}, {how}"
        self.ledger.bad_file(
            "csv.quote",
            text,
            Place(self.path, line, column),
            'close it, or write a quote that is meant as "" inside quotes',
        )
