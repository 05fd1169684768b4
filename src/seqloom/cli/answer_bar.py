"""How far a verb that answers is: a bar on a terminal with the time that is left, nothing anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from seqloom.cli.screen import Screen
from seqloom.data.problems import counted

Show = Callable[[int, int], None]  # takes how many answers there are, and how much of the whole that is


@contextmanager
def answer_bar(whole: int) -> Iterator[Show]:
    """A block with a bar, and what moves it; `whole` is what there is to do, 0 where nobody knows."""
    screen = Screen(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("", total=whole or None)

        def show(answers: int, done: int) -> None:
            bar.update(work, description=counted(answers, "answer"), completed=min(done, whole))

        yield show
