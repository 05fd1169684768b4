"""`seqloom demo`: the main job from end to end on embedded data, in less than a minute, through the door of `train`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.progress import brief, followed, sample_lines, summary
from seqloom.cli.terminal import Screen
from seqloom.errors import ConfigError
from seqloom.files.disk import make_folder
from seqloom.training.events import Report, Sample, Validated
from seqloom.training.home import new_name, require_free, require_writable

if TYPE_CHECKING:
    from seqloom.demo import Show

FOLDER = Path("seqloom-demo")
NARROWEST, WIDEST = 40, 120  # columns of a figure
TASKS = ("translate", "classify", "tag", "lm")  # those of `demonstration.SHOWS`, which imports torch


def demo(
    what: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(TASKS)}.")] = "translate",
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help=f"The run folder; else a new one in {FOLDER}.")
    ] = None,
) -> None:
    """Train a model on embedded data, and show its score, its answers, and where it looks."""
    if what not in TASKS:
        raise ConfigError(f"there is no demo of '{what}'", fix=f"choose from {', '.join(TASKS)}")
    if out is None:
        require_writable(FOLDER)
    else:
        require_free(out)
    screen = Screen()
    import torch  # a second or two

    from seqloom import demo as demonstration
    from seqloom.training.run import train_run

    torch.set_num_threads(1)  # models as small as these only make several threads wait for one another
    show = demonstration.SHOWS[what]  # type: ignore[index]  # one of TASKS
    screen.print(f"Training {show.recipe} on the embedded set '{show.data}': {show.about}.", soft_wrap=True)
    resolved = demonstration.resolved(show)
    if out is None:
        make_folder(FOLDER)
    folder, samples = out or new_name(FOLDER / what), list[Sample]()
    metric = resolved.task.metric.name
    ended = followed(_kept(train_run(folder, resolved), samples), Screen(stderr=True), metric)
    if samples:  # stopped before the first validation, there is no model to ask
        _shown(screen, folder, show, samples)
    summary(folder, ended, resolved.task, json=False)
    raise typer.Exit(ended.exit_code)


def _kept(reports: Iterator[Report], samples: list[Sample]) -> Iterator[Report]:
    """The reports; the samples of the last validation are kept."""
    for report in reports:
        if isinstance(report, Validated):
            samples[:] = report.samples
        yield report


def _shown(screen: Screen, folder: Path, show: "Show", samples: list[Sample]) -> None:
    """Some unseen examples, what the model says to some more, and where it looks."""
    screen.print("\nUnseen examples:")
    for line in sample_lines(samples):
        screen.print(line, soft_wrap=True)
    from seqloom.demo import alignment
    from seqloom.inference.model import load

    loaded = load(folder)
    if show.asks:
        screen.print("\nAsked:")
    for text, answer in zip(show.asks, loaded.predict(show.asks), strict=True):
        screen.say(f"  {text} -> {brief(answer.shown())}")
    if show.drawn:
        screen.print()
        screen.show(alignment(loaded, show.drawn), WIDEST, NARROWEST)
    screen.print()
    if limit := show.limit():
        screen.say(limit)
