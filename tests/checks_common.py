"""What the tests of checks share."""

from collections.abc import Iterable, Mapping
from itertools import islice

from seqloom.data.checks.check import BLOCK_ROWS
from seqloom.data.problems import Ledger
from seqloom.data.schema import Example, Schema
from seqloom.data.survey import Checks


def check_parts(parts: Mapping[str, Iterable[Example]], schema: Schema, ledger: Ledger) -> None:
    """Run all cheap checks over the parts."""
    checks = Checks(schema)
    for part, examples in parts.items():
        rows = iter(examples)
        while block := list(islice(rows, BLOCK_ROWS)):
            checks.update(part, block)
    checks.finish(ledger)
