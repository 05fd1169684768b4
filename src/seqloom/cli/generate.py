"""`seqloom generate`: continue prompts with a language model; on a terminal the text is streamed.

The output has the same lines as `predict`. A bad prompt is reported with its line.
"""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from seqloom.cli.inputs import STANDARD_INPUT, Model, PredictRequest, load_on, require_another, require_readable
from seqloom.cli.options import (
    FILE,
    SKIP_BAD_ROWS,
    TRAINED_COLUMN,
    DeviceName,
    Given,
    decoding_of,
    option,
    reworded,
    takes,
    with_defaults,
)
from seqloom.cli.predictions import (
    BLOCK,
    ERROR,
    OutputFormat,
    PredictionLine,
    error_line,
    output_format_of,
    print_summary,
    write_lines,
)
from seqloom.cli.terminal import SOME_BAD, Screen, work_bar
from seqloom.config.decoding import BeamConfig, SampleConfig
from seqloom.config.options import settings, with_flags
from seqloom.data.cells import rounded_text
from seqloom.data.problems import Ledger, Place
from seqloom.errors import ConfigError, near_name
from seqloom.events import Progress

if TYPE_CHECKING:
    from seqloom.config.decoding import AnyDecoding
    from seqloom.inference.generation import Prompt
    from seqloom.inference.model import LoadedModel

MARKS = {r"\n": "\n", r"\t": "\t"}  # characters that are hard to type in a shell
WRITING = with_defaults(
    settings(SampleConfig) | settings(BeamConfig, "beam_size", "n_best", "length_penalty"),
    beam_size="no beam search",
    max_new_tokens="64",
)
PROMPTS = reworded(
    FILE,
    input=f"Column with the prompt (default: {TRAINED_COLUMN}).",
    unit="What one prompt of a text file is: {names} (default: line).",
)


@takes(
    WRITING,
    SKIP_BAD_ROWS,
    PROMPTS,
    common=(
        "file",
        "out",
        "max_new_tokens",
        "temperature",
        "top_k",
        "top_p",
        "num_samples",
        "seed",
        "beam_size",
        "device",
    ),
    examples=(
        'seqloom generate runs/stories-lm-gpt "Once upon a time"',
        'seqloom generate runs/stories-lm-gpt "Once" --temperature 0.8 --top-p 0.9 --num-samples 3',
    ),
)
def generate(
    model: Model,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="Texts to continue (default: the lines of standard input)."),
    ] = None,
    file: Annotated[
        Path | None,
        option("--file -f", "FILE", "Read prompts from this file, one per row (default: PROMPT, or standard input)."),
    ] = None,
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the texts here (default: print them).")] = None,
    output_format: Annotated[
        str | None,
        option(
            "--output-format",
            "NAME",
            "Format of the texts: text, jsonl or csv (default: from the extension of --out, else text).",
        ),
    ] = None,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Continue prompts with a language model. The prompts come from the command line, a file or standard input."""
    form = output_format_of(output_format, out, "text")
    require_another(str(file or STANDARD_INPUT), out)
    if prompts and file is not None:
        raise ConfigError(f"prompts are given on the command line and in {file}", fix="leave one of them out")
    writing = {name: given[name] for name in WRITING if name in given}
    if "stop" in writing:
        writing["stop"] = [MARKS.get(text, text) for text in writing["stop"]]
    how = decoding_of(writing)
    from seqloom.inference.generation import Prompt
    from seqloom.inference.prediction import BadRowLedger
    from seqloom.tasks.task import Continuer

    require_readable(given)
    if file is not None and not file.is_file():
        raise ConfigError(f"no file {file}", fix=near_name(file))
    if prompts and len(prompts) == 1 and os.path.isfile(prompts[0]):  # noqa: PTH113 a long text is no error here
        raise ConfigError(
            f"{prompts[0]} is a file, and PROMPT is a text to continue",
            fix=f"read prompts from it with --file {shlex.quote(prompts[0])}, or give the text on standard input",
        )
    loaded, screen = load_on(model, device), Screen()
    Continuer.of(loaded.task)
    ledger = BadRowLedger() if with_flags(loaded.bad_rows, given).skip_bad_rows else Ledger()
    if prompts:
        asked = [Prompt(text, Place("prompts", number)) for number, text in enumerate(prompts, 1)]
    else:
        asked = _prompts(_rows(loaded, file, given), loaded, ledger)
    if screen.is_terminal and form == "text" and out is None and len(asked) == how.abreast == 1:
        return _stream(screen, loaded, asked[0], how, ledger)
    return _write(loaded, asked, how, ledger, form, out)


def _rows(loaded: "LoadedModel", file: Path | None, given: Given) -> PredictRequest:
    """How prompts are read: as the run read its texts, but each line of a text file is one prompt."""
    from seqloom.data.readers.registry import as_lines

    if file is None:
        return PredictRequest.of(loaded, STANDARD_INPUT, given)
    rows = PredictRequest.of(loaded, str(file), given)
    lines = rows.reading if "unit" in given else msgspec.structs.replace(rows.reading, unit=None)
    return rows._replace(reading=as_lines(file, lines))


def _prompts(rows: PredictRequest, loaded: "LoadedModel", ledger: Ledger) -> "list[Prompt]":
    """Return one prompt per row; skip blank lines, and report bad ones before any work."""
    from seqloom.inference.generation import Prompt

    found = [Prompt(str(one.input), one.place) for some in rows.windows(loaded, ledger) for one in some]
    ledger.close()
    if not found and not ledger.skipped:
        raise ConfigError("there is no prompt", fix='give one: seqloom generate RUN "Once upon a time"')
    return found


def _stream(screen: Screen, loaded: "LoadedModel", prompt: "Prompt", how: "AnyDecoding", ledger: Ledger) -> None:
    """Print the prompt, then the generated text as it is generated."""
    from seqloom.inference.generation import warn_of_unknown

    pieces = loaded.stream(prompt.text, decoding=how)
    warn_of_unknown(loaded.task, [prompt], ledger)
    print_summary(ledger, None)
    screen.print(prompt.text, end="", markup=False, soft_wrap=True)
    for piece in pieces:
        screen.print(piece, end="", markup=False, soft_wrap=True)
    screen.print()


def _write(
    loaded: "LoadedModel",
    given: "list[Prompt]",
    how: "AnyDecoding",
    ledger: Ledger,
    form: OutputFormat,
    out: Path | None,
) -> None:
    """Write all generated texts in the order of the prompts; a bad prompt has a line with its error."""
    from seqloom.inference.generation import answered, by_number, warn_of_unknown
    from seqloom.inference.model import BATCH_TOKENS
    from seqloom.inference.prediction import BadRowLedger

    generated = []
    with work_bar() as show:
        for answer in answered(loaded.task, loaded.model, given, how, ledger, batch_tokens=BATCH_TOKENS):
            generated.append(answer)
            show(Progress("texts", len(generated), len(given)))
    warn_of_unknown(loaded.task, given, ledger)
    lines = []
    for row, answers in sorted(generated, key=by_number):
        prompt = given[row]
        for number, one in enumerate(answers, 1):
            count = {"candidate": number} if how.abreast > 1 else {}
            found = rounded_text(one.to_json())
            place = {"line": prompt.place.line, "prompt": prompt.text} | count
            lines.append(PredictionLine(place, found, prompt.text + found["text"]))
    last: tuple[str, ...] = ()
    if isinstance(ledger, BadRowLedger):  # bad prompts have lines too
        lines += [error_line(problem, problem.place.path) for _, problem in ledger.kept]
        last = (ERROR,)
    ordered = iter(sorted(lines, key=lambda line: line.place["line"]))
    replaces = out is not None and out.exists()
    write_lines(ordered, form, out, BLOCK, last)
    print_summary(ledger, out, replaced=replaces)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)
