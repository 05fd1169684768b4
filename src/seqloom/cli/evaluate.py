"""`seqloom evaluate`: how well a model does, with 95 % intervals. A look at the test set is written down."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli.inputs import Deterministic, Model, exact, load_on, require_readable
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes, way_to_write
from seqloom.cli.terminal import Screen
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.decoding import BeamConfig
from seqloom.config.options import said, settings, with_flags
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel
    from seqloom.report.document import Document
    from seqloom.tasks.evaluation import Evaluation, Unseen
    from seqloom.tasks.task import Evaluator

LABELS = 8  # that training never saw, which are named
WRITING = settings(BeamConfig, "beam", "length_penalty")
COLUMNS = settings(DataConfig, "target", "label_separator")
BAD_ROWS = settings(DataConfig, "bad_rows", "max_bad")


@takes(COLUMNS, BAD_ROWS, WRITING, FILE)
def evaluate(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Data with targets, or the name of a set; else that of the run."),
    ] = None,
    test: Annotated[bool, option("--test", None, "Look at the test part, and write down that you did.")] = False,
    by: Annotated[
        list[str] | None, option("--by", "COLUMN", "Also for each value of a column, or by length; may be repeated.")
    ] = None,
    errors: Annotated[Path | None, option("--errors", "FILE", "Write the worst answers here, .jsonl or .csv.")] = None,
    most: Annotated[int | None, option("--most", "COUNT", "How many of them; else 1000.")] = None,
    json: Annotated[bool, option("--json", None, "Print the result as JSON.")] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Judge a model on the dev part of its run, on its test part, or on data of your own."""
    if most is not None and errors is None:
        raise ConfigError("--most says how many answers --errors writes", fix="give --errors FILE too")
    if most is not None and most < 1:
        raise ConfigError(f"--most {most}: that is no answer", fix="take at least 1")
    require_readable(given)
    writing = {name: given[name] for name in WRITING if name in given}
    how = way_to_write(writing) if writing else None
    loaded = load_on(model, device)
    rule = with_flags(loaded.bad_rows, given) if BAD_ROWS.keys() & given.keys() else None
    from seqloom.inference.evaluation import MOST_ERRORS

    with exact(deterministic):
        evaluation = loaded.evaluate(
            *(data or ()),
            part="test" if test else "dev",
            budget=budget,
            by=by or (),
            errors=errors,
            most=MOST_ERRORS if most is None else most,
            decoding=how,
            bad_rows=rule,
            reading=said(ReadingConfig, given) or None,
            input=given.get("input"),
            target=given.get("target"),
            label_separator=given.get("label_separator"),
        )
    for sentence in evaluation.said:
        typer.echo(sentence, err=True)
    found = _result(loaded, evaluation, test)
    if test and loaded.folder is not None:  # its report and its card tell of this look too
        from seqloom.training.run_summary import write_pages

        write_pages(loaded.folder)
    if json:
        Screen().say_json(found)
    else:
        Screen().show(_document(found, evaluation, data or []))
    if errors is not None:
        count, right = len(evaluation.worst), sum(one.right is True for one in evaluation.worst)
        also = f", {right:,} of them right" if right else ""
        held = f"{counted(count, 'answer')}{also}, the worst first,"
        if right == count:
            held = f"no answer is wrong: {counted(count, 'right one')}, the least likely first,"
        typer.echo(f"{held} written to {errors}", err=True)


def _result(loaded: "LoadedModel", evaluation: "Evaluation", test: bool) -> dict[str, Any]:
    """The result as programs read it."""
    looks = {"looks": len(loaded.looks)} if test else {}
    known = {"task": evaluation.task, "part": "test" if test else "dev"}
    task = evaluation.judge or loaded.task
    known["metric"] = task.metric.name  # that decided which weights are the best
    new = evaluation.unseen
    slices: dict[str, dict[str, Any]] = {}  # of each column by their values
    for column, value, part in evaluation.slices:
        slices.setdefault(column, {})[value] = _figures(task, part)
    about = {
        "signatures": task.signatures(evaluation.statistics),
        "labels": task.by_label(evaluation.statistics),
        "confusion": [list(one) for one in evaluation.confusion],
        "unseen": {"rows": new.rows, "labels": dict(new.labels)} if new.rows else {},
        "slices": slices,
    }
    there = {name: value for name, value in about.items() if value}
    return known | _figures(task, evaluation) | there | looks


def _figures(task: "Evaluator", evaluation: "Evaluation") -> dict[str, Any]:
    """The figures and their intervals; nothing for one that is not known, and why a figure is not."""
    intervals, undefined = evaluation.intervals(task), task.undefined(evaluation.statistics)
    figures = {name: None if name in undefined else value for name, value in evaluation.metrics.items()}
    found = {"rows": evaluation.rows, "metrics": figures}
    found["intervals"] = {name: list(intervals[name]) if name in intervals else None for name in figures}
    return found | ({"undefined": undefined} if undefined else {})


def _document(found: dict[str, Any], evaluation: "Evaluation", data: list[str]) -> "Document":
    from seqloom.cli.tables import confusion_table, figure_table, label_table, slice_table
    from seqloom.report.document import Aside, Document, Heading, Paragraph, TableBlock

    where = " ".join(data) or f"the {found['part']} part"
    looks = found.get("looks")
    return Document(
        f"{counted(found['rows'], 'example')} of {where}",
        [
            *figure_table(found),
            Aside(_unseen_said(evaluation.unseen)),
            Heading("How they were computed"),
            TableBlock((), list(found.get("signatures", {}).items())),
            Heading("Labels"),
            label_table(found.get("labels", {})),
            Heading("What was taken for what"),
            confusion_table(evaluation.confusion),
            *(
                block
                for column, slices in found.get("slices", {}).items()
                for block in slice_table(column, slices, found["metric"])
            ),
            *([Heading("The test set")] if looks else []),
            Paragraph(f"The test set was looked at {counted(looks, 'time')} with this model." if looks else ""),
        ],
    )


def _unseen_said(unseen: "Unseen") -> str:
    """How many rows have labels that training never saw, and which."""
    if not unseen.rows:
        return ""
    named = ", ".join(f"{label} ({count:,})" for label, count in unseen.labels[:LABELS])
    more = f" and {len(unseen.labels) - LABELS:,} others" if len(unseen.labels) > LABELS else ""
    has, counts = ("has a label", "counts as an error") if unseen.rows == 1 else ("have labels", "count as errors")
    return f"{counted(unseen.rows, 'example')} {has} that training never saw, and {counts}: {named}{more}"
