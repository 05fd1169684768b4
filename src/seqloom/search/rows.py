"""The rows of a file as texts with names.

A row is called by its id where every row has one of its own, else by its number from 1, without the header: so a name
holds in the file and in a copy of it (see `copies`). A row without text is no fault here: it has a name and stays.
"""

from pathlib import Path
from typing import Any, NamedTuple

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.inputs import InputColumns, find_columns
from seqloom.data.kinds.inputs.text import TextInput
from seqloom.data.problems import Ledger, counted
from seqloom.data.readers.files import require_state, state_of
from seqloom.data.readers.registry import format_of, read_table
from seqloom.data.roles import IDS
from seqloom.data.values import Record, Table, kind_name
from seqloom.errors import ConfigError, did_you_mean


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
            texts.append(_text(record, columns, table, ledger))
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
        return tuple(_column(name, table.columns, "--input", path) for name in asked.named)
    return find_columns(table, TextInput(), asked, path, ledger)


def id_column(table: Table, name: str | None, path: Path) -> int | None:
    """The number of the column of ids: the one that was named, or one of a usual name if there is one."""
    if name is not None:
        return _column(name, table.columns, "--id", path)
    lower = [column.lower() for column in table.columns]
    return next((lower.index(usual) for usual in IDS if usual in lower), None)


def _column(name: str, names: tuple[str, ...], flag: str, path: Path) -> int:
    if name not in names:
        raise ConfigError(f"{path}: {flag} {name}: there is no such column", fix=did_you_mean(name, names))
    return names.index(name)


def _text(record: Record, columns: tuple[int, ...], table: Table, ledger: Ledger) -> str:
    """The text of a row; none is no fault, but anything else than a text is."""
    values = [record.values[column] for column in columns]
    for column, value in zip(columns, values, strict=True):
        if value is not None and type(value) is not str:
            ledger.rows -= 1  # the reader has counted it as a good one
            place, text = table.locate(record, column), f"expected a string, got {kind_name(value)}"
            ledger.bad_row("type.text", text, place, "is this the right column?")
            return ""
    return " ".join(filter(None, ((value or "").strip() for value in values)))
