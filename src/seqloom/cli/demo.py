"""`seqloom demo`: the pieces that exist, at work. Everything shown is computed while you watch."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress
from rich.text import Text

from seqloom.cli.screen import Screen
from seqloom.data.opening.files import require_writable
from seqloom.data.problems import Ledger

if TYPE_CHECKING:
    from seqloom.figures import Figure


def demo(
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the pictures to this HTML file.")
    ] = None,
) -> None:
    """Show every family at work: in steps and at once, learning from embedded data, and inside."""
    if save is not None:
        require_writable(save, (), Ledger())
    console = Screen()
    console.print("Building each family and reading 64 symbols at once, then in steps of 1 to 7:")
    import torch  # a second or two

    from seqloom import demonstration, durable, figures

    torch.set_num_threads(1)  # models as small as these only make several threads wait for one another

    began = time.perf_counter()
    names, results = demonstration.families(), []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("families", total=len(names))
        for name in names:
            results.append(demonstration.read_in_steps(name))
            progress.advance(task)
    for result in results:
        verdict = "the same" if result.gap <= result.allowed else "NOT THE SAME"
        weights = f"{result.parameters:>7,} weights"
        console.print(f"  {result.name:17} {weights}   largest difference {result.gap:.1e}   {verdict}", soft_wrap=True)
    data = demonstration.questions()
    counts = ", ".join(f"{part} {len(rows):,}" for part, rows in data.parts.items())
    console.print(f"\nTraining four tiny models on the embedded set 'questions' ({counts} sentences):")
    scores = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=len(demonstration.LEARNERS))
        for name in demonstration.LEARNERS:
            scores[name] = demonstration.learn(name, data)
            progress.advance(task)
    pictures: list[Figure] = [
        demonstration.order_matters(scores),
        demonstration.soft_lookup(),
        demonstration.gradient_reach(),
        demonstration.positions(),
    ]
    coloured = console.color_system is not None and not console.no_color
    for picture in pictures:
        drawn = picture.text(width=max(40, min(100, console.width)), colour=coloured)
        console.print("\n", Text.from_ansi(drawn), sep="", end="\n", soft_wrap=True)
    console.print(
        f"\nOnly the four models of the first picture were trained. {time.perf_counter() - began:.1f} s in all."
    )
    if any(result.gap > result.allowed for result in results):
        raise typer.Exit(1)
    if save is not None:
        durable.write_file(save, figures.page("Seqloom: the pieces", pictures))
        console.print(f"Pictures written to {save}", soft_wrap=True)
