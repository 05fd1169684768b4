"""Rows of a table as the steps of sequences: neighbouring rows that share a value belong to one sequence.

run,x,y,state          vectors [3,2]             tags
7,0.1,0.2,rest    ──▶  [[0.1, 0.2],              rest
7,0.3,0.1,walk          [0.3, 0.1],              walk
7,0.2,0.0,walk          [0.2, 0.0]]              walk
8,...
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from seqloom.config.data import DataConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import parse_number
from seqloom.data.tables import Record, Table
from seqloom.errors import ConfigError, did_you_mean

MOST_STEPS = 2**24


def in_sequences(table: Table, config: DataConfig, ledger: Ledger) -> Table:
    """A table with a row for each sequence: its vectors, and the tag of each step, or the one value of all steps."""
    assert config.sequence is not None
    if not config.input or len(config.target) != 1:
        raise ConfigError("--sequence needs to know the columns", fix="give --input for each number and one --target")
    key, *numbers = (_column(table, name) for name in (config.sequence, *config.input))
    target = _column(table, config.target[0])
    name = config.target[0]

    def records() -> Iterator[Record]:
        seen: set[object] = set()
        for value, steps in groupby(table.records, key=lambda record: record.values[key]):
            rows = list(steps)
            first = rows[0]
            if value in seen:
                text = f"sequence '{value}' goes on after another one"
                ledger.bad_row("sequence.apart", text, table.locate(first, key), "sort the rows by sequence")
                continue
            seen.add(value)
            vectors = _vectors(rows, numbers, table, ledger)
            if vectors is not None:
                tags = tuple(row.values[target] for row in rows)
                wanted = tags if config.task in (None, "tag") else _shared(tags, first, name, ledger)
                if wanted is not None:
                    yield Record((vectors, wanted), first.path, first.line)

    return Table(("vectors", "tags" if config.task in (None, "tag") else name), records())


def _column(table: Table, name: str) -> int:
    if name not in table.columns:
        raise ConfigError(f"no column '{name}'", fix=did_you_mean(name, table.columns))
    return table.columns.index(name)


def _vectors(rows: list[Record], columns: list[int], table: Table, ledger: Ledger) -> np.ndarray | None:
    """[T,D], or nothing if a cell is no number."""
    vectors = np.empty((len(rows), len(columns)), np.float32)
    for step, row in enumerate(rows):
        for place, column in enumerate(columns):
            number = parse_number(str(row.values[column]))
            if number is None:
                text = f"expected a number, got '{row.values[column]}'"
                ledger.bad_row("type.number", text, table.locate(row, column))
                return None
            vectors[step, place] = number
    return vectors


def _shared(values: tuple[object, ...], first: Record, name: str, ledger: Ledger) -> object:
    """The value that all steps have; nothing if they differ."""
    if len(set(values)) > 1:
        text = f"the steps of one sequence have {len(set(values))} values of '{name}'"
        ledger.bad_row("sequence.target", text, Place(first.path, first.line), "--task tag for a target per step")
        return None
    return values[0]
