"""`seqloom predict`: the answers of a model to inputs, a line for each, in the order of the inputs."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.answers import Wanted, answer, form_of
from seqloom.cli.data_options import BadRowsRule, FileOptions, Sequence, bad_rows, reading_settings
from seqloom.cli.inputs import Deterministic, Model, PredictRequest, exact, load_on, reading_of, require_another
from seqloom.cli.shared_options import shares


@shares(FileOptions)
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="FORM", help="jsonl, csv or text; else by the name of --out, or jsonl."),
    ] = None,
    with_input: Annotated[bool, typer.Option("--with-input", help="Repeat the input beside its answer.")] = False,
    sequence: Sequence = None,
    bad_rows_: BadRowsRule = None,
    deterministic: Deterministic = False,
    *,
    shared: FileOptions,
) -> None:
    """Answer every input of a file: a line for each, in their order."""
    told, wanted = reading_settings(shared), Wanted(form_of(as_, out), out, with_input)
    bad_rows(bad_rows_, None)  # refused before the model is read
    require_another(source, out)
    loaded = load_on(model, shared.device)
    reading, skip = reading_of(loaded, source, told), bad_rows(bad_rows_, None, loaded.bad_rows).skip
    asked = PredictRequest(source, tuple(shared.input_ or ()), sequence, reading, skip)
    with exact(deterministic):
        answer(loaded, asked, wanted, shared.budget)
