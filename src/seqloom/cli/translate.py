"""`seqloom translate`: one translation per line, in the order of the sources."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.inputs import (
    STANDARD_INPUT,
    Deterministic,
    Model,
    PredictRequest,
    exact,
    load_on,
    require_another,
    require_readable,
)
from seqloom.cli.options import (
    FILE,
    SEQUENCE,
    SKIP_BAD_ROWS,
    BatchTokens,
    DeviceName,
    Given,
    decoding_of,
    option,
    takes,
    with_defaults,
)
from seqloom.cli.predictions import (
    OutputFormat,
    OutputOptions,
    output_format_of,
    write_predictions,
)
from seqloom.config.decoding import BeamConfig
from seqloom.config.options import settings
from seqloom.errors import ConfigError

WRITING = with_defaults(
    settings(BeamConfig, "beam_size", "length_penalty", "coverage_penalty", "n_best", "max_new_tokens"),
    beam_size="5",
    max_new_tokens="grows with the length of the source",
)


@takes(
    WRITING,
    SEQUENCE,
    SKIP_BAD_ROWS,
    FILE,
    common=(
        "out",
        "output_format",
        "with_input",
        "beam_size",
        "n_best",
        "length_penalty",
        "max_new_tokens",
        "replace_unknown",
        "batch_tokens",
        "device",
    ),
    examples=(
        "seqloom translate runs/en-fr-translate-transformer new.en --out new.fr",
        "echo 'two dogs run' | seqloom translate runs/en-fr-translate-transformer --n-best 3",
    ),
)
def translate(
    model: Model,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file with the texts to translate, or one text in quotes (default: lines of standard input).",
            show_default=False,
        ),
    ] = STANDARD_INPUT,
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the texts here (default: print them).")] = None,
    output_format: Annotated[
        str | None,
        option(
            "--output-format",
            "NAME",
            "Format of the texts: text, jsonl or csv (default: from the extension of --out, else text).",
        ),
    ] = None,
    replace_unknown: Annotated[
        bool,
        option(
            "--replace-unknown",
            None,
            "Replace each unknown token with the source word that has the highest attention weight (default: off).",
        ),
    ] = False,
    with_input: Annotated[
        bool, option("--with-input", None, "Also write each input next to its translation (default: off).")
    ] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Translate each line of a file or of standard input. The translations are in the same order, one per line."""
    from seqloom.data.readers.registry import as_lines

    output = OutputOptions(_form(output_format, out, given.get("n_best", 1), with_input=with_input), out, with_input)
    require_another(source, out)
    require_readable(given)
    how = decoding_of({"beam_size": BeamConfig().beam_size} | {name: given[name] for name in WRITING if name in given})
    loaded = load_on(model, device).translator(how, replace_unknown=replace_unknown)
    asked = PredictRequest.of_argument(loaded, source, given)
    with exact(deterministic):
        lines = as_lines(Path(asked.source), asked.reading)
        write_predictions(loaded, asked._replace(reading=lines), output, batch_tokens)


def _form(asked: str | None, out: Path | None, best: int, *, with_input: bool) -> OutputFormat:
    """Return the output format: plain text, unless a source has several lines of output."""
    more = best > 1 or with_input
    form = output_format_of(asked, out, "jsonl" if more else "text")  # new.de is text
    if form == "text" and more:
        what = "--with-input" if with_input else f"--n-best {best}"
        raise ConfigError(
            f"{what} needs another format: plain text has one line per source", fix="--output-format jsonl"
        )
    return form
