"""`seqloom evaluate`: scores of a model with 95% intervals. Evaluations on the test set are recorded."""

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
    takes,
    with_defaults,
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
    from seqloom.tasks.evaluation import Evaluation

WRITING = settings(BeamConfig, "beam_size", "length_penalty")
COLUMNS = with_defaults(
    settings(DataConfig, "target", "label_separator"),
    target="the same column as in training, else guessed from column names and content",
    label_separator=AS_TRAINED,
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

    with exact(deterministic):
        evaluation = loaded.evaluate(
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
    return {"task": evaluation.task, "split": split} | evaluation.to_json() | tested


def _document(found: dict[str, Any], evaluation: "Evaluation", data: list[str]) -> "Document":
    from seqloom.report.document import Document, Heading, Paragraph
    from seqloom.tasks.tables import evaluation_blocks

    where = " ".join(data) or f"the {found['split']} set"
    tested = found.get("test_evaluations")
    return Document(
        f"{counted(found['rows'], evaluation.unit)} of {where}",
        [
            *evaluation_blocks(evaluation, found),
            *([Heading("The test set")] if tested else []),
            Paragraph(f"This model has been evaluated on the test set {counted(tested, 'time')}." if tested else ""),
        ],
    )
