"""What an evaluation says, as blocks of a document: figures with their intervals, labels, confusions and slices."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seqloom.metrics.bootstrap import SHARES, alike_said
from seqloom.report.document import Aside, Bullets, DocumentBlock, Heading, TableBlock, TableCell
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted, interval, number

ONE_ROW = "no interval: one row tells nothing of others"
ALIKE = "no interval: these rows, drawn again, always give the same"
INTERVAL = "95 % interval"
BRIEF_LABELS = 20  # with a line of their own in a terminal
SQUARE = 10  # labels up to which confusions are a table, true ones down and said ones across
MISTAKES = 5  # that are told where there are more labels
LONGEST_NAME = 24  # characters
Confusion = Sequence[tuple[str, str, int]]  # what is true, what was said, how often


def figure_cells(found: Mapping[str, Any], name: str) -> list[TableCell]:
    """A figure of a result as programs read it, and its interval or the reason why it has none."""
    ends = found["intervals"][name]
    why = found.get("undefined", {}).get(name) or (ONE_ROW if found["rows"] < 2 else ALIKE)
    return [number(found["metrics"][name]), why if ends is None else interval(*ends)]


def figure_table(found: Mapping[str, Any], shares: Collection[str] = SHARES, one: str = "row") -> list[DocumentBlock]:
    """A row for each figure, and what an interval of a figure of 0 or 1 is."""
    sure = {name: found["metrics"][name] for name, ends in found["intervals"].items() if ends}
    rows = [[name, *figure_cells(found, name)] for name in found["metrics"]]
    return [TableBlock(("metric", "value", INTERVAL), rows), Aside(alike_said(sure, found["rows"], shares, one))]


def slice_table(column: str, slices: Mapping[str, Any], name: str) -> list[DocumentBlock]:
    """The slices of one column: how many rows, and the metric that decided in training with its interval."""
    rows = [[excerpt(value, LONGEST_NAME), part["rows"], *figure_cells(part, name)] for value, part in slices.items()]
    return [Heading(f"by {column}"), TableBlock(("", "rows", name, INTERVAL), rows)]


def label_table(figures: Mapping[str, Mapping[str, float]]) -> TableBlock:
    """A row for each label with its figures, the most frequent first."""
    names = ("precision", "recall", "f1", "support")
    often = sorted(figures, key=lambda label: -figures[label]["support"])
    rows: list[list[TableCell]] = [
        [excerpt(label, LONGEST_NAME), *(figures[label][name] for name in names)] for label in often
    ]
    return TableBlock(("label", *names), rows, BRIEF_LABELS)


def confusion_table(confusion: Confusion) -> DocumentBlock:
    """What was taken for what: a table for a few labels, the most frequent mistakes for many."""
    names = sorted({name for true, said, _ in confusion for name in (true, said)})
    if len(names) <= SQUARE:
        counts = {(true, said): count for true, said, count in confusion}
        rows: list[list[TableCell]] = [
            [excerpt(true, LONGEST_NAME), *(counts.get((true, said), 0) for said in names)] for true in names
        ]
        return TableBlock(("true, said", *(excerpt(name, LONGEST_NAME) for name in names)), rows)
    wrong = sorted((one for one in confusion if one[0] != one[1]), key=lambda one: -one[2])[:MISTAKES]
    return Bullets(
        [
            f"{excerpt(true, LONGEST_NAME)} taken for {excerpt(said, LONGEST_NAME)}, {counted(count, 'time')}"
            for true, said, count in wrong
        ]
    )
