"""`seqloom predict`: the predictions of a model, one line per row, in the order of the rows."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.inputs import Deterministic, Model, PredictRequest, exact, load_on, require_another, require_readable
from seqloom.cli.options import FILE, ID, SEQUENCE, SKIP_BAD_ROWS, BatchTokens, DeviceName, Given, option, takes
from seqloom.cli.predictions import OutputOptions, output_format_of, write_predictions
from seqloom.cli.streaming import require_streamable, write_stream


@takes(
    FILE,
    ID,
    SEQUENCE,
    SKIP_BAD_ROWS,
    common=(
        "out",
        "output_format",
        "with_input",
        "stream",
        "input",
        "id",
        "format",
        "skip_bad_rows",
        "batch_tokens",
        "device",
    ),
    examples=(
        "seqloom predict runs/reviews-classify-cnn new.csv --out predictions.csv",
        "seqloom predict runs/reviews-classify-cnn 'a fine film'",
        "tail -f lines.log | seqloom predict runs/reviews-classify-cnn -",
    ),
)
def predict(
    model: Model,
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A file of inputs, a text in quotes, or - for lines of standard input."),
    ],
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the predictions here (default: print them).")] = None,
    output_format: Annotated[
        str | None,
        option(
            "--output-format",
            "NAME",
            "Format of the predictions: jsonl, csv or text (default: from the extension of --out, else jsonl).",
        ),
    ] = None,
    with_input: Annotated[
        bool, option("--with-input", None, "Also write each input next to its prediction (default: off).")
    ] = False,
    stream: Annotated[
        bool,
        option("--stream", None, "Read FILE as one endless sequence, with a prediction at each step (default: off)."),
    ] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Make a prediction for every row of a file. The predictions are in the order of the rows, one per line."""
    output = OutputOptions(output_format_of(output_format, out), out, with_input)
    require_another(source, out)
    require_readable(given)
    if stream:
        require_streamable(given, output)
    loaded = load_on(model, device)
    with exact(deterministic):
        if stream:
            return write_stream(loaded, PredictRequest.of(loaded, source, given), output, batch_tokens)
        return write_predictions(loaded, PredictRequest.of_argument(loaded, source, given), output, batch_tokens)
