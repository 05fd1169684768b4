"""`seqloom generate`: what a language model writes after a prompt; on a terminal, as it is written.

Answers are lines as `predict` writes them. A prompt that cannot be answered is told with its line.
"""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from seqloom.cli.answers import ERROR, TOGETHER, AnswerLine, Form, form_of, refused, tell, write_lines
from seqloom.cli.inputs import STANDARD_INPUT, Model, load_on, require_another
from seqloom.cli.options import DeviceName, Given, option, takes, way_to_write
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

MARKS = {r"\n": "\n", r"\t": "\t"}  # what a shell cannot easily say
WRITING = settings(SampleConfig) | settings(BeamConfig, "beam", "length_penalty")


@takes(WRITING, settings(DataConfig, "bad_rows"))
def generate(
    model: Model,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="Texts to go on with.")] = None,
    file: Annotated[Path | None, option("--file -f", "FILE", "One prompt a line.")] = None,
    out: Annotated[Path | None, option("--out -o", "FILE", "Write the answers here.")] = None,
    as_: Annotated[
        str | None, option("--as", "FORM", "text, jsonl or csv; else by the name of --out, or text.")
    ] = None,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Go on with texts: prompts from the command line, a file, or the lines of standard input."""
    skip = with_flags(BadRows(), given).skip
    form = form_of(as_, out) if as_ is not None or (out is not None and out.suffix) else "text"
    require_another(str(file or STANDARD_INPUT), out)
    if prompts and file is not None:
        raise ConfigError(f"prompts on the command line and in {file}", fix="leave the one or the other out")
    writing = {name: given[name] for name in WRITING if name in given}
    if "stop" in writing:
        writing["stop"] = [MARKS.get(text, text) for text in writing["stop"]]
    how = way_to_write(writing)
    from seqloom.inference.prediction import PredictionNote

    ledger = PredictionNote() if skip else Ledger()
    asked = _prompts(prompts, file, ledger)
    loaded, screen = load_on(model, device), Screen()
    if screen.is_terminal and form == "text" and out is None and len(asked) == how.abreast == 1:
        return _stream(screen, loaded, asked[0], how, ledger)
    return _write(loaded, asked, how, ledger, form, out)


def _prompts(named: list[str] | None, file: Path | None, ledger: Ledger) -> "list[Prompt]":
    """The prompts, wherever they are; lines of standard input where none is named."""
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
        raise ConfigError("no prompt to go on with", fix='give one: seqloom generate RUN "Once upon a time"')
    return found


def _lines(stream: io.BufferedReader, name: str, ledger: Ledger) -> "list[Prompt]":
    """One prompt a line; blank lines are passed over, and a bad one is told before any work."""
    from seqloom.data.inputs import Arriving
    from seqloom.data.kinds.text import TextInput
    from seqloom.inference.generation import Prompt

    examples = [one for some in Arriving(stream, TextInput(), ledger, name=name).texts() for one in some]
    ledger.close()
    return [Prompt(str(one.input), one.place) for one in examples]


def _stream(screen: Screen, loaded: "LoadedModel", prompt: "Prompt", how: "AnyDecoding", ledger: Ledger) -> None:
    """Show the prompt, and what follows it as it is written."""
    from seqloom.inference.generation import warn_of_unknown

    pieces = loaded.stream(prompt.text, decoding=how)
    warn_of_unknown(loaded.task, [prompt], ledger)
    tell(ledger, None)
    screen.print(prompt.text, end="", markup=False, soft_wrap=True)
    for piece in pieces:
        screen.print(piece, end="", markup=False, soft_wrap=True)
    screen.print()


def _write(
    loaded: "LoadedModel", given: "list[Prompt]", how: "AnyDecoding", ledger: Ledger, form: Form, out: Path | None
) -> None:
    """Write all answers, those to one prompt one after another, and what is wrong with a prompt in its place."""
    from seqloom.inference.generation import answered, by_number, warn_of_unknown
    from seqloom.inference.model import BUDGET
    from seqloom.inference.prediction import PredictionNote

    said = []
    with work_bar() as show:
        for answer in answered(loaded.task, loaded.model, given, how, ledger, budget=BUDGET):
            said.append(answer)
            show(Progress("answers", len(said), len(given)))
    warn_of_unknown(loaded.task, given, ledger)
    lines = []
    for row, answers in sorted(said, key=by_number):
        prompt = given[row]
        for number, one in enumerate(answers, 1):
            count = {"answer": number} if how.abreast > 1 else {}
            found = rounded_text(one.to_json())
            place = {"line": prompt.place.line, "prompt": prompt.text} | count
            lines.append(AnswerLine(place, found, prompt.text + found["text"]))
    last: tuple[str, ...] = ()
    if isinstance(ledger, PredictionNote):  # prompts that cannot be answered have their lines too
        lines += [refused(problem, problem.place.path) for _, problem in ledger.kept]
        last = (ERROR,)
    ordered = iter(sorted(lines, key=lambda line: line.place["line"]))
    write_lines(ordered, form, out, TOGETHER, last)
    tell(ledger, out)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)
