"""`seqloom translate`: a text for each source, a line for each, in the order of the sources."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli.answers import ENDINGS, OTHERS, Form, Wanted, answer, form_of
from seqloom.cli.data_options import BadRowsRule, FileOptions, Sequence, bad_rows, reading_settings
from seqloom.cli.decoding_options import Beam, LengthPenalty, way_to_write
from seqloom.cli.inputs import (
    STANDARD_INPUT,
    Deterministic,
    Model,
    PredictRequest,
    exact,
    load_on,
    reading_of,
    require_another,
)
from seqloom.cli.shared_options import shares
from seqloom.errors import ConfigError


@shares(FileOptions)
def translate(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="A file; else lines of standard input.", show_default=False)
    ] = STANDARD_INPUT,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the texts here.")] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="FORM", help="text, jsonl or csv; else by the name of --out, or text.")
    ] = None,
    beam: Beam = 5,
    length_penalty: LengthPenalty = None,
    coverage_penalty: Annotated[
        float | None, typer.Option(metavar="BETA", help="What it costs that words of the source were not looked at.")
    ] = None,
    best: Annotated[int, typer.Option(metavar="COUNT", help="How many texts for each source, with scores.")] = 1,
    longest: Annotated[
        int | None, typer.Option("--longest", metavar="COUNT", help="Symbols of a text, at most.")
    ] = None,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Copy what the vocabulary lacks from the source.")
    ] = False,
    with_input: Annotated[bool, typer.Option("--with-input", help="Repeat the source beside its text.")] = False,
    sequence: Sequence = None,
    bad_rows_: BadRowsRule = None,
    deterministic: Deterministic = False,
    *,
    shared: FileOptions,
) -> None:
    """Translate every source of a file, or of standard input: a line for each, in their order."""
    from seqloom.data.readers.registry import as_lines

    told, wanted = reading_settings(shared), Wanted(_form(as_, out, best, with_input=with_input), out, with_input)
    bad_rows(bad_rows_, None)  # refused before the model is read
    require_another(source, out)
    settings: dict[str, Any] = {"width": beam, "best": best, "longest": longest}
    settings |= {"length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
    how = way_to_write(settings)
    loaded = load_on(model, shared.device).translator(how, replace_unknown=replace_unknown)
    reading, skip = reading_of(loaded, source, told), bad_rows(bad_rows_, None, loaded.bad_rows).skip
    asked = PredictRequest(source, tuple(shared.input_ or ()), sequence, as_lines(Path(source), reading), skip)
    with exact(deterministic):
        answer(loaded, asked, wanted, shared.budget)


def _form(asked: str | None, out: Path | None, best: int, *, with_input: bool) -> Form:
    """The form of the answers: plain text, unless there is more to say of a source than one line."""
    more = best > 1 or with_input
    named = out is not None and out.suffix.lower() in (*ENDINGS, *OTHERS)  # letters.de is text
    form = form_of(asked, out) if asked is not None or named or more else "text"
    if form == "text" and more:
        what = "--with-input" if with_input else f"--best {best}"
        raise ConfigError(f"{what}: plain text has one line for each source, the best text", fix="--as jsonl")
    return form
