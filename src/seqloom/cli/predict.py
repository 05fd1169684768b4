"""`seqloom predict`: the answers of a model to inputs, a line for each, in the order of the inputs."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.answers import Wanted, answer, form_of
from seqloom.cli.inputs import Deterministic, Model, PredictRequest, exact, load_on, require_another, require_readable
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes
from seqloom.config.data import DataConfig
from seqloom.config.options import settings


@takes(FILE, settings(DataConfig, "sequence", "bad_rows"))
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the answers here.")] = None,
    as_: Annotated[
        str | None, option("--as", "FORM", "jsonl, csv or text; else by the name of --out, or jsonl.")
    ] = None,
    with_input: Annotated[bool, option("--with-input", None, "Repeat the input beside its answer.")] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Answer every input of a file: a line for each, in their order."""
    wanted = Wanted(form_of(as_, out), out, with_input)
    require_another(source, out)
    require_readable(given)
    loaded = load_on(model, device)
    with exact(deterministic):
        answer(loaded, PredictRequest.of(loaded, source, given), wanted, budget)
