"""`seqloom data`: look at data before anything is trained on it, and get known sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from seqloom.cli import data_options as options
from seqloom.cli.data_sources import get_source, list_sources
from seqloom.cli.screen import Screen
from seqloom.cli.sharing import shares
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.data.opening.files import require_writable
from seqloom.data.problems import Ledger, counted
from seqloom.errors import RejectedError

if TYPE_CHECKING:
    from seqloom.data.report.report import DataReport
    from seqloom.data.survey import Progress as Stage

NARROWEST, WIDEST = 50, 100  # columns of a report

app = typer.Typer(help="Look at data, list and get known sets.", no_args_is_help=True, rich_markup_mode=None)
app.command("list")(list_sources)
app.command("get")(get_source)


@app.command("check")
@shares(options.DataOptions)
def check(
    data: options.Data,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Symbols in one batch; else as many as training chooses.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report to this HTML file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    *,
    shared: options.DataOptions,
) -> None:
    """Read data as training would, and say what is in it and what looks wrong."""
    config = shared.data(data)
    with options.flags_named():
        how = options.encoding_config(*(getattr(shared, name) for name in options.ENCODING))
    with _refusals(json):
        if html is not None:
            require_writable(html, map(Path, (*data, *config.dev, *config.test)), Ledger())
        report = _report(config, how, budget)
    _show(report, html, json)


@contextmanager
def _refusals(json: bool) -> Iterator[None]:
    """Inside, what is refused is also printed as JSON, if that is wanted: programs read no messages."""
    try:
        yield
    except RejectedError as error:
        if json:
            _print_json({"verdict": "refused", "problems": error.details, "total": error.total})
        raise


def _print_json(value: object) -> None:
    Screen().print(msgspec.json.encode(value).decode(), markup=False, soft_wrap=True)


def _report(config: DataConfig, how: EncodingConfig, budget: int | None) -> "DataReport":
    from seqloom.data.report.looking import look

    screen = Screen(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[rows]}"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("reading", total=None, rows="")

        def show(progress: "Stage") -> None:
            total = None if progress.share is None else 1.0  # None leaves what is there
            rows = counted(progress.rows, "row")
            bar.update(work, description=progress.stage, rows=rows, total=total, completed=progress.share)

        return look(config, how, Ledger(config.bad_rows), budget=budget, watch=show)


def _show(report: "DataReport", html: Path | None, json: bool) -> None:
    screen = Screen()
    if html is not None:
        from seqloom.durable import write_file

        write_file(html, report.html())
    if json:
        _print_json(report.data())
    else:
        coloured = screen.color_system is not None and not screen.no_color
        drawn = report.text(width=max(NARROWEST, min(WIDEST, screen.width)), colour=coloured)
        screen.print(Text.from_ansi(drawn), soft_wrap=True)
        if html is not None:
            screen.print(f"\nThe report is written to {html}", soft_wrap=True, markup=False)
    if report.verdict == "refused":
        raise typer.Exit(2)
