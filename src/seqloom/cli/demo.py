"""`seqloom demo`: train and predict on built-in data, in less than a minute."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen, brief, followed, sample_lines, summary
from seqloom.errors import ConfigError
from seqloom.files.disk import make_folder
from seqloom.training.events import Report, Sample, Validated
from seqloom.training.run_location import new_name, require_free, require_writable

if TYPE_CHECKING:
    from seqloom.demo import Show

FOLDER = Path("seqloom-demo")
NARROWEST, WIDEST = 40, 120  # columns of a figure
TASKS = ("translate", "classify", "tag", "lm")  # those of `demonstration.SHOWS`, which imports torch


@takes(examples=("seqloom demo", "seqloom demo classify"))
def demo(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help=f"Task to show: {', '.join(TASKS)} (default: translate).", show_default=False
        ),
    ] = "translate",
    out: Annotated[Path | None, option("--out -o", "RUN", f"Run folder (default: a new one in {FOLDER}).")] = None,
) -> None:
    """Train a small model on built-in data and show its score, its predictions and its attention."""
    if what not in TASKS:
        raise ConfigError(f"there is no demo of '{what}'", fix=f"choose from {', '.join(TASKS)}")
    if out is None:
        require_writable(FOLDER)
    else:
        require_free(out)
    screen = Screen()
    import torch  # takes a second or two

    from seqloom import demo as demonstration
    from seqloom.training.run import train_run

    torch.set_num_threads(1)  # with several threads such small models are slower
    show = demonstration.SHOWS[what]  # type: ignore[index]  # one of TASKS
    screen.print(f"Training {show.recipe} on the built-in dataset '{show.data}': {show.about}.", soft_wrap=True)
    resolved = demonstration.resolved(show)
    if out is None:
        make_folder(FOLDER)
    folder, samples = out or new_name(FOLDER / what), list[Sample]()
    metric = resolved.task.metric.name
    ended = followed(_kept(train_run(folder, resolved), samples), Screen(stderr=True), metric)
    if samples:  # a run that was stopped before the first validation has no model
        _shown(screen, folder, show, samples)
    drawn = f'seqloom inspect RUN "{show.drawn}" --view alignment --out attention.png'
    summary(folder, ended, resolved.task, json=False, more=[drawn] if show.drawn else ())
    raise typer.Exit(ended.exit_code)


def _kept(reports: Iterator[Report], samples: list[Sample]) -> Iterator[Report]:
    """Yield the events; store the samples of the last validation in `samples`."""
    for report in reports:
        if isinstance(report, Validated):
            samples[:] = report.samples
        yield report


def _shown(screen: Screen, folder: Path, show: "Show", samples: list[Sample]) -> None:
    """Print examples of the dev set, predictions, and the attention of one."""
    screen.print("\nExamples of the dev set:")
    for line in sample_lines(samples):
        screen.print(line, soft_wrap=True)
    from seqloom.demo import alignment
    from seqloom.inference.model import load

    loaded = load(folder)
    if show.inputs:
        screen.print("\nPredictions:")
    for text, answer in zip(show.inputs, loaded.predict(show.inputs), strict=True):
        screen.say(f"  {text} -> {brief(answer.to_text())}")
    if show.drawn:
        screen.print()
        screen.show(alignment(loaded, show.drawn), WIDEST, NARROWEST)
    screen.print()
    if limit := show.limit():
        screen.say(limit)
