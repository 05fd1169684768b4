"""`seqloom evaluate`: how well a model does, with 95 % intervals. A look at the test set is written down."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from seqloom.cli.data_options import (
    BadRowsRule,
    FileOptions,
    LabelSeparator,
    MaxBad,
    Target,
    bad_rows,
    reading_settings,
)
from seqloom.cli.decoding_options import Beam, LengthPenalty, require_beam, way_to_write
from seqloom.cli.inputs import Deterministic, Model, exact, load_on
from seqloom.cli.shared_options import shares
from seqloom.cli.tables import FigureRow, confusion_lines, figure_lines, label_lines
from seqloom.cli.terminal import Screen
from seqloom.data.problems import counted, escaped
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel
    from seqloom.tasks.evaluation import Evaluation, Slice, Unseen
    from seqloom.tasks.task import Task

LABELS = 8  # that training never saw, which are named


@shares(FileOptions)
def evaluate(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Data with targets, or the name of a set; else that of the run."),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Look at the test part, and write down that you did.")] = False,
    target: Target = None,
    label_separator: LabelSeparator = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COLUMN", help="Also for each value of a column, or by length; may be repeated."),
    ] = None,
    errors: Annotated[
        Path | None, typer.Option("--errors", metavar="FILE", help="Write the worst answers here, .jsonl or .csv.")
    ] = None,
    most: Annotated[int | None, typer.Option("--most", metavar="COUNT", help="How many of them; else 1000.")] = None,
    bad_rows_: BadRowsRule = None,
    max_bad: MaxBad = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    deterministic: Deterministic = False,
    *,
    shared: FileOptions,
) -> None:
    """Judge a model on the dev part of its run, on its test part, or on data of your own."""
    wishes: dict[str, Any] = {"input": shared.input_, "reading": reading_settings(shared)}
    wishes |= {"target": target, "label_separator": label_separator}
    settings: dict[str, Any] = {name: value for name, value in wishes.items() if value}
    settings |= _extras(by, errors, most) | _decoding(beam, length_penalty)
    bad_rows(bad_rows_, max_bad)  # refused before the model is read
    loaded = load_on(model, shared.device)
    if bad_rows_ is not None or max_bad is not None:
        settings["bad_rows"] = bad_rows(bad_rows_, max_bad, loaded.bad_rows)
    with exact(deterministic):
        evaluation = loaded.evaluate(*(data or ()), part="test" if test else "dev", budget=shared.budget, **settings)
    for sentence in evaluation.said:
        typer.echo(sentence, err=True)
    found = _result(loaded, evaluation, test)
    if test and loaded.folder is not None:  # its report and its card tell of this look too
        from seqloom.training.pages.summary import write_pages

        write_pages(loaded.folder)
    if json:
        Screen().print(msgspec.json.encode(found).decode(), markup=False, soft_wrap=True)
    else:
        _show(found, evaluation, data or [])
    if errors is not None:
        typer.echo(f"{_worst_said(evaluation)} written to {errors}", err=True)


def _extras(by: list[str] | None, errors: Path | None, most: int | None) -> dict[str, Any]:
    """What is wanted besides the metrics."""
    if most is not None and errors is None:
        raise ConfigError("--most says how many answers --errors writes", fix="give --errors FILE too")
    if most is not None and most < 1:
        raise ConfigError(f"--most {most}: that is no answer", fix="take at least 1")
    wishes = {"by": by, "errors": errors, "most": most}
    return {name: value for name, value in wishes.items() if value is not None}


def _decoding(beam: int | None, length_penalty: float | None) -> dict[str, Any]:
    """How texts are written, where it is said."""
    require_beam(beam, length_penalty)
    return {} if beam is None else {"decoding": way_to_write({"width": beam, "length_penalty": length_penalty})}


def _result(loaded: "LoadedModel", evaluation: "Evaluation", test: bool) -> dict[str, Any]:
    """The result as programs read it."""
    looks = {"looks": len(loaded.looks)} if test else {}
    known = {"task": evaluation.task, "part": "test" if test else "dev"}
    task = evaluation.judge or loaded.task
    known["metric"] = task.metric.name  # that decided which weights are the best
    unseen = {"unseen": _unseen(evaluation.unseen)} if evaluation.unseen.rows else {}
    slices = {"slices": _slices(task, evaluation.slices)} if evaluation.slices else {}
    about = {
        "signatures": task.signatures(evaluation.statistics),
        "labels": task.by_label(evaluation.statistics),
        "confusion": [list(one) for one in evaluation.confusion],
    }
    there = {name: value for name, value in about.items() if value}
    return known | _figures(task, evaluation) | there | unseen | slices | looks


def _figures(task: "Task", evaluation: "Evaluation") -> dict[str, Any]:
    """The figures and their intervals; nothing for one that is not known, and why a figure is not."""
    intervals, undefined = evaluation.intervals(task), task.undefined(evaluation.statistics)
    figures = {name: None if name in undefined else value for name, value in evaluation.metrics.items()}
    found = {"rows": evaluation.rows, "metrics": figures}
    found["intervals"] = {name: list(intervals[name]) if name in intervals else None for name in figures}
    return found | ({"undefined": undefined} if undefined else {})


def _worst_said(evaluation: "Evaluation") -> str:
    """What the error file holds: how many answers, and whether one of them is an error."""
    count, right = len(evaluation.worst), sum(one.right is True for one in evaluation.worst)
    if right < count:
        also = f", {right:,} of them right" if right else ""
        return f"{counted(count, 'answer')}{also}, the worst first,"
    return f"no answer is wrong: {counted(count, 'right one')}, the least likely first,"


def _unseen(unseen: "Unseen") -> dict[str, Any]:
    return {"rows": unseen.rows, "labels": dict(unseen.labels)}


def _slices(task: "Task", slices: "tuple[Slice, ...]") -> dict[str, Any]:
    """The slices of each column by their values."""
    found: dict[str, dict[str, Any]] = {}
    for column, value, part in slices:
        found.setdefault(column, {})[value] = _figures(task, part)
    return found


def _show(found: dict[str, Any], evaluation: "Evaluation", data: list[str]) -> None:
    from seqloom.metrics.bootstrap import alike_said

    where = " ".join(map(escaped, data)) or f"the {found['part']} part"
    lines = [f"{counted(found['rows'], 'example')} of {where}", "", *_table(found)]
    sure = {name: found["metrics"][name] for name, ends in found["intervals"].items() if ends}
    if alike := alike_said(sure, found["rows"]):
        lines += ["", alike]
    if signatures := found.get("signatures"):
        lines += ["", "how they were computed:", *(f"  {name}  {text}" for name, text in signatures.items())]
    lines += label_lines(found.get("labels", {})) + confusion_lines(evaluation.confusion)
    lines += _unseen_lines(evaluation.unseen)
    for column, slices in found.get("slices", {}).items():
        lines += _slice_lines(column, slices, found["metric"])
    if "looks" in found:
        lines += ["", f"The test set was looked at {counted(found['looks'], 'time')} with this model."]
    Screen().print("\n".join(lines), markup=False, soft_wrap=True)


def _table(found: dict[str, Any]) -> list[str]:
    """A line for each metric with its interval."""
    width = max(map(len, found["metrics"]), default=0)
    heads = [f"  {name:<{width}}" for name in found["metrics"]]
    return figure_lines(heads, [FigureRow.of(found, name) for name in found["metrics"]])


def _unseen_lines(unseen: "Unseen") -> list[str]:
    """How many rows have labels that training never saw, and which."""
    if not unseen.rows:
        return []
    named = ", ".join(f"{escaped(label)} ({count:,})" for label, count in unseen.labels[:LABELS])
    more = f" and {len(unseen.labels) - LABELS:,} others" if len(unseen.labels) > LABELS else ""
    has, counts = ("has a label", "counts as an error") if unseen.rows == 1 else ("have labels", "count as errors")
    said = f"{counted(unseen.rows, 'example')} {has} that training never saw, and {counts}"
    return ["", f"{said}: {named}{more}"]


def _slice_lines(column: str, slices: dict[str, Any], name: str) -> list[str]:
    """A table of the slices of one column: how many rows, and the metric that decided in training with its interval."""
    width = max(len(escaped(value)) for value in (*slices, f"{column} "))
    heads = [f"  {escaped(value):<{width}}  {part['rows']:>6,}" for value, part in slices.items()]
    lines = figure_lines(heads, [FigureRow.of(part, name) for part in slices.values()])
    return ["", f"{f'by {escaped(column)}':<{width + 2}}  {'rows':>6}  {name}", *lines]
