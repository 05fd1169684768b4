"""`seqloom dedupe`: a copy of a file in which near duplicates are marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.inputs import embedder_of
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.options import said, settings
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.documents import GivenRows
    from seqloom.search.duplicates import Duplicates

WIDEST = 100  # columns of the picture
PICTURES = (".html", ".svg")


@takes(settings(DataConfig, "id"), FILE)
def dedupe(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The texts, one in each row.")],
    out: Annotated[Path, option("--out -o", "MARKED", "The marked copy: .csv, .jsonl, ...")],
    by: Annotated[
        Literal["text", "meaning"] | None,
        option("--by", None, "Compare letters, or vectors of --model; else meaning where a model is given."),
    ] = None,
    model: Annotated[Path | None, option("--model", "MODEL", "A model that makes vectors of texts.")] = None,
    threshold: Annotated[
        float | None, option("--threshold", "X", "Similarity from 0.5 to 1; else in the valley of a histogram.")
    ] = None,
    picture: Annotated[Path | None, option("--picture", "FILE", "Save the histogram: .html or .svg.")] = None,
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Mark near duplicates in a copy of a file; nothing is deleted."""
    if (by or ("meaning" if model else "text")) != ("meaning" if model else "text"):
        fix = "leave --model out" if by == "text" else "give the model: --model MODEL"
        raise ConfigError(f"--by {by} and {'a' if model else 'no'} model", fix=fix)
    _require_picture(picture, (file, out))
    from seqloom.search.documents import FileRows
    from seqloom.search.duplicates import mark_duplicates

    reading = ReadingConfig(**said(ReadingConfig, given))
    rows = FileRows(file, tuple(given.get("input", ())), given.get("id"), reading=reading)
    embedder = None if model is None else embedder_of(model, device, budget)
    gaps = list[str]()  # what is to be told of rows without text

    def told(event: "GivenRows | Progress") -> None:
        gaps.extend(() if isinstance(event, Progress) else event.gaps)

    found = followed_work(mark_duplicates(rows, out, model=embedder, threshold=threshold), told)
    if picture is not None:
        from seqloom.files.disk import write_file
        from seqloom.report.figures.stack import page

        figure = found.histogram.figure(found.threshold)
        write_file(picture, figure.svg() if picture.suffix.lower() == ".svg" else page("Similarities", [figure]))
    _tell(found, gaps, out, chosen=threshold is None)


def _require_picture(picture: Path | None, others: tuple[Path, ...]) -> None:
    """Refuse, before any work, a name that no picture can have, or that another file of the command has."""
    if picture is None:
        return
    from seqloom.search.documents import is_same

    if any(is_same(picture, other) for other in others):
        raise ConfigError(f"--picture {picture} would replace another file of this command", fix="give another name")
    if picture.suffix.lower() not in PICTURES:
        raise ConfigError(f"--picture {picture}: pictures are saved as {' or '.join(PICTURES)}", fix="another ending")
    if not picture.parent.is_dir():
        raise ConfigError(f"--picture {picture}: there is no folder {picture.parent}", fix="make the folder first")


def _tell(found: "Duplicates", gaps: list[str], out: Path, *, chosen: bool) -> None:
    """Show the histogram if the threshold was chosen from it, and say what was found."""
    from seqloom.search.similarity import LEAST

    screen = Screen()
    if chosen and not any(found.histogram.counts):
        screen.say(f"no two rows are alike: not one similarity is {LEAST} or more")
    elif chosen:
        screen.show(found.histogram.figure(found.threshold), WIDEST)
        why = "in the valley" if found.found else "the usual one: chance explains every valley of the histogram"
        screen.say(f"threshold {found.threshold:g}, {why}; --threshold takes another")
    clusters = counted(int(found.clusters.max(initial=0)), "cluster")
    told = f"{counted(found.duplicates, 'row')} of {len(found.clusters):,} repeat another, in {clusters}"
    screen.say(*gaps, f"{told}; marked in {out}")
