"""`seqloom data`: look at data before anything is trained on it, and get known sets."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from seqloom.cli.options import DATA, Data, Given, encoded, option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.data import PARTS, DataConfig, EncodingConfig, Task
from seqloom.config.options import with_flags
from seqloom.data.problems import Ledger
from seqloom.data.readers.files import require_writable
from seqloom.errors import ConfigError, RejectedError, did_you_mean
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.download import Event, NamedSource
    from seqloom.data.report import DataReport

SEARCH = "search"  # sets of tables, without a task of their own
TASKS = (*get_args(Task), SEARCH)
INDENT = "  "


class Listed(NamedTuple):
    """What is said about a set in the list."""

    name: str
    task: str
    rows: dict[str, int]
    here: str  # yes, no (it can be fetched), by hand (it cannot), embedded (it needs no file)
    description: str
    licence: str | None


def list_sources(
    task: Annotated[str | None, typer.Option(help=f"Only sets for this task: {', '.join(TASKS)}.")] = None,
    json: Annotated[bool, option("--json", None, "Print the list as JSON.")] = False,
) -> None:
    """List the known data sets: what each is, how many rows it has, its licence, and whether it is here."""
    if task is not None and task not in TASKS:
        raise ConfigError(f"there is no task '{task}'", fix=did_you_mean(task, TASKS))
    sets = [one for one in _known() if task in (None, one.task)]
    if json:
        return Screen().say_json([one._asdict() for one in sets])
    return _print_list(sets, Screen())


def _print_list(sets: list[Listed], console: Screen) -> None:
    """A line of columns for each set, and what it is below, so that a narrow terminal shows all of it."""
    name, task, rows = (max(map(len, column)) for column in zip(*map(_columns, sets), strict=True))
    console.print(f"[bold]{'name':<{name}}  {'task':<{task}}  {'rows':>{rows}}  here[/bold]")
    for one in sets:
        first, second, third = _columns(one)
        console.print(f"\n[bold]{first:<{name}}[/bold]  {second:<{task}}  {third:>{rows}}  {one.here}")
        console.print(_indented(one.description, console))
        if one.licence is not None:
            console.print(f"[dim]{_indented(f'licence: {one.licence}', console)}[/dim]")
    console.print(
        "\n`seqloom data get NAME` brings a set here; for those marked 'by hand' it says which files to put where. "
        "Embedded ones are written by a seed and need no file. A folder of sets of your own is named by SEQLOOM_DATA."
    )


def _indented(text: str, console: Screen) -> str:
    return escape(fill(text, console.width, initial_indent=INDENT, subsequent_indent=INDENT))


def _columns(one: Listed) -> tuple[str, str, str]:
    return one.name, one.task, f"{sum(one.rows.values()):,}"


def _known() -> Iterator[Listed]:
    """The sets of files, then the embedded ones."""
    from seqloom.data.download import usual_shelves
    from seqloom.data.sources import SOURCES
    from seqloom.data.synthetic.registry import NAMES  # needs numpy, and `seqloom --help` does not

    shelves = usual_shelves()
    for source in SOURCES.values():
        here = all(shelves.find(file) for file in source.every_file())
        state = "yes" if here else "no" if source.has_addresses() else "by hand"
        yield Listed(source.name, source.task or SEARCH, source.rows(), state, source.description, source.licence)
    for one in NAMES.values():
        yield Listed(one.name, one.task, dict(zip(PARTS, one.sizes, strict=True)), "embedded", one.description, None)


def get_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a set; `seqloom data list` shows them.")],
) -> None:
    """Bring a known data set here: copied from SEQLOOM_DATA or downloaded, and verified."""
    from seqloom.data.sources import SOURCES

    console = Screen()
    if name not in SOURCES:
        from seqloom.data.synthetic.registry import NAMES

        if name not in NAMES:
            raise ConfigError(f"there is no data set '{name}'", fix=did_you_mean(name, [*SOURCES, *NAMES]))
        return console.say(f"'{name}' is embedded: it is written by a seed and needs no file")
    from seqloom.data.download import get_source as fetch
    from seqloom.data.download import usual_shelves

    source, shelves = SOURCES[name], usual_shelves()
    console.say(
        f"{source.name}: {source.description}",
        "rows:     " + ", ".join(f"{part} {rows:,}" for part, rows in source.rows().items()),
        f"licence:  {source.licence}",
        f"cite:     {source.citation}",
        f"origin:   {source.origin}",
    )
    written = _watch(fetch(source, shelves), console)
    return console.say(f"{_summary(source, written)}: {shelves.own}")


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
                console.say(f"{words[event.action]}: {event.path}")
            written += event.action == "written"
    return written


def _summary(source: "NamedSource", written: int) -> str:
    count = sum(1 for _ in source.every_file())
    if not written and count == 1:
        return f"nothing to do, the file of '{source.name}' was here and is verified"
    if not written:
        return f"nothing to do, all {count} files of '{source.name}' were here and are verified"
    return f"'{source.name}' is here, {written} of its {counted(count, 'file')} {'is' if written == 1 else 'are'} new"


app = typer.Typer(help="Look at data, list and get known sets.", no_args_is_help=True, rich_markup_mode=None)
app.command("list")(list_sources)
app.command("get")(get_source)


@app.command("check")
@takes(DATA)
def check(
    data: Data,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Symbols in one batch; else as many as training chooses.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report to this HTML file.")] = None,
    json: Annotated[bool, option("--json", None, "Print the report as JSON.")] = False,
    *,
    given: Given,
) -> None:
    """Read data as training would, and say what is in it and what looks wrong."""
    config, how = with_flags(DataConfig(train=tuple(data)), given), encoded(given) or EncodingConfig()
    with _refusals(json):
        if html is not None:
            require_writable(html, map(Path, (*data, *config.dev, *config.test)), Ledger())
        from seqloom.data.check import looking

        report = followed_work(looking(config, how, Ledger(config.bad_rows), budget=budget))
    _show(report, html, json)


@contextmanager
def _refusals(json: bool) -> Iterator[None]:
    """Inside, what is refused is also printed as JSON, if that is wanted: programs read no messages."""
    try:
        yield
    except RejectedError as error:
        if json:
            Screen().say_json({"verdict": "refused", "problems": error.details, "total": error.total})
        raise


def _show(report: "DataReport", html: Path | None, json: bool) -> None:
    screen = Screen()
    if html is not None:
        from seqloom.files.disk import write_file

        write_file(html, report.html())
    if json:
        screen.say_json(report.to_json())
    else:
        screen.show(report)
        screen.say(*([] if html is None else ["", f"The report is written to {html}"]))
    if report.verdict == "refused":
        raise typer.Exit(2)
