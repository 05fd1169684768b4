"""The data report in words, tables and pictures: whether the data is all right comes first, then what is in it."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from seqloom.data.checks.duplicates import DuplicateRows, Leak, Repeats, Twins
from seqloom.data.report.findings import DataFinding, FindingSample
from seqloom.data.report.measures import ColumnMeasure, HistogramBin
from seqloom.data.schema import TARGET_KINDS
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
    Spans,
    TableBlock,
    TableCell,
)
from seqloom.report.excerpts import excerpt, excerpt_from
from seqloom.report.figures.bars import Bars
from seqloom.report.numbers import counted, number, part_of, share

if TYPE_CHECKING:
    from seqloom.data.report.report import Batching, DataReport

VERDICTS: dict[str, tuple[Kind, str]] = {
    "refused": ("reject", "This data cannot be used as it is"),
    "warned": ("warn", "This data can be used, but some of it looks wrong"),
    "fine": ("fine", "This data can be used; nothing looks wrong"),
}
MOST_LABELS, BRIEF_LABELS = 40, 12  # on a page, in a terminal
LONGEST_LABEL, LONGEST_TEXT = 60, 240
MOST_TWINS = 2  # of a kind that are not folded away
LEAD = 24  # characters shown before the first difference of near twins


def report_document(report: "DataReport") -> Document:
    """The verdict, findings, how the data was read, labels, lengths, duplicates and batches."""
    return Document(
        excerpt(report.name, LONGEST_TEXT),
        [
            Aside(_described(report)),
            Callout(_verdict(report), VERDICTS[report.verdict][0]),
            KeyFigures(_key_figures(report)),
            Heading("Findings"),
            TableBlock(("finding", "rows", "cases"), [_finding(one) for one in report.findings]),
            *(_more_cases(one) for one in report.findings),
            Heading("Read as"),
            Bullets([excerpt(line, LONGEST_TEXT) for line in report.inferred]),
            Heading(f"{_labels_title(report)}, {len(report.labels):,} different"),
            *_labels(report),
            *(block for measure in report.measures for block in _measure(measure)),
            Heading("Duplicates"),
            *_duplicates(report.duplicates),
            Heading("Batches"),
            *([] if report.batching is None else _batches(report.batching)),
        ],
    )


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
    cases = [line for sample in finding.shown(1)[0] for line in _case(sample)]
    return [Spans(Mark(finding.severity), Code(finding.code)), finding.rows or None, Paragraphs(*cases)]


def _case(sample: FindingSample) -> list[Line]:
    place = [Code(excerpt(sample.place, LONGEST_TEXT)), " "] if sample.place else []
    return [Spans(*place, excerpt(sample.text, 2 * LONGEST_TEXT)), *([f"Fix: {sample.fix}"] if sample.fix else [])]


def _more_cases(finding: DataFinding) -> Details:
    rest = [_case(sample)[0] for sample in finding.shown(1)[1]]
    return Details(f"{len(rest)} more of {finding.code}", [Bullets(rest)])


def _labels_title(report: "DataReport") -> str:
    return f"{TARGET_KINDS[report.target].thing.capitalize()}s"


def _labels(report: "DataReport") -> list[DocumentBlock]:
    if not report.labels:
        return []
    totals = [sum(column) for column in zip(*(entry.counts for entry in report.labels), strict=True)]
    largest = max(entry.counts[0] for entry in report.labels) or 1
    rows: list[list[TableCell]] = [
        [
            _label(entry.label),
            Bar(entry.counts[0] / largest),
            *(part_of(count, total) for count, total in zip(entry.counts, totals, strict=True)),
        ]
        for entry in report.labels[:MOST_LABELS]
    ]
    heads = ["", f"share of {report.parts[0].name}", *(part.name for part in report.parts)]
    rest = [entry.counts[0] for entry in report.labels[MOST_LABELS:]]
    more = f"and {len(rest):,} rarer ones, {counted(sum(rest), 'time')} together" if rest else ""
    return [TableBlock(heads, rows, BRIEF_LABELS), Aside(more)]


def _label(label: str) -> str:
    """A label for a table; in quotation marks where its ends could not be seen."""
    return excerpt(label if label == label.strip() else f"'{label}'", LONGEST_LABEL)


def _measure(measure: ColumnMeasure) -> list[DocumentBlock]:
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
    samples = _samples(found)
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


def _samples(found: DuplicateRows) -> dict[str, list[Twins]]:
    """Samples under their titles, one of each group of equal and near texts."""
    between = [twins for leak in found.leaks for twins in leak.samples]
    kinds: dict[str, Sequence[Twins]] = {"between parts": between, "near twins": found.near, "repeated": found.exact}
    firsts: dict[int, Twins] = {}
    for twins in chain.from_iterable(kinds.values()):
        firsts.setdefault(twins.group, twins)
    return {title: [one for one in samples if firsts[one.group] is one] for title, samples in kinds.items()}


def _twins(twins: Twins) -> Quote:
    """Where twins stand, how alike they are, and their texts from shortly before the first difference."""
    alike = "the same" if twins.similarity == 1 else f"similarity {twins.similarity:.2f}"
    more = f", {twins.rows:,} rows in all" if twins.rows > 2 else ""
    place, (one, other), width = (
        f"{twins.places[0]} and {twins.places[1]}: {alike}{more}",
        twins.texts,
        LONGEST_TEXT // 2,
    )
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
