"""The data report: can this data be used, and what is in it?

A `Reporter` reads every example once, for the checks, the search for duplicates and the counts. The report is a frozen
value. Its `document` begins with the verdict and the findings; the contents follow.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.config.data import Task
from seqloom.data.checks.check import DataFinding, FindingSample, findings_in, refusal
from seqloom.data.checks.duplicates import DuplicatePair, DuplicateRows, DuplicateSearch, Leak, Repeats
from seqloom.data.problems import Ledger
from seqloom.data.schema import TARGET_KINDS, Example, Schema, in_order
from seqloom.data.survey import Checks
from seqloom.errors import WORDED, DataError
from seqloom.report.document import (
    Aside,
    Bar,
    Bullets,
    Callout,
    Code,
    CodeBlock,
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
    """Statistics of one split."""

    split: str
    min: float
    median: float
    mean: float
    p95: float  # the 95th percentile
    max: float


class HistogramBin(NamedTuple):
    """A bin of a histogram: one value, or a range from `low` to `high`. For integers `high` is inclusive."""

    low: float
    high: float | None  # None: no upper end


class Distribution(NamedTuple):
    """The distribution of a length or a target value: statistics and a histogram for each split."""

    name: str
    integers: bool  # all values are integers
    summaries: tuple[NumberSummary, ...]
    bins: tuple[HistogramBin, ...]
    counts: tuple[tuple[int, ...], ...]  # [split][bin]


class LabelCount(NamedTuple):
    """A label and its count in each split, in the order of the report's `splits`."""

    label: str
    counts: tuple[int, ...]


class Distributions:
    """Collects the distributions of all splits, block by block; it keeps four bytes per row and distribution."""

    def __init__(self, schema: Schema) -> None:
        self.rows: Counter[str] = Counter()
        self._schema = schema
        self._labels: dict[str, Counter[str]] = {}
        self._values: dict[str, dict[str, list[np.ndarray]]] = {}  # by name and split

    def update(self, split: str, examples: Sequence[Example]) -> None:
        """Count and measure more examples of a split."""
        self.rows[split] += len(examples)
        kind, target = self._schema.input, self._schema.target
        targets = [example.target for example in examples]
        found = kind.measure([example.input for example in examples]) | target.measure(targets)
        for name, values in found.items():
            self._values.setdefault(name, {}).setdefault(split, []).append(values)
        if target.has_labels:
            self._labels.setdefault(split, Counter()).update(chain.from_iterable(map(target.labels, targets)))

    def label_counts(self) -> tuple[LabelCount, ...]:
        """All labels, the most frequent in the first split first."""
        by_split = in_order(self._labels)
        labels = dict.fromkeys(chain.from_iterable(by_split.values()))
        counts = [LabelCount(label, tuple(of[label] for of in by_split.values())) for label in labels]
        return tuple(sorted(counts, key=lambda entry: tuple(-count for count in entry.counts)))

    def finish(self, tokens: Mapping[str, np.ndarray]) -> tuple[Distribution, ...]:
        """All distributions; `tokens` are the lengths of the encoded inputs of each split."""
        values = {
            name: {split: np.concatenate(some) for split, some in of.items()} for name, of in self._values.items()
        }
        if tokens:
            values["tokens per input"] = dict(tokens)
        known = {
            name: in_order({split: some for split, some in of.items() if len(some)}) for name, of in values.items()
        }
        return tuple(_distribution(name, of) for name, of in known.items() if of)


def _distribution(name: str, splits: Mapping[str, np.ndarray]) -> Distribution:
    summaries = tuple(
        NumberSummary(split, *(one.item() for one in (values.min(), middle, values.mean(), most, values.max())))
        for split, values in splits.items()
        for middle, most in [np.quantile(values, [0.5, 0.95])]
    )
    every = np.concatenate(list(splits.values()))
    whole = bool(np.all(every == np.round(every)))
    alone = _values_alone(every, whole)
    bins = tuple(HistogramBin(value, value) for value in alone) if alone else _ranges(every, whole)
    edges = [*(one.low for one in bins), np.inf]
    counts = tuple(tuple(np.histogram(values, edges)[0].tolist()) for values in splits.values())
    return Distribution(name, whole, summaries, bins, counts)


def _values_alone(values: np.ndarray, whole: bool) -> list[float]:
    """Values that get a bin each: a few frequent values, or a few neighboring integers. Empty: use ranges instead."""
    different = np.unique(values).astype(float)
    if whole and different[-1] - different[0] < MOST_BINS:
        different = np.arange(different[0], different[-1] + 1)  # with those that do not occur in between
    elif len(different) > max(1, min(MOST_BINS, len(values) // 2)):
        return []
    return list(map(float, different))


def _ranges(values: np.ndarray, whole: bool) -> tuple[HistogramBin, ...]:
    """Bins between round numbers. The first begins at the smallest value, and the last may have no end.

    The tails do not count, so that an outlier does not leave empty bins.
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
    "errors": ("reject", "This data cannot be used as it is"),
    "warnings": ("warn", "This data can be used, but check it first"),
    "ok": ("fine", "This data can be used; no problems found"),
}
MOST_LABELS, BRIEF_LABELS = 40, 12  # on a page, in a terminal
LONGEST_LABEL, LONGEST_TEXT = 60, 240
MOST_PAIRS = 2  # of a kind that are shown unfolded
CLEAN = "seqloom data clean"
LEAD = 24  # characters shown before the first difference of near duplicates


def _described(report: "DataReport") -> str:
    """The task, the input and the target, with the names of their columns."""
    sides = [
        f"{kind} from '{', '.join(names)}'" if names else kind
        for kind, names in ((report.input, report.columns.input), (report.target, report.columns.target))
    ]
    return f"{report.task}: {' → '.join(sides)}"


def _verdict(report: "DataReport") -> str:
    """The verdict and its reasons in one sentence."""
    kinds = [finding.severity for finding in report.findings]
    reasons = [counted(kinds.count("reject"), "error")] if "reject" in kinds else []
    reasons += [counted(kinds.count("warn"), "kind of warning", "kinds of warnings")] if "warn" in kinds else []
    if report.skipped:
        reasons.append(f"{counted(report.skipped, 'bad row')} left out of {report.rows + report.skipped:,}")
    return VERDICTS[report.verdict][1] + (f": {', '.join(reasons)}" if reasons else "")


def _key_figures(report: "DataReport") -> list[tuple[str | float, str]]:
    found, first = report.duplicates, report.splits[0].name
    figures: list[tuple[str | float, str]] = [
        (split.rows, f"{'row' if split.rows == 1 else 'rows'} in {split.name}") for split in report.splits
    ]
    if report.labels:
        title, count = _labels_title(report).lower(), len(report.labels)
        figures.append((count, title.removesuffix("s") if count == 1 else title))
    figures += [(one.summaries[0].median, f"{one.name} (median)") for one in report.distributions[:1]]
    figures.append((share(sum(one.exact for one in found.within), report.rows), "duplicate rows"))
    for leak in found.between:
        if leak.first == first:
            nearly = f"; {share(leak.near, leak.compared)} nearly" if leak.near else ""
            figures.append((share(leak.exact, leak.rows), f"of {leak.second} is also in {leak.first}{nearly}"))
    return figures


def _finding(finding: DataFinding, commands: Sequence[str]) -> list[TableCell]:
    cases = [
        line for sample in finding.shown()[0] for line in _case(sample._replace(fix=_brief_fix(sample.fix, commands)))
    ]
    return [Spans(Mark(finding.severity), Code(finding.code)), finding.rows or None, Paragraphs(*cases)]


def _brief_fix(fix: str, commands: Sequence[str]) -> str:
    """The fix, with a reference to the commands that are shown below the findings.

    >>> _brief_fix("add some, or clean a copy: `seqloom data clean a.csv --rare 2`", ["seqloom data clean a.csv"])
    'add some, or clean a copy: `seqloom data clean` (see Next) with --rare 2 added'
    """
    for command in (one for one in commands if one.startswith(CLEAN)):
        fix = fix.replace(f"`{command}`", f"`{CLEAN}` (see Next)")
        fix = re.sub(f"`{re.escape(command)} (.*?)`", rf"`{CLEAN}` (see Next) with \1 added", fix)
    return fix


def _case(sample: FindingSample) -> list[Line]:
    place = [Code(excerpt(sample.place, LONGEST_TEXT)), " "] if sample.place else []
    return [Spans(*place, excerpt(sample.text, 2 * LONGEST_TEXT)), *([f"Fix: {sample.fix}"] if sample.fix else [])]


def _more_cases(finding: DataFinding) -> Details:
    rest = [_case(sample)[0] for sample in finding.shown()[1]]
    return Details(f"{counted(len(rest), 'more case', 'more cases')} of {finding.code}", [Bullets(rest)])


def _labels_title(report: "DataReport") -> str:
    return f"{TARGET_KINDS[report.target].noun.capitalize()}s"


def _labels(report: "DataReport") -> list[DocumentBlock]:
    if not report.labels:
        return []
    totals = [sum(column) for column in zip(*(entry.counts for entry in report.labels), strict=True)]
    largest = max(entry.counts[0] for entry in report.labels) or 1
    # A label that begins or ends with a space is shown in quotation marks.
    rows: list[list[TableCell]] = [
        [
            excerpt(entry.label if entry.label == entry.label.strip() else f"'{entry.label}'", LONGEST_LABEL),
            Bar(entry.counts[0] / largest),
            *(part_of(count, total) for count, total in zip(entry.counts, totals, strict=True)),
        ]
        for entry in report.labels[:MOST_LABELS]
    ]
    heads = ["", f"share of {report.splits[0].name}", *(split.name for split in report.splits)]
    rest = [entry.counts[0] for entry in report.labels[MOST_LABELS:]]
    more = f"and {len(rest):,} rarer ones, {counted(sum(rest), 'occurrence')} in total" if rest else ""
    return [TableBlock(heads, rows, BRIEF_LABELS), Aside(more)]


def _distribution_blocks(found: Distribution) -> list[DocumentBlock]:
    rows: list[list[TableCell]] = [[excerpt(one.split, LONGEST_LABEL), *one[1:]] for one in found.summaries]
    counts, split = found.counts[0], found.summaries[0].split
    shares = [round(100 * count / max(1, sum(counts)), 2) for count in counts]
    bars = Bars(title="", labels=bin_names(found), values=shares, x_label=f"% of the rows in {split}")
    return [
        Heading(found.name[0].upper() + found.name[1:]),
        TableBlock(("", "min", "median", "mean", "95 %", "max"), rows),
        Pictures([bars]),
    ]


def bin_names(found: Distribution) -> list[str]:
    """The names of the bins of a histogram: '3', '0–9', '-1 to 0', '20 and more'."""
    return [_bin_name(one, found.integers) for one in found.bins]


def _bin_name(one: HistogramBin, whole: bool) -> str:
    if one.high is None:
        return f"{number(one.low)} and more"
    if one.low == one.high:
        return number(one.low)
    return f"{number(one.low)}{'–' if whole and one.low >= 0 else ' to '}{number(one.high)}"


COUNTED = (
    "Exact duplicates are the same up to case, white space and Unicode form. `seqloom data clean` removes those with "
    "the same target from a copy of a csv, tsv, jsonl or conll file."
)


def _duplicates(found: DuplicateRows) -> list[DocumentBlock]:
    """The counts of duplicates within and between splits, and samples of them; most samples are folded."""
    named: list[tuple[str, Repeats | Leak]] = [(one.split, one) for one in found.within]
    named += [(f"{one.second} in {one.first}", one) for one in found.between]
    rows: list[list[TableCell]] = [
        [where, one.rows, part_of(one.exact, one.rows), part_of(one.near, one.compared)] for where, one in named
    ]
    sampled = [
        f"{one.compared:,} of {one.rows:,} rows in {one.split}" for one in found.within if one.compared < one.rows
    ]
    between = [pair for leak in found.between for pair in leak.samples]
    kinds: dict[str, Sequence[DuplicatePair]] = {
        "between splits": between,
        "near duplicates": found.near,
        "exact duplicates": found.exact,
    }
    firsts: dict[int, DuplicatePair] = {}  # one of each group of equal and near texts is shown
    for pair in chain.from_iterable(kinds.values()):
        firsts.setdefault(pair.group, pair)
    samples = {title: [one for one in pairs if firsts[one.group] is one] for title, pairs in kinds.items()}
    seen = {"between splits": MOST_PAIRS, "near duplicates": MOST_PAIRS, "exact duplicates": 0}
    return [
        TableBlock(("", "rows", "exact duplicates", "near duplicates"), rows),
        Aside(COUNTED if any(one.exact for _, one in named) else ""),
        Aside(f"Near duplicates were searched in a sample: {', '.join(sampled)}." if sampled else ""),
        *(_pair(one) for name, several in samples.items() for one in several[: seen[name]]),
        *(
            Details(f"samples: {name}", [_pair(one) for one in several[seen[name] :]])
            for name, several in samples.items()
        ),
    ]


def _pair(pair: DuplicatePair) -> Quote:
    """The places of two duplicates, their similarity, and their texts from shortly before the first difference."""
    alike = "identical" if pair.similarity == 1 else f"similarity {pair.similarity:.2f}"
    more = f", {pair.rows:,} rows in the group" if pair.rows > 2 else ""
    place, width = f"{pair.places[0]} and {pair.places[1]}: {alike}{more}", LONGEST_TEXT // 2
    one, other = pair.texts
    if pair.similarity == 1:
        return Quote([place, excerpt(one, width)])
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - LEAD) if max(len(one), len(other)) > width else 0
    return Quote([place, *(excerpt_from(text, start, width) for text in (one, other))])


def _batches(batching: "Batching") -> list[DocumentBlock]:
    padding, fill, batches, repeated = batching
    mixed = f"Of the rows in one batch, {share(repeated)} are in one batch again in the next epoch."
    return [
        Paragraph(f"{counted(batches, 'batch', 'batches')} per epoch, {share(fill)} full, {share(padding)} padding."),
        Paragraph("All rows are in one batch, so an epoch is one step." if batches == 1 else mixed),
    ]


FORMAT = 2  # of the JSON
GRAVEST_FIRST = ("reject", "warn", "note")

Verdict = Literal["errors", "warnings", "ok"]


class ReportColumns(NamedTuple):
    """The names of the input and target columns."""

    input: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


class SplitReport(NamedTuple):
    """A split and its number of rows."""

    name: str
    rows: int


class Batching(NamedTuple):
    """How well the batches of the chosen size are filled and mixed."""

    padding: float  # share of a batch that is padding
    fill: float  # share of `batch_tokens` that a batch uses
    batches: int  # per epoch
    repeated_pairs: float  # share of the row pairs in one batch that are in one batch again in the next epoch


@dataclass(frozen=True, kw_only=True)
class DataReport(Shown):
    """What a dataset contains, and the problems found in it.

    `verdict` says whether it can be used, `findings` are the problems. `text()`, `html()` and `to_json()` show the
    report.
    """

    name: str
    task: Task
    input: str  # the names of the kinds
    target: str
    columns: ReportColumns
    splits: tuple[SplitReport, ...]
    inferred: tuple[str, ...]  # task, columns and split, as far as they were not given
    findings: tuple[DataFinding, ...]
    skipped: int  # bad rows; the report describes the others
    labels: tuple[LabelCount, ...]  # the most frequent first
    distributions: tuple[Distribution, ...]
    duplicates: DuplicateRows
    batching: Batching | None
    too_many: str = ""  # that more rows are bad than may be skipped
    problems: tuple[Mapping[str, object], ...] = ()  # the first bad rows, if there are more than allowed
    next: tuple[str, ...] = ()  # the commands to run next, in the shell

    def __repr__(self) -> str:
        found = "".join(f"\n  {one.code}: {counted(one.rows, 'row')}" for one in self.findings)
        return f"DataReport({excerpt(self.name, LONGEST_TEXT)})\n  {_verdict(self)}{found}"

    @property
    def rows(self) -> int:
        """The number of rows of all splits."""
        return sum(split.rows for split in self.splits)

    @property
    def verdict(self) -> Verdict:
        """`errors` if the data cannot be used as it is, `warnings` if some of it looks wrong, else `ok`."""
        found = {finding.severity for finding in self.findings}
        return "errors" if "reject" in found else "warnings" if "warn" in found else "ok"

    def reworded(self, words: Callable[[str], str]) -> "DataReport":
        """The same for other readers: what the shell calls --delimiter is delimiter in Python."""

        def sample(one: FindingSample) -> FindingSample:
            return one._replace(text=words(one.text), fix=words(one.fix))

        findings = (one._replace(samples=tuple(map(sample, one.samples))) for one in self.findings)
        problems = (one | {name: words(str(one[name])) for name in WORDED} for one in map(dict, self.problems))
        return replace(
            self,
            findings=tuple(findings),
            inferred=tuple(map(words, self.inferred)),
            too_many=words(self.too_many),
            problems=tuple(problems),
        )

    def document(self) -> Document:
        """The verdict, findings, inferred settings, labels, lengths, duplicates and batches, ready to be shown."""
        return Document(
            excerpt(self.name, LONGEST_TEXT),
            [
                Aside(_described(self)),
                Callout(_verdict(self), VERDICTS[self.verdict][0]),
                Paragraph(self.too_many),
                KeyFigures(_key_figures(self)),
                Heading("Findings"),
                TableBlock(("finding", "rows", "cases"), [_finding(one, self.next) for one in self.findings]),
                *(_more_cases(one) for one in self.findings),
                Heading("Inferred"),
                Bullets([excerpt(line, LONGEST_TEXT) for line in self.inferred]),
                Heading(f"{_labels_title(self)} ({len(self.labels):,})"),
                *_labels(self),
                *(block for found in self.distributions for block in _distribution_blocks(found)),
                Heading("Duplicates"),
                *_duplicates(self.duplicates),
                Heading("Batches"),
                *([] if self.batching is None else _batches(self.batching)),
                Heading("Next"),
                CodeBlock("\n".join(self.next), "sh"),
            ],
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values for JSON. `format` increases when the meaning of a key changes."""
        fields = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}
        refused = {"problems": fields.pop("problems"), "total": self.skipped}  # as where nothing can be reported
        return {"format": FORMAT, "verdict": self.verdict, **fields, **(refused if self.problems else {})}


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _plain(entry) for key, entry in value._asdict().items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


class Reporter:
    """Collects a report from the blocks of a survey: the checks, the search for duplicates, and the counts."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._checks, self._search = Checks(schema), DuplicateSearch(schema.input)
        self._distributions = Distributions(schema)
        self._refused: list[DataFinding] = []
        self._duplicates = DuplicateRows((), (), (), ())

    def update(self, split: str, examples: Sequence[Example]) -> None:
        """Add more examples of a split."""
        for one in (self._checks, self._search, self._distributions):
            one.update(split, examples)

    def finish(self, ledger: Ledger) -> None:
        """Finish the checks. Errors that a check would raise become findings of the report."""
        self._refused = [found for check in self._checks.checks if (found := refusal(check, ledger))]
        self._duplicates = self._search.finish()
        self._duplicates.warn(ledger)

    def report(
        self,
        name: str,
        ledger: Ledger,
        *,
        columns: ReportColumns = ReportColumns(),  # noqa: B008  # an immutable value
        inferred: Sequence[str] = (),
        tokens: Mapping[str, np.ndarray] | None = None,
        batching: Batching | None = None,
    ) -> DataReport:
        """Return the report on all examples; `tokens` are the lengths of the encoded inputs of each split."""
        if not any(self._distributions.rows.values()):
            raise DataError(f"{name} has no examples", fix="give a file that has rows")
        return DataReport(
            name=name,
            task=self._schema.task,
            input=self._schema.input.name,
            target=self._schema.target.name,
            columns=columns,
            splits=tuple(SplitReport(name, rows) for name, rows in in_order(self._distributions.rows).items()),
            inferred=tuple(inferred),
            findings=tuple(
                sorted([*self._refused, *findings_in(ledger)], key=lambda one: GRAVEST_FIRST.index(one.severity))
            ),
            skipped=ledger.skipped,
            too_many="" if ledger.accepts else ledger.too_many(),
            problems=() if ledger.accepts else tuple(one.data() for one in ledger.refused),
            labels=self._distributions.label_counts(),
            distributions=self._distributions.finish(tokens or {}),
            duplicates=self._duplicates,
            batching=batching,
        )
