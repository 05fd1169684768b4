"""`seqloom demo`: the pieces that exist, at work. Everything shown is computed while you watch."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from seqloom.figures import Figure


def demo(
    save: Annotated[Path | None, typer.Option(help="Also write the pictures to this HTML file.")] = None,
) -> None:
    """Build every family of language model, read in steps and at once, and draw what is inside."""
    from seqloom import demonstration, durable, figures

    console = Console()
    console.print("Building each family and reading 64 symbols at once, then in steps of 1 to 7:\n")
    began = time.perf_counter()
    names, results = demonstration.families(), []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("families", total=len(names))
        for name in names:
            results.append(demonstration.read_in_steps(name))
            progress.advance(task)
    for result in results:
        verdict = "the same" if result.gap <= result.allowed else "NOT THE SAME"
        console.print(
            f"  {result.name:17} {result.parameters:>9,} weights   largest difference {result.gap:.1e}   {verdict}"
        )
    pictures: list[Figure] = [
        demonstration.soft_lookup(),
        demonstration.gradient_reach(),
        demonstration.positions(),
    ]
    for picture in pictures:
        console.print()
        console.print(picture.text(width=min(100, console.width), colour=console.is_terminal), markup=False, end="")
        console.print()
    console.print(f"\nNothing was trained: these are fresh weights. {time.perf_counter() - began:.1f} s in all.")
    if save is not None:
        durable.write_file(save, figures.page("Seqloom: the pieces", pictures))
        console.print(f"Pictures written to {save}")
