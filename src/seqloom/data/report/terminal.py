"""The data report for a terminal: the verdict first, then findings, then what is in the data."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from seqloom.data.report.findings import DataFinding
from seqloom.data.report.measures import ColumnMeasure
from seqloom.data.report.words import (
    VERDICTS,
    bin_names,
    counted,
    described,
    label_shown,
    labels_title,
    mixing_said,
    number,
    repeated,
    sampled_said,
    samples_of,
    shares,
    title_of,
    twin_texts,
    twins_said,
    verdict_said,
)
from seqloom.errors import DataError
from seqloom.report.excerpts import excerpt
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.colors import Colour, in_colour
from seqloom.report.figures.labels import cell, columns, isolated, visible, wrap

if TYPE_CHECKING:
    from seqloom.data.report.report import DataReport

NARROWEST = 50
MOST_LABELS = 12
MOST_SAMPLES = 2
INDENT = "  "
MARKS = {"reject": "✗", "warn": "!", "note": "·", "fine": "✓"}
TINTS: dict[str, Colour] = {
    "reject": (209, 73, 63),
    "warn": (199, 137, 32),
    "note": (128, 138, 150),
    "fine": (58, 150, 98),
}


def written(report: "DataReport", width: int, colour: bool) -> str:
    """The report as lines of at most `width` columns."""
    if width < NARROWEST:
        raise DataError(f"a report {width} columns wide was asked for", fix=f"give it at least {NARROWEST}")
    room = width - len(INDENT)
    sections = {
        "Findings": [line for finding in report.findings for line in _finding(finding, room, colour)],
        "Read as": [line for text in report.inferred for line in _wrapped(text, room, "- ", "  ")],
        f"{labels_title(report.target)}, {len(report.labels):,} different": _labels(report, room, colour),
        **{title_of(measure): _measure(measure, room, colour) for measure in report.measures},
        "Duplicates": list(_duplicates(report, room)),
        "Batches": list(_batches(report, room)),
    }
    shown = [_head(report, width, colour)]
    shown += [[_heading(title, colour), *_indented(lines)] for title, lines in sections.items() if lines]
    return "\n\n".join("\n".join(lines) for lines in shown) + "\n"


def _heading(title: str, colour: bool) -> str:
    return f"\x1b[1m{visible(title)}\x1b[0m" if colour else visible(title)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{INDENT}{line}".rstrip() for line in lines)


def _wrapped(text: str, width: int, first: str = "", later: str = "") -> Iterator[str]:
    """The text made visible as lines, the first and the later ones with something before them."""
    for at, line in enumerate(wrap(visible(text), width - len(later))):
        yield f"{later if at else first}{isolated(line)}"


def _tinted(text: str, kind: str, colour: bool) -> str:
    return in_colour(text, TINTS[kind]) if colour else text


def _head(report: "DataReport", width: int, colour: bool) -> list[str]:
    kind, _ = VERDICTS[report.verdict]
    verdict = wrap(f"{MARKS[kind]} {verdict_said(report)}", width)
    parts = " · ".join(f"{part.name} {part.rows:,}" for part in report.parts)
    return [
        isolated(excerpt(report.name, width)),
        *(_tinted(line, kind, colour) for line in verdict),
        *_wrapped(described(report), width),
        *_wrapped(f"{counted(report.rows, 'row', 'rows')}: {parts}", width),
    ]


def _finding(finding: DataFinding, width: int, colour: bool) -> Iterator[str]:
    count = f" × {finding.rows:,}" if finding.rows > 1 else ""
    yield f"{_tinted(MARKS[finding.severity], finding.severity, colour)} {finding.code}{count}"
    for sample in finding.shown(MOST_SAMPLES)[0]:
        place = f"{sample.place}: " if sample.place else ""
        yield from _wrapped(f"{place}{sample.text}", width, "    ", "    ")
        if sample.fix:
            yield from _wrapped(f"Fix: {sample.fix}", width, "    ", "    ")


def _labels(report: "DataReport", width: int, colour: bool) -> list[str]:
    if not report.labels:
        return []
    shown, more = report.labels[:MOST_LABELS], report.labels[MOST_LABELS:]
    counts = [number(entry.counts[0]) for entry in shown]
    digits = max(map(len, counts))
    names = [label_shown(entry.label, width // 3 - digits - 1) for entry in shown]
    longest = max(map(columns, names))
    lines = [
        f"{name}{' ' * (longest - columns(name))} {count:>{digits}}" for name, count in zip(names, counts, strict=True)
    ]
    rest = sum(entry.counts[0] for entry in more)
    note = f"and {len(more):,} more, {counted(rest, 'time', 'times')} together" if more else ""
    values = shares([entry.counts[0] for entry in report.labels])[:MOST_LABELS]
    return _bars(lines, values, report.parts[0].name, width, colour, note)


def _bars(
    labels: Sequence[str], values: Sequence[float], part: str, width: int, colour: bool, note: str = ""
) -> list[str]:
    figure = Bars(title="", labels=labels, values=values, caption=note, x_label=f"% of {part}")
    return figure.text(width, colour).split("\n")


def _measure(measure: ColumnMeasure, width: int, colour: bool) -> list[str]:
    rows = [[visible(summary.part), *map(number, summary[1:])] for summary in measure.summaries]
    table = _table(["", "least", "median", "mean", "95 %", "most"], rows, width)
    return [*table, "", *_bars(bin_names(measure), shares(measure.counts[0]), measure.summaries[0].part, width, colour)]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of a table: the first column to the left, numbers to the right."""
    lines = [heads, *rows]
    sizes = [max(columns(row[at]) for row in lines) for at in range(len(heads))]
    first = max(8, min(sizes[0], width - sum(sizes[1:]) - 2 * len(sizes)))
    return [
        cell(row[0], first)
        + "".join("  " + cell(text, size, right=True) for text, size in zip(row[1:], sizes[1:], strict=True))
        for row in lines
    ]


def _duplicates(report: "DataReport", width: int) -> Iterator[str]:
    found = report.duplicates
    rows = [[visible(line.where), *line[1:]] for line in repeated(found)]
    yield from _table(["", "rows", "repeat another", "near twins"], rows, width)
    if note := sampled_said(found):
        yield from _wrapped(note, width)
    samples = samples_of(found)
    for twins in [*samples["between parts"][:MOST_SAMPLES], *samples["near twins"][:MOST_SAMPLES]]:
        yield from ("", excerpt(twins_said(twins), width))
        yield from (f"  {isolated(text)}" for text in twin_texts(twins, width - 2))


def _batches(report: "DataReport", width: int) -> Iterator[str]:
    if report.batching is None:
        return
    padding, fill, batches, again = report.batching
    yield f"{batches:,} in an epoch, {fill:.1%} full, {padding:.1%} padding"
    yield from _wrapped(mixing_said(batches, again), width)
