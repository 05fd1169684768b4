"""How the report puts things, in the terminal and on the page alike."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from seqloom.data.checks.duplicates import DuplicateRows, Leak, Repeats, Twins
from seqloom.data.report.measures import ColumnMeasure, HistogramBin
from seqloom.data.schema import TargetKind
from seqloom.report.excerpts import excerpt, excerpt_from
from seqloom.report.figures.axis import brief
from seqloom.report.figures.labels import visible

if TYPE_CHECKING:
    from seqloom.data.report.report import DataReport

VERDICTS = {  # the look, and the words
    "refused": ("reject", "This data cannot be used as it is"),
    "warned": ("warn", "This data can be used, but some of it looks wrong"),
    "fine": ("fine", "This data can be used; nothing looks wrong"),
}
LEAD = 24  # characters shown before the first difference of near twins


def verdict_said(report: "DataReport") -> str:
    """The verdict and its reasons in one sentence."""
    kinds = [finding.severity for finding in report.findings]
    said = [f"{kinds.count('reject')} to mend"] if "reject" in kinds else []
    said += [counted(kinds.count("warn"), "kind of warning", "kinds of warnings")] if "warn" in kinds else []
    said += [counted(report.skipped, "bad row", "bad rows") + " left out"] if report.skipped else []
    return VERDICTS[report.verdict][1] + (f": {', '.join(said)}" if said else "")


def counted(count: int, one: str, many: str) -> str:
    """A count and what is counted.

    >>> counted(1, "row", "rows"), counted(4500, "row", "rows")
    ('1 row', '4,500 rows')
    """
    return f"{count:,} {plural(count, one, many)}"


def plural(count: int, one: str, many: str) -> str:
    """The word for so many."""
    return one if count == 1 else many


def described(report: "DataReport") -> str:
    """The task, what is read and what is learnt, with the names of the columns where they are known."""
    sides = []
    for kind, names in ((report.input, report.columns.input), (report.target, report.columns.target)):
        sides.append(f"{kind} from '{visible(', '.join(names))}'" if names else kind)
    return f"{report.task}: {' → '.join(sides)}"


def number(value: float) -> str:
    """A number for a table: whole ones with commas, others in four digits.

    >>> number(12345.0), number(83.3412), number(12345.6)
    ('12,345', '83.34', '12,346')
    """
    return f"{value:,.0f}" if value == round(value) or 1e3 <= abs(value) < 1e15 else brief(value)


def percent(count: int, total: int) -> str:
    """A share; what is there is never nothing.

    >>> percent(1, 4500), percent(0, 7), percent(3, 4)
    ('<0.1%', '0%', '75.0%')
    """
    share = count / total if total else 0.0
    return "0%" if not count else "<0.1%" if share < 0.0005 else f"{share:.1%}"


def share(count: int, total: int) -> str:
    """A count and its share of the total."""
    return f"{count:,} ({percent(count, total)})" if count else "0"


def shares(counts: Sequence[int]) -> list[float]:
    """The counts in percent of their sum, for bars."""
    total = max(1, sum(counts))
    return [round(100 * count / total, 2) for count in counts]


def label_shown(label: str, width: int) -> str:
    """A label for a table; in quotation marks where its ends could not be seen."""
    return excerpt(label if label == label.strip() else f"'{label}'", width)


def labels_title(target: TargetKind) -> str:
    """What the classes are called."""
    return "Tags" if target == "tags" else "Labels"


def title_of(measure: ColumnMeasure) -> str:
    """The name of a measure as a heading."""
    return measure.name[0].upper() + measure.name[1:]


def bin_names(measure: ColumnMeasure) -> list[str]:
    """The bins of a histogram in words: '3', '0–9', '-1 to 0', '20 and more'."""
    return [_bin_name(one, measure.whole) for one in measure.bins]


def _bin_name(one: HistogramBin, whole: bool) -> str:
    if one.high is None:
        return f"{number(one.low)} and more"
    if one.low == one.high:
        return number(one.low)
    mark = "–" if whole and one.low >= 0 else " to "
    return f"{number(one.low)}{mark}{number(one.high)}"


def mixing_said(batches: int, again: float) -> str:
    """How well rows are mixed from epoch to epoch, `again` being the share of pairs of a batch that stay together.

    >>> mixing_said(1, 1.0), mixing_said(40, 0.031)
    ('all rows are in one batch: an epoch is one step', 'rows that share a batch: 3% of them share one in the next \
epoch too, the others meet new rows')
    """
    if batches == 1:
        return "all rows are in one batch: an epoch is one step"
    return f"rows that share a batch: {again:.0%} of them share one in the next epoch too, the others meet new rows"


class Repeated(NamedTuple):
    """A line of the table of duplicates."""

    where: str
    rows: str
    exact: str
    near: str


def repeated(found: DuplicateRows) -> list[Repeated]:
    """The lines of the table of duplicates: inside the parts, then between them."""
    inside: list[tuple[str, Repeats | Leak]] = [(one.part, one) for one in found.repeats]
    between: list[tuple[str, Repeats | Leak]] = [(f"{one.second} in {one.first}", one) for one in found.leaks]
    return [
        Repeated(where, number(one.rows), share(one.exact, one.rows), share(one.near, one.compared))
        for where, one in [*inside, *between]
    ]


def sampled_said(found: DuplicateRows) -> str:
    """Which parts were too large to compare all of their rows; '' if none was."""
    parts = [f"{one.compared:,} of {one.rows:,} rows of {one.part}" for one in found.repeats if one.compared < one.rows]
    return f"Near twins were looked for in a sample: {', '.join(parts)}." if parts else ""


def leak_said(leak: Leak) -> str:
    """How much of a part is in another one, behind the share of exact repeats."""
    nearly = f"; {percent(leak.near, leak.compared)} nearly" if leak.near else ""
    return f"of {leak.second} is in {leak.first} too{nearly}"


def samples_of(found: DuplicateRows) -> dict[str, list[Twins]]:
    """Samples under their titles, one of each group of equal and near texts."""
    between = [twins for leak in found.leaks for twins in leak.samples]
    kinds = {"between parts": between, "near twins": found.near, "repeated": found.exact}
    firsts: dict[int, Twins] = {}
    for twins in chain.from_iterable(kinds.values()):
        firsts.setdefault(twins.group, twins)
    return {title: [one for one in samples if firsts[one.group] is one] for title, samples in kinds.items()}


def twins_said(twins: Twins) -> str:
    """Where twins stand and how alike they are."""
    alike = "the same" if twins.similarity == 1 else f"similarity {twins.similarity:.2f}"
    more = f", {twins.rows:,} rows in all" if twins.rows > 2 else ""
    return f"{twins.places[0]} and {twins.places[1]}: {alike}{more}"


def twin_texts(twins: Twins, width: int) -> list[str]:
    """The texts of twins from shortly before their first difference; one text where they are the same."""
    one, other = twins.texts
    if twins.similarity == 1:
        return [excerpt(one, width)]
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - LEAD) if max(len(one), len(other)) > width else 0
    return [excerpt_from(text, start, width) for text in (one, other)]
