"""The pace of training out of a journal that also has the pace at validations.

    events   begun  S10  S20 V20  V25  S30 | begun  S30  S40      S: a report of steps, V: a validation; | a kill
    paces            10   20                         30   40

Both are lines of the kind "pace". A validation's is of the few steps since the report before it, often of none, which
would draw a pace of 0. Of two lines for a step in one start the first is of the steps; and of steps that were taken
again, after a kill, the last time counts.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from seqloom.training.pages.lines import PaceLine, typed


def paces_of_steps(records: Iterable[dict[str, Any]], reported: Collection[int], path: Path) -> tuple[PaceLine, ...]:
    """The pace at each of the reported steps that the events know, in order."""
    found: dict[int, PaceLine] = {}
    before: int | None = None  # the step of the pace before this one, in the same start
    for record in records:
        if record.get("kind") == "begun":
            before = None
        elif record.get("kind") == "pace":
            pace = typed(record, PaceLine, path)
            if pace.step in reported and pace.step != before:
                found[pace.step] = pace
            before = pace.step
    return tuple(found[step] for step in sorted(found))
