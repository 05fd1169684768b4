"""`seqloom generate`: what a language model writes after a prompt; on a terminal, as it is written."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import msgspec
import typer

from seqloom.cli.answers import rounded
from seqloom.cli.predict import Model, load_on
from seqloom.cli.screen import Screen
from seqloom.data.problems import Ledger
from seqloom.errors import ConfigError, near_name

if TYPE_CHECKING:
    from seqloom.config.decoding import AnyDecoding
    from seqloom.loaded import LoadedModel

FORMS = ("text", "jsonl")
MARKS = {r"\n": "\n", r"\t": "\t"}  # what a shell cannot easily say

Temperature = Annotated[float | None, typer.Option(help="Draw symbols: below 1 bolder than the model, above varied.")]
TopK = Annotated[int | None, typer.Option("--top-k", metavar="COUNT", help="Draw from so many likeliest symbols.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Draw from the fewest with so much probability.")]
MinP = Annotated[float | None, typer.Option("--min-p", help="Draw from those with this share of the likeliest's.")]
Beam = Annotated[int | None, typer.Option("--beam", metavar="WIDTH", help="Search with so many texts side by side.")]
Count = Annotated[int | None, typer.Option("--count", metavar="COUNT", help="Answers: drawn ones, or a beam's best.")]
LengthPenalty = Annotated[float | None, typer.Option("--length-penalty", help="Of a beam: above 0 favours long texts.")]
Repetition = Annotated[float | None, typer.Option(help="Said symbols are so many times less likely, from 1 on.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help=r"End before it; \n is a line end.")]
Longest = Annotated[int | None, typer.Option("--longest", metavar="COUNT", help="Symbols of an answer, at most.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="NUMBER", help="Draw with it: the same, the same answer.")]


class Prompt(NamedTuple):
    """A prompt, and where it stood."""

    text: str
    place: dict[str, Any]


def generate(
    model: Model,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="Texts to go on with.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="One prompt a line.")] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    beam: Beam = None,
    count: Count = None,
    length_penalty: LengthPenalty = None,
    repetition: Repetition = None,
    stop: Stop = None,
    longest: Longest = None,
    seed: Seed = None,
    form: Annotated[str, typer.Option("--as", metavar="FORM", help="text or jsonl.")] = "text",
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Go on with texts: prompts from the command line, a file, or the lines of standard input."""
    if form not in FORMS:
        raise ConfigError(f"--as {form!r}", fix=f"choose from {', '.join(FORMS)}")
    if prompts and file is not None:
        raise ConfigError(f"prompts on the command line and in {file}", fix="leave the one or the other out")
    how = _decoding(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        width=beam,
        length_penalty=length_penalty,
        repetition=repetition,
        stop=tuple(MARKS.get(text, text) for text in stop) if stop else None,
        longest=longest,
        seed=seed,
        **{"count" if beam is None else "best": count},
    )
    given = _prompts(prompts, file)
    loaded, screen = load_on(model, device), Screen()
    if screen.is_terminal and form == "text" and len(given) == 1 and how.abreast == 1:
        return _stream(screen, loaded, given[0].text, how)
    return _write(screen, loaded, given, how, form)


def _decoding(**settings: Any) -> "AnyDecoding":
    from seqloom.config.decoding import decoding

    return decoding(**{name: value for name, value in settings.items() if value is not None})


def _prompts(named: list[str] | None, file: Path | None) -> list[Prompt]:
    """The prompts, wherever they are; lines of standard input where none is named."""
    if named:
        return [Prompt(text, {"prompt": text}) for text in named]
    if file is None:
        found = _lines(cast(io.BufferedReader, sys.stdin.buffer), "standard input")
    elif not file.is_file():
        raise ConfigError(f"no file {file}", fix=near_name(file))
    else:
        with file.open("rb") as stream:
            found = _lines(stream, str(file))
    if not found:
        raise ConfigError("no prompt to go on with", fix='give one: seqloom generate RUN "Once upon a time"')
    return found


def _lines(stream: io.BufferedReader, name: str) -> list[Prompt]:
    """One prompt a line; blank lines are passed over, and a bad one is told before any work."""
    from seqloom.data.arriving import Arriving

    ledger = Ledger()
    examples = [one for some in Arriving(stream, "text", ledger, name=name).texts() for one in some]
    ledger.close()
    return [Prompt(str(one.input), {"line": one.place.line, "prompt": str(one.input)}) for one in examples]


def _stream(screen: Screen, loaded: "LoadedModel", prompt: str, how: "AnyDecoding") -> None:
    """Show the prompt, and what follows it as it is written."""
    screen.print(prompt, end="", markup=False, soft_wrap=True)
    for piece in loaded.stream(prompt, decoding=how):
        screen.print(piece, end="", markup=False, soft_wrap=True)
    screen.print()


def _write(screen: Screen, loaded: "LoadedModel", given: list[Prompt], how: "AnyDecoding", form: str) -> None:
    """Show all answers, those to one prompt one after another."""
    answered = loaded.generate([prompt.text for prompt in given], decoding=how)
    for (text, place), answers in zip(given, answered, strict=True):
        for number, answer in enumerate(answers, 1):
            which = {"answer": number} if how.abreast > 1 else {}
            said = rounded(answer.to_json())
            line = msgspec.json.encode(place | which | said).decode() if form == "jsonl" else text + said["text"]
            screen.print(line, markup=False, soft_wrap=True)
