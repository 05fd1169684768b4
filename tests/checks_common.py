"""What the tests of checks share."""

from collections.abc import Iterable, Mapping

from seqloom.data.checks.blocks import blocks_of
from seqloom.data.survey import Checks
from seqloom.data.problems import Ledger
from seqloom.data.schema import Example, Schema


def check_parts(parts: Mapping[str, Iterable[Example]], schema: Schema, ledger: Ledger) -> None:
    """Run all cheap checks over the parts."""
    checks = Checks(schema)
    for part, examples in parts.items():
        for block in blocks_of(examples):
            checks.see(part, block)
    checks.finish(ledger)
