"""From records to examples: each value checked against what its column is for, by the kinds of input and target.

What is wrong with one row spoils that row only: it goes to the ledger with its place and is left out. What can be used
but not quite as it stands - a whole number that float32 rounds, a label written in two ways - is told as a warning.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from seqloom.config.data import ColumnSplit, DataConfig, FoldSplit, RandomSplit
from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import NEEDS, SPLITS, Roles
from seqloom.data.schema import Example
from seqloom.data.values import Record, Remarks, Table, Unfit, kind_name, number_of, shown
from seqloom.errors import ConfigError, did_you_mean


class MadeExample(NamedTuple):
    """An example, and the record it was made of, for what only the record knows (its part)."""

    example: Example
    record: Record


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[MadeExample]:
    """The examples of a table; rows that cannot be used are counted in the ledger and left out."""
    remarks: Remarks = []
    kind, target = roles.schema.input, roles.schema.target
    read_input, read_target = kind.reader(roles, remarks), target.reader(roles, remarks)
    for record in table.records:
        values = record.values
        try:
            given, wanted = read_input(values), read_target(values)
            if target.of_steps and (count := kind.steps(given)) != len(wanted):
                text, fix = f"{count} tokens, {len(wanted)} {target.thing}s", f"give each token one {target.thing}"
                raise Unfit(roles.target[0], target.length_code, text, fix)
        except Unfit as unfit:
            remarks.clear()
            ledger.rows -= 1  # the reader has counted it as a good one
            ledger.bad_row(unfit.code, unfit.text, table.locate(record, unfit.column), unfit.fix)
            continue
        for column, code, text, fix, times in remarks:
            ledger.warn(code, text, table.locate(record, column), fix, times)
        remarks.clear()
        name = "" if roles.id is None else str(values[roles.id])
        yield MadeExample(Example(given, wanted, name, Place(record.path, record.line)), record)


# Rows of a table as the steps of sequences: neighbouring rows that share a value belong to one sequence.
#
# run,x,y,state          vectors [3,2]             tags
# 7,0.1,0.2,rest    ──▶  [[0.1, 0.2],              rest
# 7,0.3,0.1,walk          [0.3, 0.1],              walk
# 7,0.2,0.0,walk          [0.2, 0.0]]              walk
# 8,...
#
# From here on a row is a sequence: whatever is wrong with a step spoils its sequence, and shares of bad rows are shares
# of sequences. The columns of the id, the part and the group come along; they must have one value in a sequence.

MOST_STEPS = 2**20  # of one sequence: more come of a column that does not change, and memory has an end


class Steps(NamedTuple):
    """What the columns of a table of steps are for, by their numbers."""

    key: int
    numbers: tuple[int, ...]
    target: tuple[int, ...]
    tagged: bool  # whether each step has a tag of its own
    numbered: bool  # whether each step has numbers, its own or those of all
    kept: tuple[int, ...]  # named by the user: one value in a sequence
    split: int | None  # called so: perhaps the part


def in_sequences(table: Table, config: DataConfig, ledger: Ledger) -> Table:
    """A table with a row for each sequence: its vectors, what is wanted of each step or of all, and the rest."""
    assert config.sequence is not None
    needs = NEEDS[config.task]
    if not config.input or not config.target or (len(config.target) > 1 and not needs.numbers):
        raise ConfigError("--sequence needs to know the columns", fix="give --input for each number and one --target")
    rule = config.split
    group = rule.group if isinstance(rule, RandomSplit | FoldSplit) else None
    others = dict.fromkeys([config.id or None, rule.column if isinstance(rule, ColumnSplit) else None, group])
    kept = tuple(_column(table, name) for name in others if name is not None)
    split = None  # a column that is called as one that names parts, where nothing says how to divide the rows
    if rule is None and not config.dev and not config.test:
        lower = [name.lower() for name in table.columns]
        split = next((lower.index(name) for name in SPLITS if name in lower), None)
    steps = Steps(
        _column(table, config.sequence),
        tuple(_column(table, name) for name in config.input),
        tuple(_column(table, name) for name in config.target),
        needs.each_step,
        needs.numbers,
        kept,
        split,
    )
    names = [table.columns[column] for column in (*kept, *(() if split is None else (split,)))]
    names = [", ".join(config.input), ", ".join(config.target), *names]
    return Table(tuple(names), _records(table, steps, ledger))


def _column(table: Table, name: str) -> int:
    if name not in table.columns:
        raise ConfigError(f"no column '{name}'", fix=did_you_mean(name, table.columns))
    return table.columns.index(name)


def _records(table: Table, steps: Steps, ledger: Ledger) -> Iterator[Record]:
    seen: set[str] = set()
    beside = _with_holes(table.records, ledger)
    for name, group in groupby(beside, key=lambda pair: _name(pair[0].values[steps.key])):
        rows, holes = zip(*islice(group, MOST_STEPS + 1), strict=True)
        first = rows[0]
        if len(rows) > MOST_STEPS:
            text = f"sequence {shown(name)} has more than {MOST_STEPS:,} steps"
            ledger.bad_file(
                "sequence.too_long",
                text,
                Place(first.path, first.line),
                "--sequence with a column that names sequences",
            )
        ledger.rows -= len(rows)  # the reader has counted steps
        try:
            record = _sequence(rows, steps, lost=any(holes), again=name in seen)
        except _Faulty as fault:
            row, unfit = fault.args
            ledger.bad_row(unfit.code, unfit.text, table.locate(row, unfit.column), unfit.fix)
            continue
        finally:
            seen.add(name)
        ledger.rows += 1
        yield record


def _with_holes(records: Iterator[Record], ledger: Ledger) -> Iterator[tuple[Record, bool]]:
    """Each record, and whether a row just before or behind it could not be read."""
    previous, before = None, False
    while True:
        skipped = ledger.skipped
        record = next(records, None)
        hole = ledger.skipped > skipped
        if previous is not None:
            yield previous, before or hole
        if record is None:
            return
        previous, before = record, hole


class _Faulty(Exception):  # noqa: N818  # a signal inside this module, turned into a bad row
    """A row of a sequence, and what is unfit in it."""


def _name(value: Any) -> str:
    """The name of a sequence; empty for what can be no name."""
    return str(value) if isinstance(value, str | int | float) else ""


def _sequence(rows: Sequence[Record], steps: Steps, *, lost: bool, again: bool) -> Record:
    """The row of one sequence; raises _Faulty at the first thing that is wrong with it."""
    first, key = rows[0], steps.key
    name = first.values[key]
    if not _name(name).strip():
        raise _Faulty(first, Unfit(key, "type.label", f"expected the name of a sequence, got {kind_name(name)}"))
    if again:
        text = f"sequence {shown(name)} goes on after another one"
        raise _Faulty(first, Unfit(key, "sequence.apart", text, "sort the rows by sequence"))
    if lost:
        text = f"a row in or beside sequence {shown(name)} could not be read; a step may be missing"
        raise _Faulty(first, Unfit(key, "sequence.lost", text, "correct that row"))
    vectors = np.array([[_number(row, column) for column in steps.numbers] for row in rows])
    wanted: Any  # numbers or a tag for each step, or the value that all steps have
    if steps.numbered:
        wanted = tuple(tuple(_number(row, column) for column in steps.target) for row in rows)
    elif steps.tagged:
        wanted = tuple(row.values[steps.target[0]] for row in rows)
    else:
        wanted = _shared(rows, steps.target[0], "--task tag for a target per step")
    others = [_shared(rows, column, "give each sequence one value") for column in steps.kept]
    if steps.split is not None:  # where the parts of steps differ, two of them, which is the name of no part
        others.append(", ".join(islice(dict.fromkeys(str(row.values[steps.split]) for row in rows), 2)))
    return Record((vectors, wanted, *others), first.path, first.line)


def _number(row: Record, column: int) -> float:
    try:
        return number_of(row.values[column], column)
    except Unfit as unfit:
        raise _Faulty(row, unfit) from None


def _shared(rows: Sequence[Record], column: int, fix: str) -> Any:
    """The value that all steps have; the first step with another one is at fault."""
    value = rows[0].values[column]
    for row in rows:
        other = row.values[column]
        if type(other) is not type(value) or other != value:
            text = f"a sequence has one value here, and this one has {shown(value)} and {shown(other)}"
            raise _Faulty(row, Unfit(column, "sequence.target", text, fix))
    return value
