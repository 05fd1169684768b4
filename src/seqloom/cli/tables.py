"""An evaluation as blocks of a document: metrics with intervals, per-class scores, confusion matrix and slices."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seqloom.metrics.bootstrap import SHARES, alike_said
from seqloom.report.document import Aside, Bullets, DocumentBlock, Heading, TableBlock, TableCell
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted, interval, number

ONE_ROW = "no interval: there is only one row"
ALIKE = "no interval: every resample of these rows gives the same value"
INTERVAL = "95 % interval"
BRIEF_LABELS = 20  # shown in a terminal
SQUARE = 10  # a confusion matrix is shown for up to this many labels
MISTAKES = 5  # the most frequent confusions, shown if there are more labels
LONGEST_NAME = 24  # characters
Confusion = Sequence[tuple[str, str, int]]  # true label, predicted label, count


def figure_cells(found: Mapping[str, Any], name: str) -> list[TableCell]:
    """Return the value of a metric, and its interval or the reason why it has none."""
    ends = found["intervals"][name]
    why = found.get("undefined", {}).get(name) or (ONE_ROW if found["rows"] < 2 else ALIKE)
    return [number(found["metrics"][name]), why if ends is None else interval(*ends)]


def figure_table(found: Mapping[str, Any], shares: Collection[str] = SHARES, one: str = "row") -> list[DocumentBlock]:
    """Return a row for each metric, and a note on intervals of metrics that are 0 or 1."""
    sure = {name: found["metrics"][name] for name, ends in found["intervals"].items() if ends}
    rows = [[name, *figure_cells(found, name)] for name in found["metrics"]]
    return [TableBlock(("metric", "value", INTERVAL), rows), Aside(alike_said(sure, found["rows"], shares, one))]


def slice_table(column: str, slices: Mapping[str, Any], name: str) -> list[DocumentBlock]:
    """Return the slices of one column: rows, and the selection metric with its interval."""
    rows = [[excerpt(value, LONGEST_NAME), part["rows"], *figure_cells(part, name)] for value, part in slices.items()]
    return [Heading(f"by {column}"), TableBlock(("", "rows", name, INTERVAL), rows)]


def label_table(figures: Mapping[str, Mapping[str, float]]) -> TableBlock:
    """Precision, recall, F1 and support of each class, the most frequent first."""
    names = ("precision", "recall", "f1", "support")
    often = sorted(figures, key=lambda label: -figures[label]["support"])
    rows: list[list[TableCell]] = [
        [excerpt(label, LONGEST_NAME), *(figures[label][name] for name in names)] for label in often
    ]
    return TableBlock(("label", *names), rows, BRIEF_LABELS)


def confusion_table(confusion: Confusion) -> DocumentBlock:
    """The confusion matrix for a few labels, the most frequent confusions for many."""
    names = sorted({name for true, predicted, _ in confusion for name in (true, predicted)})
    if len(names) <= SQUARE:
        counts = {(true, predicted): count for true, predicted, count in confusion}
        rows: list[list[TableCell]] = [
            [excerpt(true, LONGEST_NAME), *(counts.get((true, predicted), 0) for predicted in names)] for true in names
        ]
        return TableBlock(("true \\ predicted", *(excerpt(name, LONGEST_NAME) for name in names)), rows)
    wrong = sorted((one for one in confusion if one[0] != one[1]), key=lambda one: -one[2])[:MISTAKES]
    return Bullets(
        [
            f"{excerpt(true, LONGEST_NAME)} predicted as {excerpt(predicted, LONGEST_NAME)}: {counted(count, 'time')}"
            for true, predicted, count in wrong
        ]
    )
