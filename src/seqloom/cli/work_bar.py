"""How far long work is: a bar on a terminal with the time that is left, nothing anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from seqloom.cli.screen import Screen

Show = Callable[[str, int, int], None]  # takes what is being done, how much of it is, and of how much; 0: not known


@contextmanager
def work_bar() -> Iterator[Show]:
    """A block with a bar, and what moves it."""
    screen = Screen(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            if done < bar.tasks[0].completed:  # other work: the time of what is done says nothing about it
                bar.reset(work)
            bar.update(work, description=what, completed=min(done, total), total=total or None)

        yield show
