"""`seqloom verify`: promises proved on one's own configuration."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from seqloom.cli.options import option
from seqloom.cli.terminal import Screen
from seqloom.files.layouts import RunFile

app = typer.Typer(help="Prove promises on your own configuration.", no_args_is_help=True, rich_markup_mode=None)
SHOWN = 16  # characters of a sum


@app.callback()
def _verify() -> None:
    """Prove promises on your own configuration."""


@app.command("resume")
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run; it is read, and not changed.")],
    steps: Annotated[int, typer.Option(metavar="N", help="Length of the runs that are compared.")] = 12,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    json: Annotated[bool, option("--json", None, "Print the proof as JSON.")] = False,
) -> None:
    """Train a few steps, kill the same run in the middle and let it go on, and compare every byte of both.

    The exit code is 0 if they are equal, 1 if not.
    """
    from seqloom.training.verification import verify_resume

    if not json and (run / RunFile.CONFIG).is_file():  # else there is nothing to train, and it is refused
        note = f"training {steps} steps of {run} three times, in a temporary folder: whole, killed, resumed"
        Screen(stderr=True).say(note)
    proof = verify_resume(run, steps=steps, device=device)
    if json:
        Screen().say_json(proof.to_json())
    else:
        screen, table = Screen(), Table(box=None, pad_edge=False)
        for head in ("part", "not stopped", "killed and resumed", ""):
            table.add_column(head, no_wrap=True)
        for part in proof.parts:
            table.add_row(part.part, part.whole[:SHOWN], part.resumed[:SHOWN], "equal" if part.equal else "DIFFERENT")
        screen.print(table)
        lost = proof.killed_in - proof.resumed_from
        screen.print(
            f"\nkilled in step {proof.killed_in} of {proof.steps}, resumed from step {proof.resumed_from}: "
            f"{lost} steps were taken again\n{proof.verdict}",
            markup=False,
            soft_wrap=True,
        )
    raise typer.Exit(0 if proof.equal else 1)
