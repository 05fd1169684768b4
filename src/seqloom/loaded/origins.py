"""Where judged examples came from: the original input of a row, and what other columns say about it.

Prepared data keeps numbers only, and the place of each row. So whoever wants the text of an error, or a column that the
model never reads, has the file read once more, and finds the row by its place.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.dataset import Dataset, FileSet
from seqloom.data.encoding import UNSEEN
from seqloom.data.examples import Example
from seqloom.data.preparing import Prepared
from seqloom.data.problems import BadRows, Ledger, escaped
from seqloom.data.readers import read_table
from seqloom.data.schema import Part
from seqloom.errors import ConfigError, did_you_mean
from seqloom.tasks.judging import Unseen

LENGTH = "length"  # of the input: a column that every data set has
NAMED = ("label", "labels", "tags")  # targets that are names

Where = tuple[str, int | None]  # the file and the line of a row


class Origin(NamedTuple):
    """Prepared data with the data set that it was made of."""

    dataset: Dataset
    prepared: Prepared
    part: Part  # of the data set: the one that is looked at
    said: tuple[str, ...] = ()  # how it was found and read, where that is to be known

    def values(self, column: str, rows: Sequence[int]) -> list[Any]:
        """What a column says of some rows, in their order; ConfigError for one that the data does not have."""
        if not isinstance(self.dataset, FileSet):
            return self._own(column, rows, ())
        places = [self._where(row) for row in rows]
        found: dict[Where, Any] = {}
        for paths in self.dataset.files().values():
            table = read_table(paths, self.dataset.config.reading, _forgiving())
            if column not in table.columns:
                return self._own(column, rows, table.columns)
            at, wanted = table.columns.index(column), set(places)
            for record in table.records:
                if (record.path, record.line) in wanted:
                    found[record.path, record.line] = record.values[at]
        return [found.get(place) for place in places]

    def _own(self, column: str, rows: Sequence[int], others: Collection[str]) -> list[Any]:
        """The length of each input, in words or steps or symbols; any other name is refused."""
        if column == LENGTH:
            columns = self.prepared.columns
            lengths = columns.get("firsts", columns["input"]).lengths
            return [int(lengths[row]) for row in rows]
        known = [LENGTH, *map(escaped, others)]
        raise ConfigError(f"--by {column}: the data has no such column", fix=did_you_mean(column, known))

    def examples(self, rows: Collection[int]) -> dict[int, Example]:
        """The examples of some rows as they were read, by their rows."""
        wanted = {self._where(row): row for row in rows}
        found: dict[int, Example] = {}
        for part, example in self.dataset.rows(_forgiving()):
            row = wanted.get((example.place.path, example.place.line))
            if part == self.part and row is not None:
                found[row] = example
        return found

    def unseen(self, rows: np.ndarray) -> Unseen:
        """The labels of these rows that training never saw."""
        schema = self.prepared.schema
        if schema.target not in NAMED:
            return Unseen()
        target = self.prepared.columns["target"]
        bad = [int(row) for row in rows if (target.row(int(row)) == UNSEEN).any()]
        known, counts = set(schema.labels), Counter[str]()
        for example in self.examples(bad).values() if bad else ():
            said = (example.target,) if isinstance(example.target, str) else example.target or ()
            counts.update(str(label) for label in said if label not in known)
        return Unseen(len(bad), tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))

    def _where(self, row: int) -> Where:
        path, line, _ = self.prepared.place_of(row)
        return path, line


def _forgiving() -> Ledger:
    """A ledger for a second reading: what was bad has been told by the first."""
    return Ledger(BadRows(skip=True, share=1.0))
