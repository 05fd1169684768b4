"""`seqloom data list` and `seqloom data get NAME`: the data sets that are known by name."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from seqloom.cli.screen import Screen
from seqloom.data.sources import SOURCES, Shelves, Source, usual_shelves
from seqloom.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seqloom.data.sources.fetching import Event


def list_sources() -> None:
    """List the known data sets: what each is, how many rows it has, its licence, and whether it is here."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "task"):
        table.add_column(heading, no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what it is")
    for row in (*_known(usual_shelves()), *_embedded()):
        table.add_row(*row)
    console = Screen()
    console.print(table)
    console.print(
        "\n`seqloom data get NAME` brings a set here; embedded ones are written by a seed and need no file.\n"
        "A folder of sets of your own is named by SEQLOOM_DATA.",
    )


def _known(shelves: Shelves) -> Iterator[tuple[str, ...]]:
    for source in SOURCES.values():
        here = all(shelves.find(file) for file in source.every_file())
        rows = sum(source.rows().values())
        about = f"{escape(source.description)}\n[dim]licence: {escape(source.licence)}[/dim]"
        yield source.name, source.task or "search", f"{rows:,}", "yes" if here else "no", about


def _embedded() -> Iterator[tuple[str, ...]]:
    from seqloom.data.synthetic import NAMES  # needs numpy, and `seqloom --help` does not

    for one in NAMES.values():
        yield one.name, one.task, f"{sum(one.sizes):,}", "embedded", escape(one.description)


def get_source(name: Annotated[str, typer.Argument(help="The name of a set; `seqloom data list` shows them.")]) -> None:
    """Bring a known data set here: copied from SEQLOOM_DATA or downloaded, and verified."""
    console = Screen()
    if name in SOURCES:
        _get(SOURCES[name], console)
    else:
        _explain(name, console)


def _get(source: Source, console: Screen) -> None:
    from seqloom.data.sources.fetching import get_source as fetch  # needs an http client, and `--help` does not

    shelves = usual_shelves()
    for line in _about(source):
        console.print(line, markup=False, soft_wrap=True)
    written = _watch(fetch(source, shelves), console)
    console.print(f"{_summary(source, written)}: {shelves.own}", markup=False, soft_wrap=True)


def _explain(name: str, console: Screen) -> None:
    from seqloom.data.synthetic import NAMES

    if name not in NAMES:
        raise ConfigError(f"there is no data set '{name}'", fix=did_you_mean(name, [*SOURCES, *NAMES]))
    console.print(f"'{name}' is embedded: it is written by a seed and needs no file", markup=False, soft_wrap=True)


def _about(source: Source) -> Iterator[str]:
    yield f"{source.name}: {source.description}"
    yield "rows:     " + ", ".join(f"{part} {rows:,}" for part, rows in source.rows().items())
    yield f"licence:  {source.licence}"
    yield f"cite:     {source.citation}"
    yield f"origin:   {source.origin}"


def _watch(events: "Iterable[Event]", console: Screen) -> int:
    """How many files were written; downloads are shown with the time that is left."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    written = 0
    silent = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=silent) as progress:
        bars = {}
        for event in events:
            if event.action == "downloading":
                if event.file not in bars:
                    bars[event.file] = progress.add_task(event.file.plain, total=event.total)
                progress.update(bars[event.file], completed=event.done, total=event.total)
            else:
                words = {"here": "already here, verified", "copied": "read and verified", "written": "written"}
                console.print(f"{words[event.action]}: {event.path}", markup=False, soft_wrap=True)
            written += event.action == "written"
    return written


def _summary(source: Source, written: int) -> str:
    count = sum(1 for _ in source.every_file())
    if not written:
        return f"nothing to do, all {count} files of '{source.name}' were here and are verified"
    return f"'{source.name}' is here, {written} of its {count} files are new"
