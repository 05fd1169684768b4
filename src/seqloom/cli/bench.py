"""`seqloom bench`: how fast a model is on this machine, with advice; or which kernels its layers use."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.options import DeviceName, option, require_device, takes
from seqloom.cli.terminal import Screen
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.experiments.bench.explain import KernelReport
    from seqloom.experiments.bench.speed import SpeedReport


@takes(
    examples=(
        "seqloom bench runs/reviews-classify-cnn",
        "seqloom bench --explain runs/reviews-classify-cnn",
    ),
    common=("explain", "seconds", "json", "html"),
)
def bench(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; its data is used, and nothing changes.")],
    explain: Annotated[
        bool,
        option(
            "--explain",
            None,
            "Show which kernel each layer uses on this machine, and why faster ones cannot be used, instead of "
            "measuring (default: off).",
        ),
    ] = False,
    seconds: Annotated[
        float | None, option("--seconds", "NUMBER", "Measure for about this many seconds (default: 30).")
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the result as JSON (default: text).")] = False,
    html: Annotated[
        Path | None, option("--html", "FILE", "Also write the result to this HTML file (default: off).")
    ] = None,
    device: DeviceName = "auto",
) -> None:
    """Measure how fast a model trains and predicts on this machine, and advise threads, batch size and precision."""
    if explain and seconds is not None:
        raise ConfigError("--seconds is for measuring, but --explain does not measure", fix="leave one of them out")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds {seconds:g}", fix="give a number above 0")
    if html is not None:
        from seqloom.data.problems import Ledger
        from seqloom.data.readers.files import require_writable

        require_writable(html, (), Ledger())
    from seqloom.experiments.bench import speed

    require_device(device)
    found: KernelReport | SpeedReport
    if explain:
        found = speed.explain(model, device=device)  # type: ignore[arg-type]  # one of the four
    else:
        found = speed.bench(model, device=device, seconds=seconds or 30.0)  # type: ignore[arg-type]
    screen = Screen()
    if html is not None:
        from seqloom.files.disk import write_file

        write_file(html, found.html())
    if json:
        return screen.say_json(found.to_json())
    screen.show(found)
    return None if html is None else screen.say("", f"The result is written to {html}")
