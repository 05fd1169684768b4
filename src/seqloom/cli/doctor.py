"""`seqloom doctor`: what is wrong with a run, and which flag to change."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from seqloom.cli.terminal import Screen

NARROWEST, WIDEST = 50, 100  # columns


def doctor(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run, also of one that is still training.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the diagnosis to this HTML file.")
    ] = None,
) -> None:
    """Look at a run and say what is wrong: with numbers, a picture, and the flag of seqloom train to change."""
    if html is not None:
        from seqloom.data.problems import Ledger
        from seqloom.data.readers.files import require_writable

        require_writable(html, (), Ledger())
    from seqloom.experiments.doctor.diagnosis import diagnose

    found, screen = diagnose(run), Screen()
    if html is not None:
        from seqloom.files.disk import write_file

        write_file(html, found.html())
    if json:
        screen.print(msgspec.json.encode(found.to_json()).decode(), markup=False, soft_wrap=True)
        return
    coloured = screen.color_system is not None and not screen.no_color
    drawn = found.text(width=max(NARROWEST, min(WIDEST, screen.width)), colour=coloured)
    screen.print(Text.from_ansi(drawn), soft_wrap=True)
    if html is not None:
        screen.print(f"\nThe diagnosis is written to {html}", soft_wrap=True, markup=False)
