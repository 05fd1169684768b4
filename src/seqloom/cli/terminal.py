"""What the verbs print on."""

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text
from typer.core import TyperCommand

from seqloom.cli.options import OF_FILES
from seqloom.errors import DamagedError, RepeatError
from seqloom.events import Event, Progress, Result, Show, finished

if TYPE_CHECKING:
    from seqloom.report.document import Document, Shown
    from seqloom.report.figures.figure import Figure

NARROWEST, WIDEST = 50, 110  # columns of a document


class Screen(Console):
    """A console that shows text as it stands; a reader who leaves a pipe early has seen enough: no error."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, emoji=False, stderr=stderr)

    def on_broken_pipe(self) -> None:
        """Stop writing and end the command, as rich does, but with exit code 0."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None

    def say(self, *lines: str) -> None:
        """Print lines as they stand, however long."""
        for line in lines:
            self.print(line, markup=False, soft_wrap=True)

    def say_json(self, value: Any) -> None:
        """Print plain values for programs."""
        self.say(msgspec.json.encode(value).decode())

    def show(self, result: "Document | Shown | Figure", widest: int = WIDEST, narrowest: int = NARROWEST) -> None:
        """Print a document or a figure as wide as the terminal allows, in colours if it has any."""
        coloured = self.color_system is not None and not self.no_color
        drawn = result.text(max(narrowest, min(widest, self.width)), coloured)
        self.print(Text.from_ansi(drawn.rstrip("\n")), soft_wrap=True)


# Help in groups: a command with many options tells them panel by panel, in plain text.
#
# What is given by its place comes first, then the panels in the order of the signature, and what every verb with data
# has last. `--help` stands in the first panel: at the end of a long list nobody finds it.

GIVEN = "Arguments"  # what has no name
REST = "Data"  # options that name no panel are those that every verb with data has
OWN = "Options"  # of a verb that has so few that one panel holds them


class Panels(TyperCommand):
    """A command whose options stand under the names of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                panels.setdefault(self._panel(option), []).append(record)
        for panel in sorted(panels, key=lambda name: (name != GIVEN, name == REST)):  # stable: else as they came
            with formatter.section(panel):
                formatter.write_dl(panels[panel])

    def _panel(self, option: Any) -> str:
        """The name of the panel of an option."""
        if option.param_type_name == "argument":
            return GIVEN
        named = [panel for one in self.params if (panel := getattr(one, "rich_help_panel", None))]
        own = named[0] if option.name == "help" else getattr(option, "rich_help_panel", None)
        return own or REST


class TwoPanels(Panels):
    """A command with few options: its own stand before those that say how files are read."""

    def _panel(self, option: Any) -> str:
        """The name of the panel of an option."""
        if option.param_type_name == "argument":
            return GIVEN
        return REST if option.name in OF_FILES else OWN


# Exit codes: what a command leaves for scripts.
#
# 0    done                                  3    a file is damaged
# 1    the fault is ours: please report it   4    the disk is full, broken or read-only
# 2    bad input or usage                    5    training met numbers that are not finite
# 6    repeat the command: it goes on, and knows why it could not
# 7    done, but for rows that could not be answered: each has a line that says why
# 129, 130, 143    stopped by a signal: hang-up, Ctrl-C, terminate

BAD_INPUT, DAMAGED, DISK, NOT_FINITE, REPEAT, SOME_BAD = 2, 3, 4, 5, 6, 7
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def exit_code_of(error: BaseException) -> int:
    """The exit code for an error that ended a command."""
    if isinstance(error, DamagedError):
        return DAMAGED
    if isinstance(error, RepeatError):
        return REPEAT
    cause = error if isinstance(error, OSError) else error.__cause__
    return DISK if isinstance(cause, OSError) and cause.errno in DISK_ERRORS else BAD_INPUT


# How far long work is: a bar on a terminal with the time that is left, nothing anywhere else.


@contextmanager
def work_bar() -> Iterator[Show]:
    """A block with a bar, and what moves it; of several processes the first one shows it."""
    screen = Screen(stderr=True)
    quiet = not screen.is_terminal or os.environ.get("RANK", "0") != "0"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=screen, transient=True, disable=quiet) as bar:
        work = bar.add_task("", total=None)

        def show(progress: Progress) -> None:
            share = progress.share
            if (share or 0.0) < bar.tasks[0].completed:  # other work: the time of what is done says nothing about it
                bar.reset(work)
            bar.update(work, description=str(progress), completed=share, total=None if share is None else 1.0)

        yield show


def followed_work(work: Generator[Event, None, Result], told: Callable[[Event], object] | None = None) -> Result:
    """What comes of long work, each event of which is told; people at a terminal see how far it is."""
    with work_bar() as show:

        def seen(event: Event) -> None:
            if told is not None:
                told(event)
            if isinstance(event, Progress):
                show(event)

        return finished(work, seen)
