"""`seqloom data`: check data before training, clean a copy of it, list and download datasets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from seqloom.cli.options import DATA, Data, Given, Verb, option, reworded, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.cleaning import READ_BY, CleaningConfig
from seqloom.config.data import SPLITS, DataConfig, Task, asked_encoding
from seqloom.config.options import BATCHES, said, settings, with_flags
from seqloom.data.problems import Ledger
from seqloom.data.readers.files import require_writable
from seqloom.errors import ConfigError, RejectedError, did_you_mean
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.download import Event, NamedSource
    from seqloom.data.report import DataReport
    from seqloom.report.document import Shown

SEARCH = "search"  # datasets of tables for search, without a task
TASKS = (*get_args(Task), SEARCH)
INDENT = "  "
CheckedBatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        metavar="COUNT",
        rich_help_panel=BATCHES,
        help="Batch size in tokens for the report on padding (default: the default of seqloom train).",
    ),
]


class Listed(NamedTuple):
    """A dataset in the list."""

    name: str
    task: str
    rows: dict[str, int]
    here: str  # yes, no (can be downloaded), by hand (cannot), built-in (needs no file)
    description: str
    license: str | None


@takes(examples=("seqloom data list", "seqloom data list --task translate"))
def list_sources(
    task: Annotated[
        str | None, option("--task", "NAME", f"Only datasets for this task: {', '.join(TASKS)} (default: all).")
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the list as JSON (default: text).")] = False,
) -> None:
    """List the datasets that Seqloom can download or generate.

    The list has description, number of rows and license, and whether a dataset is on this machine.
    """
    if task is not None and task not in TASKS:
        raise ConfigError(f"there is no task '{task}'", fix=did_you_mean(task, TASKS))
    sets = [one for one in _known() if task in (None, one.task)]
    if json:
        return Screen().say_json([one._asdict() for one in sets])
    return _print_list(sets, Screen())


def _print_list(sets: list[Listed], console: Screen) -> None:
    """Print a line for each dataset with its description below, so that it fits a narrow terminal."""
    name, task, rows = (max(map(len, column)) for column in zip(*map(_columns, sets), strict=True))
    console.print(f"[bold]{'name':<{name}}  {'task':<{task}}  {'rows':>{rows}}  downloaded[/bold]")
    for one in sets:
        first, second, third = _columns(one)
        console.print(f"\n[bold]{first:<{name}}[/bold]  {second:<{task}}  {third:>{rows}}  {one.here}")
        console.print(_indented(one.description, console))
        if one.license is not None:
            console.print(f"[dim]{_indented(f'license: {one.license}', console)}[/dim]")
    console.print(
        "\n`seqloom data get NAME` downloads a dataset. For those marked 'by hand' it prints which files to put into "
        "which folder. Built-in datasets are generated and need no file. If you have copies, set the environment "
        "variable SEQLOOM_DATA to their folder."
    )


def _indented(text: str, console: Screen) -> str:
    return escape(fill(text, console.width, initial_indent=INDENT, subsequent_indent=INDENT))


def _columns(one: Listed) -> tuple[str, str, str]:
    return one.name, one.task, f"{sum(one.rows.values()):,}"


def _known() -> Iterator[Listed]:
    """Yield the datasets in files, then the built-in ones."""
    from seqloom.data.download import default_folders
    from seqloom.data.sources import SOURCES
    from seqloom.data.synthetic.registry import NAMES  # needs numpy, and `seqloom --help` does not

    folders = default_folders()
    for source in SOURCES.values():
        here = all(folders.find(file) for file in source.every_file())
        state = "yes" if here else "no" if source.has_addresses() else "by hand"
        yield Listed(source.name, source.task or SEARCH, source.rows(), state, source.description, source.license)
    for one in NAMES.values():
        yield Listed(one.name, one.task, dict(zip(SPLITS, one.sizes, strict=True)), "built-in", one.description, None)


@takes(examples=("seqloom data get reviews", "seqloom data get questions"))
def get_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a dataset; `seqloom data list` shows them.")],
) -> None:
    """Download a dataset, or copy it from the folder in the environment variable SEQLOOM_DATA; verify its checksum."""
    from seqloom.data.sources import SOURCES

    console = Screen()
    if name not in SOURCES:
        from seqloom.data.synthetic.registry import NAMES

        if name not in NAMES:
            raise ConfigError(f"there is no dataset '{name}'", fix=did_you_mean(name, [*SOURCES, *NAMES]))
        return console.say(f"'{name}' is a built-in dataset: it is generated and needs no file")
    from seqloom.data.download import default_folders
    from seqloom.data.download import get_source as fetch

    source, folders = SOURCES[name], default_folders()
    console.say(
        f"{source.name}: {source.description}",
        "rows:     " + ", ".join(f"{part} {rows:,}" for part, rows in source.rows().items()),
        f"license:  {source.license}",
        f"cite:     {source.citation}",
        f"origin:   {source.origin}",
    )
    written = _watch(fetch(source, folders), console)
    return console.say(f"{_summary(source, written)}: {folders.own}")


def _watch(events: "Iterable[Event]", console: Screen) -> int:
    """Return the number of files written; show a progress bar for downloads."""
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
                words = {"here": "exists, verified", "copied": "read and verified", "written": "written"}
                console.say(f"{words[event.action]}: {event.path}")
            written += event.action == "written"
    return written


def _summary(source: "NamedSource", written: int) -> str:
    count = sum(1 for _ in source.every_file())
    if not written and count == 1:
        return f"nothing to do: the file of '{source.name}' exists and is verified"
    if not written:
        return f"nothing to do: all {count} files of '{source.name}' exist and are verified"
    return (
        f"'{source.name}' is complete; {written} of its {counted(count, 'file')} {'is' if written == 1 else 'are'} new"
    )


app = typer.Typer(help="Check and clean data; list and download datasets.", no_args_is_help=True, rich_markup_mode=None)
app.command("list", cls=Verb, short_help="List the datasets that Seqloom can download or generate.")(list_sources)
app.command("get", cls=Verb, short_help="Download a dataset and verify it.")(get_source)


@app.command("check", cls=Verb, short_help="Check a file and report its contents and problems.")
@takes(
    reworded(DATA, tokenizer="Tokenizer: {names} (default: words; seqloom train uses bpe for translate)."),
    common=("html", "json", "dev", "test", "task", "input", "target", "format", "tokenizer", "skip_bad_rows"),
    examples=("seqloom data check reviews.csv", "seqloom data check train.csv --dev dev.csv --html report.html"),
)
def check(
    data: Data,
    html: Annotated[
        Path | None, option("--html", "FILE", "Also write the report to this HTML file (default: off).")
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the report as JSON (default: text).")] = False,
    batch_tokens: CheckedBatchTokens = None,
    *,
    given: Given,
) -> None:
    """Check data: read it in the same way as training, and report its contents and possible problems."""
    config, how = with_flags(DataConfig(train=tuple(data)), given), asked_encoding(given)
    with _refusals(json):
        if html is not None:
            require_writable(html, map(Path, (*data, *config.dev, *config.test)), Ledger())
        from seqloom.data.check import checking

        report = followed_work(checking(config, how, batch_tokens=batch_tokens))
    _show(report, html, json)


@contextmanager
def _refusals(json: bool) -> Iterator[None]:
    """Inside the `with`, also print rejected rows as JSON if `json`."""
    try:
        yield
    except RejectedError as error:
        if json:
            Screen().say_json({"verdict": "errors", "problems": error.details, "total": error.total})
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
    if report.verdict == "errors":
        raise typer.Exit(2)


REPORTS: dict[str, "Callable[[Shown], str]"] = {
    ".html": lambda report: report.html(),
    ".md": lambda report: report.markdown(),
    ".json": lambda report: dumps(report.to_json(), ensure_ascii=False, indent=1) + "\n",
}
CLEANED = settings(DataConfig, *READ_BY)


@app.command("clean", cls=Verb, short_help="Write a cleaned copy of a file and report every change.")
@takes(
    settings(CleaningConfig),
    CLEANED,
    common=(
        "out",
        "dry_run",
        "report",
        "labels",
        "typo_distance",
        "rare",
        "rare_label",
        "conflicts",
        "input",
        "target",
    ),
    examples=(
        "seqloom data clean reviews.csv --dry-run",
        "seqloom data clean reviews.csv -o clean.csv --rare 5 --rare-label other --report changes.html",
    ),
)
def clean(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A csv, tsv, jsonl or conll file; it is not changed.")],
    out: Annotated[
        Path | None,
        option("--out -o", "OUT", "Write the copy to this file, in the same format (default: none, see --dry-run)."),
    ] = None,
    dry_run: Annotated[
        bool,
        option("--dry-run", None, "Only report what would change; write no copy, also not to --out (default: off)."),
    ] = False,
    report: Annotated[
        Path | None,
        option("--report", "FILE", "Also write the report to this .html, .md or .json file (default: off)."),
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the report as JSON (default: text).")] = False,
    *,
    given: Given,
) -> None:
    """Write a cleaned copy of a file and report every change; the file itself is never changed.

    Labels get one spelling, damaged characters are repaired, and empty and repeated rows are dropped. Cleaning the copy
    again changes nothing.
    """
    config = with_flags(DataConfig(train=(str(file),), id=""), given)
    with _refusals(json):
        from seqloom.data.clean import cleaning_steps, require_cleanable

        require_cleanable(file, config.reading, Ledger.of(config))
    if out is None and not dry_run:
        raise ConfigError("there is no name for the copy", fix="-o OUT, or --dry-run to see the changes")
    _require_report(report)
    cleaning = CleaningConfig(**said(CleaningConfig, given))
    with _refusals(json):
        found = followed_work(cleaning_steps(config, cleaning, out=out, dry_run=dry_run))
    if report is not None:
        from seqloom.files.disk import write_file

        write_file(report, REPORTS[report.suffix.lower()](found))
    screen = Screen()
    if json:
        screen.say_json(found.to_json())
    else:
        screen.show(found)
        screen.say(*([] if report is None else ["", f"The report is written to {report}"]))


def _require_report(report: Path | None) -> None:
    """Raise ConfigError, before any work, for a report that cannot be written or would replace a file."""
    if report is None:
        return
    if report.suffix.lower() not in REPORTS:
        raise ConfigError(f"--report {report}: unknown extension", fix=f"use {', '.join(REPORTS)}")
    if report.exists() or report.is_symlink():
        raise ConfigError(f"--report {report} already exists", fix="choose another name, or delete it")
    if not report.parent.is_dir():
        raise ConfigError(f"--report {report}: the folder {report.parent} does not exist", fix="create it first")
