"""One file's columns and first records, asked for what a column of it is, and the words for what was found."""

from collections.abc import Sequence
from typing import Any, NoReturn

from seqloom.config.data import DataConfig
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.tables import Record
from seqloom.data.values import Content, content_of, is_number, whole_floats
from seqloom.errors import did_you_mean


class Finder:
    """One file's columns and first records, asked for the meaning of each column."""

    def __init__(
        self, config: DataConfig, columns: Sequence[str], named: bool, sample: Sequence[Record], ledger: Ledger
    ) -> None:
        self.config, self.columns, self.named, self.sample, self.ledger = config, tuple(columns), named, sample, ledger
        self.lower = {name.lower(): number for number, name in reversed(list(enumerate(columns)))}
        self.said: list[str] = []

    def first(self, names: Sequence[str]) -> int | None:
        """The first of these names that the file has."""
        return next((self.lower[name] for name in names if name in self.lower), None)

    def content(self, column: int) -> Content:
        """What the values of a column are, by the first records."""
        values = [record.values[column] for record in self.sample]
        return next((kind for value in values if (kind := content_of(value)) != "nothing"), "nothing")

    def numeric(self, column: int) -> bool:
        """Whether every cell of the first records is a number, or text that spells one."""
        return all(is_number(record.values[column]) for record in self.sample)

    def whole(self, column: int) -> bool:
        """Whether the numbers of the first records are whole, and all written as floats."""
        return whole_floats(record.values[column] for record in self.sample)

    def measured(self, column: int) -> bool:
        """Whether most cells of the first records are numbers, be it with a decimal comma; the others are then told."""
        cells = [record.values[column] for record in self.sample]
        plain = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
        return 2 * sum(map(is_number, plain)) > len(cells)

    def given(self, name: str, flag: str) -> int:
        """The column of a name that the user gave."""
        if name not in self.columns:
            near = did_you_mean(name, self.columns)
            self.refuse(f"no column '{name}'; found {self.known()}", flagged(near, flag) or f"{flag} one of these")
        return self.columns.index(name)

    def known(self) -> str:
        """The names of the columns."""
        return ", ".join(escaped(column) for column in self.columns[:20])

    def refuse(self, text: str, fix: str) -> NoReturn:
        """Stop: a column that is needed is not there."""
        path = self.sample[0].path if self.sample else self.config.train[0]
        code = "csv.column" if ".csv" in path.lower() or ".tsv" in path.lower() else "data.column"
        self.ledger.bad_file(code, text, Place(path, 1), fix)

    def names(self, columns: Sequence[int]) -> str:
        """Columns as people call them."""
        return " and ".join(f"'{escaped(self.columns[column])}'" for column in columns)


def flagged(guess: str, flag: str) -> str:
    """A guess at a name as the flag to give; nothing where there was no guess."""
    return guess.replace("did you mean '", f"did you mean {flag} '") if "did you" in guess else ""


def first_row(finder: Finder) -> str:
    return f"The first row is {shown(finder.sample[0].values)}" if finder.sample else ""


def shown(values: Sequence[Any]) -> str:
    """The first values of a row in quotes, cut short."""
    cells = [str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}..." for value in values[:6]]
    return ", ".join(f"'{escaped(cell)}'" for cell in cells)
