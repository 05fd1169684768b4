"""`seqloom dedupe`: a copy of a file in which near duplicates are marked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.inputs import embedder_of, require_readable, text_file_of
from seqloom.cli.options import TEXT_FILE, DeviceName, EmbeddingBatchTokens, Given, option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.data import DataConfig
from seqloom.config.options import settings
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.documents import TextRows
    from seqloom.search.duplicates import Duplicates

WIDEST = 100  # columns of the plot
PLOTS = (".html", ".svg")


@takes(
    settings(DataConfig, "id"),
    TEXT_FILE,
    common=("out", "by", "model", "threshold", "plot", "input", "id", "format", "batch_tokens", "device"),
    examples=(
        "seqloom dedupe docs.csv --out marked.csv",
        "seqloom dedupe docs.csv --model models/encoder --threshold 0.9 --out marked.csv",
    ),
)
def dedupe(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The texts, one per row.")],
    out: Annotated[
        Path,
        option(
            "--out -o",
            "FILE",
            "Write the marked copy to this .csv or .jsonl file, or to a .tsv or .parquet file if FILE has that format.",
        ),
    ],
    by: Annotated[
        Literal["text", "meaning"] | None,
        option(
            "--by",
            "NAME",
            "Compare the rows by text or by meaning; meaning needs --model (default: meaning with --model, else text).",
        ),
    ] = None,
    model: Annotated[
        Path | None, option("--model", "MODEL", "Embedding model for --by meaning (default: none).")
    ] = None,
    threshold: Annotated[
        float | None,
        option(
            "--threshold",
            "NUMBER",
            "Minimum similarity of duplicates, 0.5 to 1 (default: chosen from the histogram of similarities).",
        ),
    ] = None,
    plot: Annotated[
        Path | None, option("--plot", "FILE", "Save the histogram of similarities as .html or .svg (default: off).")
    ] = None,
    *,
    given: Given,
    batch_tokens: EmbeddingBatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Find near duplicates and mark them in a copy of the file; nothing is deleted."""
    if (by or ("meaning" if model else "text")) != ("meaning" if model else "text"):
        fix = "leave out --model" if by == "text" else "--model MODEL"
        raise ConfigError(f"--by {by} does not use a model" if model else f"--by {by} needs a model", fix=fix)
    _require_plot(plot, (file, out))
    from seqloom.search.duplicates import mark_duplicates

    require_readable(given)
    rows = text_file_of(file, model, given)
    embedder = None if model is None else embedder_of(model, device, batch_tokens)
    notices = list[str]()  # about rows without text

    def report(event: "TextRows | Progress") -> None:
        notices.extend(() if isinstance(event, Progress) else event.notices)

    found = followed_work(mark_duplicates(rows, out, model=embedder, threshold=threshold), report)
    if plot is not None:
        from seqloom.files.disk import write_file
        from seqloom.report.figures.stack import page

        figure = found.histogram.figure(found.threshold)
        write_file(plot, figure.svg() if plot.suffix.lower() == ".svg" else page("Similarities", [figure]))
    _print_result(found, notices, out, chosen=threshold is None)


def _require_plot(plot: Path | None, others: tuple[Path, ...]) -> None:
    """Raise ConfigError, before any work, for a plot that cannot be written or would replace another file."""
    if plot is None:
        return
    from seqloom.search.documents import is_same

    if any(is_same(plot, other) for other in others):
        raise ConfigError(f"--plot {plot} would overwrite another file of this command", fix="give another name")
    if plot.suffix.lower() not in PLOTS:
        raise ConfigError(f"--plot {plot}: plots are saved as {' or '.join(PLOTS)}", fix="use another extension")
    if not plot.parent.is_dir():
        raise ConfigError(f"--plot {plot}: the folder {plot.parent} does not exist", fix="create it first")


def _print_result(found: "Duplicates", notices: list[str], out: Path, *, chosen: bool) -> None:
    """Print the histogram if the threshold was chosen from it, and the number of duplicates."""
    from seqloom.search.similarity import MIN_SIMILARITY

    screen = Screen()
    if chosen and not any(found.histogram.counts):
        screen.say(f"no two rows have a similarity of {MIN_SIMILARITY} or more")
    elif chosen:
        screen.show(found.histogram.figure(found.threshold), WIDEST)
        why = (
            "in the valley of the histogram" if found.valley_found else "the default: the histogram has no clear valley"
        )
        screen.say(f"threshold {found.threshold:g}, {why}; choose another with --threshold")
    rows, clusters = len(found.clusters), counted(int(found.clusters.max(initial=0)), "cluster")
    duplicates = counted(found.duplicates, "duplicate") if found.duplicates else "no duplicates"
    where = f" in {clusters}; marked in {out}" if found.duplicates else f"; {out} is a copy with empty columns"
    screen.say(*notices, f"{duplicates} among {counted(rows, 'row')}{where}")
