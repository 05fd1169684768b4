"""The data report: is my data all right, and what is in it?

A `Reporter` sees every example once, for the checks, the search for duplicates and the counts. The report is a frozen
value, shown as its `document`: whether the data is all right comes first, then what is in it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.config.data import Task
from seqloom.data.checks.check import DataFinding, FindingSample, refusal, told
from seqloom.data.checks.duplicates import DuplicateRows, DuplicateSearch, Leak, Repeats, Twins
from seqloom.data.problems import Ledger
from seqloom.data.schema import TARGET_KINDS, Example, Schema, in_order
from seqloom.data.survey import Checks
from seqloom.errors import DataError
from seqloom.report.document import (
    Aside,
    Bar,
    Bullets,
    Callout,
    Code,
    Details,
    Document,
    DocumentBlock,
    Heading,
    KeyFigures,
    Kind,
    Line,
    Mark,
    Paragraph,
    Paragraphs,
    Pictures,
    Quote,
    Shown,
    Spans,
    TableBlock,
    TableCell,
)
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.frame import linear_axis
from seqloom.report.labels import excerpt, excerpt_from
from seqloom.report.numbers import counted, number, part_of, share

MOST_BINS = 12
TAIL = 0.99  # the first and the last bin of a histogram also hold what is beyond this quantile on either side


class NumberSummary(NamedTuple):
    """Five numbers about a part."""

    part: str
    least: float
    median: float
    mean: float
    p95: float  # 95 % are at most so much
    most: float


class HistogramBin(NamedTuple):
    """A bin of a histogram: one value, or all from `low` to `high`; of whole numbers `high` is the last one in it."""

    low: float
    high: float | None  # None where it has no end


class ColumnMeasure(NamedTuple):
    """A length or value: its summary and its histogram for each part."""

    name: str
    whole: bool  # all values are whole numbers
    summaries: tuple[NumberSummary, ...]
    bins: tuple[HistogramBin, ...]
    counts: tuple[tuple[int, ...], ...]  # of each part, of each bin


class LabelCount(NamedTuple):
    """A label and how often it occurs in each part, in the order of the parts."""

    label: str
    counts: tuple[int, ...]


class Measures:
    """Is fed all parts block by block; four bytes a row and measure are kept."""

    def __init__(self, schema: Schema) -> None:
        self.rows: Counter[str] = Counter()
        self._schema = schema
        self._labels: dict[str, Counter[str]] = {}
        self._values: dict[str, dict[str, list[np.ndarray]]] = {}  # by measure and part

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Count and measure further examples."""
        self.rows[part] += len(examples)
        kind, target = self._schema.input, self._schema.target
        targets = [example.target for example in examples]
        found = kind.measure([example.input for example in examples]) | target.measure(targets)
        for name, values in found.items():
            self._values.setdefault(name, {}).setdefault(part, []).append(values)
        if target.has_labels:
            self._labels.setdefault(part, Counter()).update(chain.from_iterable(map(target.labels, targets)))

    def label_counts(self) -> tuple[LabelCount, ...]:
        """All labels, those most frequent in the first part first."""
        by_part = in_order(self._labels)
        labels = dict.fromkeys(chain.from_iterable(by_part.values()))
        counts = [LabelCount(label, tuple(of[label] for of in by_part.values())) for label in labels]
        return tuple(sorted(counts, key=lambda entry: tuple(-count for count in entry.counts)))

    def finish(self, symbols: Mapping[str, np.ndarray]) -> tuple[ColumnMeasure, ...]:
        """All measures; with the lengths of the encoded inputs, those too."""
        values = {name: {part: np.concatenate(some) for part, some in of.items()} for name, of in self._values.items()}
        if symbols:
            values["symbols of an input"] = dict(symbols)
        known = {name: in_order({part: some for part, some in of.items() if len(some)}) for name, of in values.items()}
        return tuple(_measure(name, of) for name, of in known.items() if of)


def _measure(name: str, parts: Mapping[str, np.ndarray]) -> ColumnMeasure:
    summaries = tuple(
        NumberSummary(part, *(one.item() for one in (values.min(), middle, values.mean(), most, values.max())))
        for part, values in parts.items()
        for middle, most in [np.quantile(values, [0.5, 0.95])]
    )
    every = np.concatenate(list(parts.values()))
    whole = bool(np.all(every == np.round(every)))
    alone = _values_alone(every, whole)
    bins = tuple(HistogramBin(value, value) for value in alone) if alone else _ranges(every, whole)
    edges = [*(one.low for one in bins), np.inf]
    counts = tuple(tuple(np.histogram(values, edges)[0].tolist()) for values in parts.values())
    return ColumnMeasure(name, whole, summaries, bins, counts)


def _values_alone(values: np.ndarray, whole: bool) -> list[float]:
    """Values that have a bin each: a few that come again and again, or a few neighbouring whole numbers; else none."""
    different = np.unique(values).astype(float)
    if whole and different[-1] - different[0] < MOST_BINS:
        different = np.arange(different[0], different[-1] + 1)  # with those that do not occur in between
    elif len(different) > max(1, min(MOST_BINS, len(values) // 2)):
        return []
    return list(map(float, different))


def _ranges(values: np.ndarray, whole: bool) -> tuple[HistogramBin, ...]:
    """Bins between round numbers: the first begins at the least value, and the last may have no end.

    The numbers stand around all but the tails, so that a stray value leaves no empty bins before the others.
    """
    low, high = np.quantile(values, [1 - TAIL, TAIL]).tolist()
    ticks = linear_axis(low, high, count=MOST_BINS - 1, least_step=1.0 if whole else 0.0).ticks
    least, most = float(values.min()), float(values.max())
    lows = [least, *(tick for tick in ticks[:-1] if tick > least)]
    highs = [*lows[1:], None if most >= ticks[-1] else ticks[-1]]
    return tuple(
        HistogramBin(low, high - 1 if whole and high is not None else high)
        for low, high in zip(lows, highs, strict=True)
    )


VERDICTS: dict[str, tuple[Kind, str]] = {
    "refused": ("reject", "This data cannot be used as it is"),
    "warned": ("warn", "This data can be used, but some of it looks wrong"),
    "fine": ("fine", "This data can be used; nothing looks wrong"),
}
MOST_LABELS, BRIEF_LABELS = 40, 12  # on a page, in a terminal
LONGEST_LABEL, LONGEST_TEXT = 60, 240
MOST_TWINS = 2  # of a kind that are not folded away
LEAD = 24  # characters shown before the first difference of near twins


def _described(report: "DataReport") -> str:
    """The task, what is read and what is learnt, with the names of the columns where they are known."""
    sides = [
        f"{kind} from '{', '.join(names)}'" if names else kind
        for kind, names in ((report.input, report.columns.input), (report.target, report.columns.target))
    ]
    return f"{report.task}: {' → '.join(sides)}"


def _verdict(report: "DataReport") -> str:
    """The verdict and its reasons in one sentence."""
    kinds = [finding.severity for finding in report.findings]
    said = [f"{kinds.count('reject')} to mend"] if "reject" in kinds else []
    said += [counted(kinds.count("warn"), "kind of warning", "kinds of warnings")] if "warn" in kinds else []
    said += [counted(report.skipped, "bad row") + " left out"] if report.skipped else []
    return VERDICTS[report.verdict][1] + (f": {', '.join(said)}" if said else "")


def _key_figures(report: "DataReport") -> list[tuple[str | float, str]]:
    found, first = report.duplicates, report.parts[0].name
    figures: list[tuple[str | float, str]] = [
        (part.rows, f"{'row' if part.rows == 1 else 'rows'} of {part.name}") for part in report.parts
    ]
    if report.labels:
        title, count = _labels_title(report).lower(), len(report.labels)
        figures.append((count, f"different {title.removesuffix('s') if count == 1 else title}"))
    figures += [(one.summaries[0].median, f"{one.name}, median") for one in report.measures[:1]]
    figures.append((share(sum(one.exact for one in found.repeats), report.rows), "rows repeat another"))
    for leak in found.leaks:
        if leak.first == first:
            nearly = f"; {share(leak.near, leak.compared)} nearly" if leak.near else ""
            figures.append((share(leak.exact, leak.rows), f"of {leak.second} is in {leak.first} too{nearly}"))
    return figures


def _finding(finding: DataFinding) -> list[TableCell]:
    cases = [line for sample in finding.shown()[0] for line in _case(sample)]
    return [Spans(Mark(finding.severity), Code(finding.code)), finding.rows or None, Paragraphs(*cases)]


def _case(sample: FindingSample) -> list[Line]:
    place = [Code(excerpt(sample.place, LONGEST_TEXT)), " "] if sample.place else []
    return [Spans(*place, excerpt(sample.text, 2 * LONGEST_TEXT)), *([f"Fix: {sample.fix}"] if sample.fix else [])]


def _more_cases(finding: DataFinding) -> Details:
    rest = [_case(sample)[0] for sample in finding.shown()[1]]
    return Details(f"{len(rest)} more of {finding.code}", [Bullets(rest)])


def _labels_title(report: "DataReport") -> str:
    return f"{TARGET_KINDS[report.target].thing.capitalize()}s"


def _labels(report: "DataReport") -> list[DocumentBlock]:
    if not report.labels:
        return []
    totals = [sum(column) for column in zip(*(entry.counts for entry in report.labels), strict=True)]
    largest = max(entry.counts[0] for entry in report.labels) or 1
    # A label for a table; in quotation marks where its ends could not be seen.
    rows: list[list[TableCell]] = [
        [
            excerpt(entry.label if entry.label == entry.label.strip() else f"'{entry.label}'", LONGEST_LABEL),
            Bar(entry.counts[0] / largest),
            *(part_of(count, total) for count, total in zip(entry.counts, totals, strict=True)),
        ]
        for entry in report.labels[:MOST_LABELS]
    ]
    heads = ["", f"share of {report.parts[0].name}", *(part.name for part in report.parts)]
    rest = [entry.counts[0] for entry in report.labels[MOST_LABELS:]]
    more = f"and {len(rest):,} rarer ones, {counted(sum(rest), 'time')} together" if rest else ""
    return [TableBlock(heads, rows, BRIEF_LABELS), Aside(more)]


def _measure_blocks(measure: ColumnMeasure) -> list[DocumentBlock]:
    rows: list[list[TableCell]] = [[excerpt(one.part, LONGEST_LABEL), *one[1:]] for one in measure.summaries]
    counts, part = measure.counts[0], measure.summaries[0].part
    shares = [round(100 * count / max(1, sum(counts)), 2) for count in counts]
    bars = Bars(title="", labels=bin_names(measure), values=shares, x_label=f"% of the rows of {part}")
    return [
        Heading(measure.name[0].upper() + measure.name[1:]),
        TableBlock(("", "least", "median", "mean", "95 %", "most"), rows),
        Pictures([bars]),
    ]


def bin_names(measure: ColumnMeasure) -> list[str]:
    """The bins of a histogram in words: '3', '0–9', '-1 to 0', '20 and more'."""
    return [_bin_name(one, measure.whole) for one in measure.bins]


def _bin_name(one: HistogramBin, whole: bool) -> str:
    if one.high is None:
        return f"{number(one.low)} and more"
    if one.low == one.high:
        return number(one.low)
    return f"{number(one.low)}{'–' if whole and one.low >= 0 else ' to '}{number(one.high)}"


def _duplicates(found: DuplicateRows) -> list[DocumentBlock]:
    """How many rows repeat others, inside the parts and between them; some samples, the others folded away."""
    named: list[tuple[str, Repeats | Leak]] = [(one.part, one) for one in found.repeats]
    named += [(f"{one.second} in {one.first}", one) for one in found.leaks]
    rows: list[list[TableCell]] = [
        [where, one.rows, part_of(one.exact, one.rows), part_of(one.near, one.compared)] for where, one in named
    ]
    parts = [f"{one.compared:,} of {one.rows:,} rows of {one.part}" for one in found.repeats if one.compared < one.rows]
    between = [twins for leak in found.leaks for twins in leak.samples]
    kinds: dict[str, Sequence[Twins]] = {"between parts": between, "near twins": found.near, "repeated": found.exact}
    firsts: dict[int, Twins] = {}  # one of each group of equal and near texts is shown
    for twins in chain.from_iterable(kinds.values()):
        firsts.setdefault(twins.group, twins)
    samples = {title: [one for one in twins if firsts[one.group] is one] for title, twins in kinds.items()}
    seen = {"between parts": MOST_TWINS, "near twins": MOST_TWINS, "repeated": 0}
    return [
        TableBlock(("", "rows", "repeat another", "have a near twin"), rows),
        Aside(f"Near twins were looked for in a sample: {', '.join(parts)}." if parts else ""),
        *(_twins(one) for name, several in samples.items() for one in several[: seen[name]]),
        *(
            Details(f"samples: {name}", [_twins(one) for one in several[seen[name] :]])
            for name, several in samples.items()
        ),
    ]


def _twins(twins: Twins) -> Quote:
    """Where twins stand, how alike they are, and their texts from shortly before the first difference."""
    alike = "the same" if twins.similarity == 1 else f"similarity {twins.similarity:.2f}"
    more = f", {twins.rows:,} rows in all" if twins.rows > 2 else ""
    place, width = f"{twins.places[0]} and {twins.places[1]}: {alike}{more}", LONGEST_TEXT // 2
    one, other = twins.texts
    if twins.similarity == 1:
        return Quote([place, excerpt(one, width)])
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - LEAD) if max(len(one), len(other)) > width else 0
    return Quote([place, *(excerpt_from(text, start, width) for text in (one, other))])


def _batches(batching: "Batching") -> list[DocumentBlock]:
    padding, fill, batches, again = batching
    mixed = f"Of the rows that share a batch {share(again)} share one in the next epoch too; the others meet new rows."
    return [
        Paragraph(f"{counted(batches, 'batch', 'batches')} in an epoch, {share(fill)} full, {share(padding)} padding."),
        Paragraph("All rows are in one batch: an epoch is one step." if batches == 1 else mixed),
    ]


FORMAT = 1  # of the plain values
GRAVEST_FIRST = ("reject", "warn", "note")

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
        return Document(
            excerpt(self.name, LONGEST_TEXT),
            [
                Aside(_described(self)),
                Callout(_verdict(self), VERDICTS[self.verdict][0]),
                KeyFigures(_key_figures(self)),
                Heading("Findings"),
                TableBlock(("finding", "rows", "cases"), [_finding(one) for one in self.findings]),
                *(_more_cases(one) for one in self.findings),
                Heading("Read as"),
                Bullets([excerpt(line, LONGEST_TEXT) for line in self.inferred]),
                Heading(f"{_labels_title(self)}, {len(self.labels):,} different"),
                *_labels(self),
                *(block for measure in self.measures for block in _measure_blocks(measure)),
                Heading("Duplicates"),
                *_duplicates(self.duplicates),
                Heading("Batches"),
                *([] if self.batching is None else _batches(self.batching)),
            ],
        )

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
        self._refused = [found for check in self._checks.checks if (found := refusal(check, ledger))]
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
            findings=tuple(sorted([*self._refused, *told(ledger)], key=lambda one: GRAVEST_FIRST.index(one.severity))),
            skipped=ledger.skipped,
            labels=self._measures.label_counts(),
            measures=self._measures.finish(symbols or {}),
            duplicates=self._duplicates,
            batching=batching,
        )
