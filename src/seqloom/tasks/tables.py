"""An evaluation as blocks of a document: metrics with intervals, per-class scores, confusion matrix and slices."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqloom.metrics.bootstrap import SHARES, alike_said
from seqloom.report.document import Aside, Bullets, DocumentBlock, Heading, TableBlock, TableCell
from seqloom.report.labels import columns, excerpt
from seqloom.report.numbers import counted, interval, number

if TYPE_CHECKING:
    from seqloom.tasks.evaluation import Evaluation, Unseen

ONE_ROW = "no interval: there is only one row"
ALIKE = "no interval: the same in every resample"
TYPES_ONLY = "Only types are compared here: boundaries are ignored, unlike in the scores."
INTERVAL = "95 % interval"
UNSEEN_LABELS = 8  # unseen labels that are named at most
BRIEF_LABELS = 20  # shown in a terminal
SQUARE = 10  # a confusion matrix is shown for up to this many labels
MISTAKES = 5  # the most frequent confusions, shown if there are more labels
LONGEST_NAME = 24  # characters
CORNER = "expected \\ predicted"
ROOM, GAP = 78, 2  # columns of a terminal below a heading, and between two columns of a table
Confusion = Sequence[tuple[str, str, int]]  # expected label, predicted label, count


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
    names = sorted({name for expected, predicted, _ in confusion for name in (expected, predicted)})
    if len(names) <= SQUARE:
        counts = {(expected, predicted): count for expected, predicted, count in confusion}
        shown = [excerpt(name, LONGEST_NAME) for name in names]
        return square_table(shown, [[counts.get((one, other), 0) for other in names] for one in names])
    wrong = sorted((one for one in confusion if one[0] != one[1]), key=lambda one: -one[2])[:MISTAKES]
    return Bullets(
        [
            f"{excerpt(expected, LONGEST_NAME)} predicted as {excerpt(predicted, LONGEST_NAME)}: "
            f"{counted(count, 'time')}"
            for expected, predicted, count in wrong
        ]
    )


def square_table(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> TableBlock:
    """A complete confusion matrix: expected labels down, predicted labels across.

    If the names do not fit side by side in a terminal of 80 columns, the columns have the numbers of the rows.
    """
    widest = max((columns(number(count)) for row in counts for count in row), default=1)
    across = sum(GAP + max(columns(name), widest) for name in labels)
    names = list(labels)
    if max(map(columns, (CORNER, *labels))) + across > ROOM:
        digits = len(str(len(labels)))
        names = [str(at) for at in range(1, len(labels) + 1)]
        labels = [f"{at:>{digits}} {name}" for at, name in enumerate(labels, 1)]
    rows: list[list[TableCell]] = [[name, *row] for name, row in zip(labels, counts, strict=True)]
    return TableBlock((CORNER, *names), rows)


def evaluation_json(evaluation: "Evaluation") -> dict[str, Any]:
    """Return an evaluation as plain data."""
    task = evaluation.known_evaluator
    slices: dict[str, dict[str, Any]] = {}  # by column and value
    for column, value, part in evaluation.slices:
        slices.setdefault(column, {})[value] = figures_json(part)
    new = evaluation.unseen
    about = {
        "signatures": task.signatures(evaluation.statistics),
        "per_class": task.by_label(evaluation.statistics),
        "confusion": [one._asdict() for one in evaluation.confusion],
        "unseen": {"rows": new.rows, "labels": dict(new.labels)} if new.rows else {},
        "slices": slices,
    }
    # The metric is the one that chose the best checkpoint.
    known = {"task": evaluation.task, "metric": task.metric.name} | figures_json(evaluation)
    return known | {name: value for name, value in about.items() if value}


def figures_json(evaluation: "Evaluation") -> dict[str, Any]:
    """Return the metrics and their intervals; None and the reason for an undefined one."""
    intervals, undefined = evaluation.intervals(), evaluation.known_evaluator.undefined(evaluation.statistics)
    figures = {name: None if name in undefined else value for name, value in evaluation.metrics.items()}
    found = {"rows": evaluation.rows, "metrics": figures}
    found["intervals"] = {name: list(intervals[name]) if name in intervals else None for name in figures}
    return found | ({"undefined": undefined} if undefined else {})


def evaluation_blocks(evaluation: "Evaluation", found: Mapping[str, Any]) -> list[DocumentBlock]:
    """Return the blocks of an evaluation; `found` is its `evaluation_json`."""
    return [
        *figure_table(found),
        Aside(unseen_text(evaluation.unseen)),
        Heading("How the metrics are computed"),
        TableBlock((), list(found.get("signatures", {}).items())),
        Heading("Per-class scores"),
        label_table(found.get("per_class", {})),
        Heading("Confusion matrix"),
        confusion_table(evaluation.confusion),
        Aside(TYPES_ONLY if evaluation.known_evaluator.span_types and evaluation.confusion else ""),
        *(
            block
            for column, slices in found.get("slices", {}).items()
            for block in slice_table(column, slices, found["metric"])
        ),
    ]


def unseen_text(unseen: "Unseen") -> str:
    """Describe how many rows have labels that were not in the training set, and which."""
    if not unseen.rows:
        return ""
    named = ", ".join(f"{label} ({count:,})" for label, count in unseen.labels[:UNSEEN_LABELS])
    more = f" and {len(unseen.labels) - UNSEEN_LABELS:,} others" if len(unseen.labels) > UNSEEN_LABELS else ""
    has, counts = ("has a label", "counts as an error") if unseen.rows == 1 else ("have labels", "count as errors")
    return f"{counted(unseen.rows, 'example')} {has} that the training set does not have, and {counts}: {named}{more}"


def evaluation_rows(evaluation: "Evaluation") -> list[dict[str, Any]]:
    """Return a row for each metric, with its interval; with slices, also for each metric of each slice."""
    parts = [("", "", evaluation), *evaluation.slices]
    rows = []
    for column, value, part in parts:
        intervals = part.intervals()
        named = {"column": column, "value": value, "rows": part.rows} if evaluation.slices else {}
        for name, score in part.metrics.items():
            low, high = intervals.get(name, (None, None))
            rows.append({**named, "metric": name, "score": score, "low": low, "high": high})
    return rows


def brief_scores(metrics: Mapping[str, float], main: str, ends: tuple[float | None, float | None] | None) -> str:
    """Return the scores in one line, the main one first and with its interval.

    >>> brief_scores({"loss": 0.21, "accuracy": 0.935}, "accuracy", (0.9, 0.96))
    'accuracy 0.935 (95%: 0.9 to 0.96), loss 0.21'
    """
    others = [f"{name} {number(value)}" for name, value in metrics.items() if name != main]
    inside = "" if ends is None else f" (95%: {interval(*ends)})"
    return ", ".join([f"{main} {number(metrics[main])}{inside}", *others] if main in metrics else others)
