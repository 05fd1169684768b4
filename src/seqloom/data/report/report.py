"""The data report: is my data all right, and what is in it?

A `Reporter` sees every example once, for the checks, the search for duplicates and the counts. The report is a frozen
value, shown as its `document`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.config.data import Task
from seqloom.data.survey import Checks
from seqloom.data.checks.duplicates import DuplicateRows, DuplicateSearch
from seqloom.data.problems import Ledger
from seqloom.data.report.document import report_document
from seqloom.data.report.findings import DataFinding, gravest_first, refusals, told
from seqloom.data.report.measures import ColumnMeasure, LabelCount, Measures
from seqloom.data.schema import Example, Schema, in_order
from seqloom.errors import DataError
from seqloom.report.document import Document, Shown

FORMAT = 1  # of the plain values

Verdict = Literal["refused", "warned", "fine"]


class ReportColumns(NamedTuple):
    """The names of the columns that were read."""

    input: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


class PartReport(NamedTuple):
    """A part and how many rows it has."""

    name: str
    rows: int


class Batching(NamedTuple):
    """What the batches of the chosen size come to."""

    padding: float  # share of a batch that is padding
    fill: float  # share of the budget that a batch uses
    batches: int
    again: float  # share of the pairs in one batch that are together in the next epoch too


@dataclass(frozen=True, kw_only=True)
class DataReport(Shown):
    """What is in a set of data and what was found in it."""

    name: str
    task: Task
    input: str  # the names of the kinds
    target: str
    columns: ReportColumns
    parts: tuple[PartReport, ...]
    inferred: tuple[str, ...]
    findings: tuple[DataFinding, ...]
    skipped: int  # bad rows
    labels: tuple[LabelCount, ...]  # the most frequent first
    measures: tuple[ColumnMeasure, ...]
    duplicates: DuplicateRows
    batching: Batching | None

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def verdict(self) -> Verdict:
        """Whether the data can be used as it is."""
        found = {finding.severity for finding in self.findings}
        return "refused" if "reject" in found else "warned" if "warn" in found else "fine"

    def document(self) -> Document:
        """The verdict, findings, how the data was read, labels, lengths, duplicates and batches."""
        return report_document(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values that JSON can hold; `format` changes when what programs read does."""
        fields = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}
        return {"format": FORMAT, "verdict": self.verdict, **fields}


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _plain(entry) for key, entry in value._asdict().items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


class Reporter:
    """Sees every block of a survey once: the cheap checks, the search for repeats, and the counts."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._checks, self._search, self._measures = Checks(schema), DuplicateSearch(schema.input), Measures(schema)
        self._refused: list[DataFinding] = []
        self._duplicates = DuplicateRows((), (), (), ())

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Look at further examples of a part."""
        for one in (self._checks, self._search, self._measures):
            one.see(part, examples)

    def finish(self, ledger: Ledger) -> None:
        """Keep what a check refuses: it is told in the report and not raised. The rest stands in the ledger."""
        self._refused = refusals(self._checks.checks, ledger)
        self._duplicates = self._search.finish()
        self._duplicates.tell(ledger)

    def report(
        self,
        name: str,
        ledger: Ledger,
        *,
        columns: ReportColumns = ReportColumns(),  # noqa: B008  # an immutable value
        inferred: Sequence[str] = (),
        symbols: Mapping[str, np.ndarray] | None = None,
        batching: Batching | None = None,
    ) -> DataReport:
        """The report on all that was seen; `symbols` are the lengths of the encoded inputs of each part."""
        if not any(self._measures.rows.values()):
            raise DataError(f"{name} has no examples", fix="name a file that has rows")
        return DataReport(
            name=name,
            task=self._schema.task,
            input=self._schema.input.name,
            target=self._schema.target.name,
            columns=columns,
            parts=tuple(PartReport(part, rows) for part, rows in in_order(self._measures.rows).items()),
            inferred=tuple(inferred),
            findings=gravest_first([*self._refused, *told(ledger)]),
            skipped=ledger.skipped,
            labels=self._measures.label_counts(),
            measures=self._measures.finish(symbols or {}),
            duplicates=self._duplicates,
            batching=batching,
        )
