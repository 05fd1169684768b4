"""From records to examples: each value checked against what its column is for, by the kinds of input and target.

What is wrong with one row spoils that row only: it goes to the ledger with its place and is left out. What can be used
but not quite as it stands - a whole number that float32 rounds, a label written in two ways - is told as a warning.
"""

from collections.abc import Iterator
from typing import NamedTuple

from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import Roles
from seqloom.data.schema import Example
from seqloom.data.values import Record, Remarks, Table, Unfit


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
