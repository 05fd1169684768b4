"""`seqloom doctor`: what is wrong with a run, and which flag to change."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.options import option
from seqloom.cli.terminal import Screen


def doctor(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a run, also of one that is still training.")
    ],
    json: Annotated[bool, option("--json", None, "Print the diagnosis as JSON.")] = False,
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
        return screen.say_json(found.to_json())
    screen.show(found)
    return None if html is None else screen.say("", f"The diagnosis is written to {html}")
