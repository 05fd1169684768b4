"""`seqloom doctor`: what is wrong with a run, and which flag to change."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen


@takes(
    examples=(
        "seqloom doctor runs/reviews-classify-cnn",
        "seqloom doctor runs/reviews-classify-cnn --html diagnosis.html",
    )
)
def doctor(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; the run may still be training.")],
    json: Annotated[bool, option("--json", None, "Print the diagnosis as JSON (default: text).")] = False,
    html: Annotated[
        Path | None, option("--html", "FILE", "Also write the diagnosis to this HTML file (default: off).")
    ] = None,
) -> None:
    """Diagnose a run: find problems, show the numbers behind them, and suggest options of seqloom train to change."""
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
