"""`seqloom generate`: continue prompts with a language model; on a terminal the text is streamed.

The output has the same lines as `predict`. A bad prompt is reported with its line.
"""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from seqloom.cli.inputs import STANDARD_INPUT, Model, load_on, require_another
from seqloom.cli.options import DeviceName, Given, decoding_of, option, reworded, takes
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
from seqloom.config.data import BadRows, DataConfig
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
WRITING = reworded(
    settings(SampleConfig) | settings(BeamConfig, "beam_size", "n_best", "length_penalty"),
    beam_size="Beam search with this many beams; 1 is greedy (default: no beam search).",
    max_new_tokens="Maximum number of tokens to generate (default: 64).",
)


@takes(
    WRITING,
    reworded(
        settings(DataConfig, "skip_bad_rows"),
        skip_bad_rows="Skip prompts that cannot be read, such as lines that are not valid UTF-8, and list them, "
        "instead of stopping with an error (default: --no-skip-bad-rows).",
    ),
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
        option("--file -f", "FILE", "Read prompts from this file, one per line (default: PROMPT, or standard input)."),
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
    skip = with_flags(BadRows(), given).skip_bad_rows
    form = (
        output_format_of(output_format, out)
        if output_format is not None or (out is not None and out.suffix)
        else "text"
    )
    require_another(str(file or STANDARD_INPUT), out)
    if prompts and file is not None:
        raise ConfigError(f"prompts are given on the command line and in {file}", fix="leave one of them out")
    writing = {name: given[name] for name in WRITING if name in given}
    if "stop" in writing:
        writing["stop"] = [MARKS.get(text, text) for text in writing["stop"]]
    how = decoding_of(writing)
    from seqloom.inference.prediction import BadRowLedger

    ledger = BadRowLedger() if skip else Ledger()
    asked = _prompts(prompts, file, ledger)
    loaded, screen = load_on(model, device), Screen()
    if screen.is_terminal and form == "text" and out is None and len(asked) == how.abreast == 1:
        return _stream(screen, loaded, asked[0], how, ledger)
    return _write(loaded, asked, how, ledger, form, out)


def _prompts(named: list[str] | None, file: Path | None, ledger: Ledger) -> "list[Prompt]":
    """Return the prompts from the command line, a file, or standard input."""
    from seqloom.inference.generation import Prompt

    if named:
        return [Prompt(text, Place("prompts", number)) for number, text in enumerate(named, 1)]
    if file is None:
        found = _lines(cast(io.BufferedReader, sys.stdin.buffer), "standard input", ledger)
    elif not file.is_file():
        raise ConfigError(f"no file {file}", fix=near_name(file))
    else:
        with file.open("rb") as stream:
            found = _lines(stream, str(file), ledger)
    if not found and not ledger.skipped:
        raise ConfigError("there is no prompt", fix='give one: seqloom generate RUN "Once upon a time"')
    return found


def _lines(stream: io.BufferedReader, name: str, ledger: Ledger) -> "list[Prompt]":
    """Return one prompt per line; skip blank lines, and report bad ones before any work."""
    from seqloom.data.inputs import StreamReader
    from seqloom.data.kinds.text import TextInput
    from seqloom.inference.generation import Prompt

    examples = [one for some in StreamReader(stream, TextInput(), ledger, name=name).texts() for one in some]
    ledger.close()
    return [Prompt(str(one.input), one.place) for one in examples]


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
    write_lines(ordered, form, out, BLOCK, last)
    print_summary(ledger, out)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)
