"""Checks of examples: what looks wrong in labels, characters, pairs and repeats, found in one cheap reading.

    for part, examples in parts:                 labels      spelling, rare, unseen, too many or too few
        for block in blocks_of(examples):        repeats     ids twice, one input with two labels, leaks
            checks.see(part, block)              characters  bidi controls, invisible and odd ones
    checks.finish(ledger)                        pairs       parallel text: shifted, copied, out of proportion

Every check is fed blocks and holds a few bytes a row, so a file larger than memory can be checked. What is found goes
into the ledger: one kind of finding is one code with a count of rows and its first samples.
"""

from typing import Protocol

from seqloom.data.checks.blocks import ExampleBlock
from seqloom.data.problems import Ledger


class Check(Protocol):
    """Something that sees every block of every part, and says at the end what it found."""

    def see(self, block: ExampleBlock) -> None:
        """Look at further examples."""

    def finish(self, ledger: Ledger) -> None:
        """Write all findings; raise RejectedError where the data cannot be used."""
