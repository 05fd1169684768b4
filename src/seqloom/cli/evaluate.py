"""`seqloom evaluate`: scores of a model with 95% intervals. Evaluations on the test set are recorded."""

from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqloom.cli.inputs import Deterministic, Model, exact, load_on, require_readable
from seqloom.cli.options import (
    AS_TRAINED,
    BAD_ROWS,
    FILE,
    BatchTokens,
    DeviceName,
    Given,
    decoding_of,
    option,
    reworded,
    takes,
)
from seqloom.cli.terminal import Screen
from seqloom.config.data import DataConfig
from seqloom.config.decoding import BeamConfig
from seqloom.config.options import settings
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel
    from seqloom.report.document import Document
    from seqloom.tasks.evaluation import Evaluation, Unseen
    from seqloom.tasks.task import Evaluator

LABELS = 8  # unseen labels that are named at most
WRITING = settings(BeamConfig, "beam_size", "length_penalty")
COLUMNS = reworded(
    settings(DataConfig, "target", "label_separator"),
    target="Column with the target (default: the same column as in training, else guessed from column names and "
    "content).",
    label_separator=f"Separator between the labels of a row, if a row can have several {AS_TRAINED}",
)


@takes(
    COLUMNS,
    BAD_ROWS,
    WRITING,
    FILE,
    common=("split", "by", "errors", "max_errors", "json", "input", "target", "beam_size", "batch_tokens", "device"),
    examples=(
        "seqloom evaluate runs/reviews-classify-cnn --split test",
        "seqloom evaluate runs/reviews-classify-cnn new.csv --errors worst.csv --by length",
    ),
)
def evaluate(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Data with targets, or the name of a dataset (default: the run's data)."),
    ] = None,
    split: Annotated[
        Literal["dev", "test"],
        option(
            "--split",
            "NAME",
            "Split of the run's data to evaluate on: dev or test; each evaluation on test is logged in the run folder "
            "(default: dev).",
        ),
    ] = "dev",
    by: Annotated[
        list[str] | None,
        option(
            "--by",
            "COLUMN",
            "Also report scores per value of this column; `--by length` reports them per range of input length; "
            "can be repeated (default: off).",
        ),
    ] = None,
    errors: Annotated[
        Path | None,
        option(
            "--errors",
            "FILE",
            "Write predictions to this .jsonl or .csv file: wrong ones first, then correct ones, highest loss first "
            "(default: off).",
        ),
    ] = None,
    max_errors: Annotated[
        int | None,
        option("--max-errors", "COUNT", "Maximum number of predictions in the --errors file (default: 1,000)."),
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the result as JSON (default: tables).")] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Evaluate a model on the dev set of its run, on its test set, or on data of your own."""
    if max_errors is not None and errors is None:
        raise ConfigError("--max-errors needs --errors", fix="add --errors FILE")
    if max_errors is not None and max_errors < 1:
        raise ConfigError(f"--max-errors {max_errors}", fix="use at least 1")
    require_readable(given)
    writing = {name: given[name] for name in WRITING if name in given}
    how = decoding_of(writing) if writing else None
    loaded = load_on(model, device)
    from seqloom.inference.evaluation import MOST_ERRORS

    evaluated = unwrap(type(loaded).evaluate)  # without the wrapper that replaces flags in messages by arguments
    with exact(deterministic):
        evaluation = evaluated(
            loaded,
            *(data or ()),
            split=split,
            batch_tokens=batch_tokens,
            by=by or (),
            errors=errors,
            max_errors=MOST_ERRORS if max_errors is None else max_errors,
            decoding=how,
            **{name: given[name] for name in given if name not in WRITING},
        )
    for sentence in evaluation.messages:
        typer.echo(sentence, err=True)
    found = _result(loaded, evaluation, split)
    if split == "test" and loaded.folder is not None:  # the report and the card mention this evaluation
        from seqloom.training.run_summary import write_pages

        write_pages(loaded.folder)
    if json:
        Screen().say_json(found)
    else:
        Screen().show(_document(found, evaluation, data or []))
    if errors is not None:
        count, right = len(evaluation.worst), sum(one.correct is True for one in evaluation.worst)
        also = f", {right:,} of them correct" if right else ""
        held = f"{counted(count, 'prediction')}{also}, the worst first,"
        if right == count:
            held = f"no prediction is wrong: {counted(count, 'correct one')}, the least likely first,"
        typer.echo(f"{held} written to {errors}", err=True)


def _result(loaded: "LoadedModel", evaluation: "Evaluation", split: str) -> dict[str, Any]:
    """Return the result as plain data."""
    tested = {"test_evaluations": len(loaded.test_evaluations)} if split == "test" else {}
    known = {"task": evaluation.task, "split": split}
    task = evaluation.evaluator or loaded.task
    known["metric"] = task.metric.name  # that chose the best checkpoint
    new = evaluation.unseen
    slices: dict[str, dict[str, Any]] = {}  # by column and value
    for column, value, part in evaluation.slices:
        slices.setdefault(column, {})[value] = _figures(task, part)
    about = {
        "signatures": task.signatures(evaluation.statistics),
        "per_class": task.by_label(evaluation.statistics),
        "confusion": [one._asdict() for one in evaluation.confusion],
        "unseen": {"rows": new.rows, "labels": dict(new.labels)} if new.rows else {},
        "slices": slices,
    }
    there = {name: value for name, value in about.items() if value}
    return known | _figures(task, evaluation) | there | tested


def _figures(task: "Evaluator", evaluation: "Evaluation") -> dict[str, Any]:
    """Return the metrics and their intervals; None and the reason for an undefined one."""
    intervals, undefined = evaluation.intervals(task), task.undefined(evaluation.statistics)
    figures = {name: None if name in undefined else value for name, value in evaluation.metrics.items()}
    found = {"rows": evaluation.rows, "metrics": figures}
    found["intervals"] = {name: list(intervals[name]) if name in intervals else None for name in figures}
    return found | ({"undefined": undefined} if undefined else {})


def _document(found: dict[str, Any], evaluation: "Evaluation", data: list[str]) -> "Document":
    from seqloom.cli.tables import confusion_table, figure_table, label_table, slice_table
    from seqloom.report.document import Aside, Document, Heading, Paragraph, TableBlock

    where = " ".join(data) or f"the {found['split']} set"
    tested = found.get("test_evaluations")
    return Document(
        f"{counted(found['rows'], 'example')} of {where}",
        [
            *figure_table(found),
            Aside(_unseen_said(evaluation.unseen)),
            Heading("How the metrics are computed"),
            TableBlock((), list(found.get("signatures", {}).items())),
            Heading("Per-class scores"),
            label_table(found.get("per_class", {})),
            Heading("Confusion matrix"),
            confusion_table(evaluation.confusion),
            *(
                block
                for column, slices in found.get("slices", {}).items()
                for block in slice_table(column, slices, found["metric"])
            ),
            *([Heading("The test set")] if tested else []),
            Paragraph(f"This model has been evaluated on the test set {counted(tested, 'time')}." if tested else ""),
        ],
    )


def _unseen_said(unseen: "Unseen") -> str:
    """Describe how many rows have labels that were not in the training set, and which."""
    if not unseen.rows:
        return ""
    named = ", ".join(f"{label} ({count:,})" for label, count in unseen.labels[:LABELS])
    more = f" and {len(unseen.labels) - LABELS:,} others" if len(unseen.labels) > LABELS else ""
    has, counts = ("has a label", "counts as an error") if unseen.rows == 1 else ("have labels", "count as errors")
    return f"{counted(unseen.rows, 'example')} {has} that the training set does not have, and {counts}: {named}{more}"
