"""`seqloom translate`: a text for each source, a line for each, in the order of the sources."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.answers import ENDINGS, OTHERS, Form, Wanted, answer, form_of
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
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes, way_to_write
from seqloom.config.data import DataConfig
from seqloom.config.decoding import BeamConfig
from seqloom.config.options import settings
from seqloom.errors import ConfigError

WRITING = settings(BeamConfig, "beam", "length_penalty", "coverage_penalty", "best", "longest")
WRITING |= {name: WRITING[name].showing() for name in ("beam", "best")}


@takes(WRITING, settings(DataConfig, "sequence", "bad_rows"), FILE)
def translate(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="A file; else lines of standard input.", show_default=False)
    ] = STANDARD_INPUT,
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the texts here.")] = None,
    as_: Annotated[
        str | None, option("--as", "FORM", "text, jsonl or csv; else by the name of --out, or text.")
    ] = None,
    replace_unknown: Annotated[
        bool, option("--replace-unknown", None, "Copy what the vocabulary lacks from the source.")
    ] = False,
    with_input: Annotated[bool, option("--with-input", None, "Repeat the source beside its text.")] = False,
    deterministic: Deterministic = False,
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Translate every source of a file, or of standard input: a line for each, in their order."""
    from seqloom.data.readers.registry import as_lines

    wanted = Wanted(_form(as_, out, given.get("best", 1), with_input=with_input), out, with_input)
    require_another(source, out)
    require_readable(given)
    how = way_to_write({"beam": BeamConfig().width} | {name: given[name] for name in WRITING if name in given})
    loaded = load_on(model, device).translator(how, replace_unknown=replace_unknown)
    asked = PredictRequest.of(loaded, source, given)
    with exact(deterministic):
        answer(loaded, asked._replace(reading=as_lines(Path(source), asked.reading)), wanted, budget)


def _form(asked: str | None, out: Path | None, best: int, *, with_input: bool) -> Form:
    """The form of the answers: plain text, unless there is more to say of a source than one line."""
    more = best > 1 or with_input
    named = out is not None and out.suffix.lower() in (*ENDINGS, *OTHERS)  # letters.de is text
    form = form_of(asked, out) if asked is not None or named or more else "text"
    if form == "text" and more:
        what = "--with-input" if with_input else f"--best {best}"
        raise ConfigError(f"{what}: plain text has one line for each source, the best text", fix="--as jsonl")
    return form
