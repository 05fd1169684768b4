"""Whether what is judged was in the training part: rows that are there exactly, and rows that nearly are.

A model that has seen the answers looks better than it is, and the one that remembers best looks best. So a comparison
counts them before it believes any score. For the dev part the test part stays shut.
"""

from collections.abc import Sequence

import msgspec

from seqloom.config.data import DataConfig, Part
from seqloom.data.checks.duplicates import DuplicateSearch
from seqloom.data.dataset import open_data, open_sealed
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import Ledger
from seqloom.data.schema import Example
from seqloom.data.survey import Survey


class LeakCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many judged rows are in the training part."""

    part: str
    rows: int
    exact: int
    near: int  # besides the exact ones, among those that were compared
    compared: int
    samples: tuple[tuple[str, str], ...] = ()  # a training row, and the judged one that is like it

    def said(self) -> str:
        """The count in words.

        >>> LeakCount(part="dev", rows=100, exact=2, near=0, compared=100).said()
        '2 of 100 dev rows are in the training part, and none nearly are'
        """
        exact = f"{self.exact:,}" if self.exact else "None"
        near = f"{self.near:,} of the {self.compared:,} that were compared" if self.near else "none"
        first, second = ("is" if count == 1 else "are" for count in (self.exact, self.near))
        return f"{exact} of {self.rows:,} {self.part} rows {first} in the training part, and {near} nearly {second}"


class _Looker:
    """Shows the training part and the judged part to the search."""

    def __init__(self, kind: InputKind, part: Part) -> None:
        self.search, self._part = DuplicateSearch(kind), part

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Look at further examples."""
        if part in ("train", self._part):
            self.search.see(part, examples)

    def finish(self, ledger: Ledger) -> None:
        """Do nothing: what was found is asked for afterwards."""


def count_leaks(data: DataConfig, part: Part) -> LeakCount | None:
    """How much of a part is in the training part; None for data without one of them."""
    ledger = Ledger(data.bad_rows)
    dataset = open_data(data, ledger) if part == "test" else open_sealed(data, ledger)
    looker = _Looker(dataset.schema.input, part)
    for _ in Survey(dataset, ledger, looker).blocks():
        pass
    for leak in looker.search.finish().leaks:
        samples = tuple(twins.texts for twins in leak.samples)
        return LeakCount(
            part=part, rows=leak.rows, exact=leak.exact, near=leak.near, compared=leak.compared, samples=samples
        )
    return None
