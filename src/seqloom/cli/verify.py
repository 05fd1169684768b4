"""`seqloom verify`: check on your own run that resuming is exact."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from seqloom.cli.options import Verb, option, takes
from seqloom.cli.terminal import Screen
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import counted

app = typer.Typer(
    help="Check that a resumed run equals an uninterrupted one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
SHOWN = 16  # characters of a checksum


@app.callback()
def _verify() -> None:
    """Check that a resumed run equals an uninterrupted one."""


@app.command(
    "resume", cls=Verb, short_help="Kill and resume a short copy of a run, and compare it with an uninterrupted copy."
)
@takes(examples=("seqloom verify resume runs/reviews-classify-cnn", "seqloom verify resume runs/lm --steps 40"))
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; it is not changed.")],
    steps: Annotated[int, option("--steps", "COUNT", "Number of training steps in each test run (default: 12).")] = 12,
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"],
        option("--device", "NAME", "Device: auto, cpu, cuda or mps (default: auto, a GPU if there is one)."),
    ] = "auto",
    json: Annotated[bool, option("--json", None, "Print the result as JSON (default: text).")] = False,
) -> None:
    """Check that a killed and resumed run has the same weights and state, byte for byte, as an uninterrupted run.

    The exit code is 0 if they are equal, else 1.
    """
    from seqloom.training.verification import verify_resume

    if not json and (run / RunFile.CONFIG).is_file():  # otherwise there is nothing to train, and an error follows
        note = (
            f"training {steps} steps of {run} twice in a temporary folder: once uninterrupted, once killed and resumed"
        )
        Screen(stderr=True).say(note)
    proof = verify_resume(run, steps=steps, device=device)
    if json:
        Screen().say_json(proof.to_json())
    else:
        screen, table = Screen(), Table(box=None, pad_edge=False)
        for head in ("part", "uninterrupted", "killed and resumed", ""):
            table.add_column(head, no_wrap=True)
        for part in proof.parts:
            table.add_row(part.part, part.whole[:SHOWN], part.resumed[:SHOWN], "equal" if part.equal else "DIFFERENT")
        screen.print(table)
        lost = proof.killed_in - proof.resumed_from
        screen.print(
            f"\nkilled in step {proof.killed_in} of {proof.steps}, resumed from step {proof.resumed_from}: "
            f"{counted(lost, 'step')} repeated\n{proof.verdict}",
            markup=False,
            soft_wrap=True,
        )
    raise typer.Exit(0 if proof.equal else 1)
