"""`seqloom embed`: the vectors of a file of inputs, a row for each, in the order of the inputs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.inputs import STANDARD_INPUT, Model, PredictRequest, load_on, require_readable
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes
from seqloom.cli.terminal import SOME_BAD, followed_work
from seqloom.config.data import DataConfig
from seqloom.config.options import settings
from seqloom.errors import needing
from seqloom.events import Progress
from seqloom.report.numbers import counted, number, share

if TYPE_CHECKING:
    from seqloom.search.embedding.bulk import Embedding, Engine, Finished
    from seqloom.search.embedding.windows import CheckedSource

CHUNK = 1 << 20  # bytes
SHOWN = 3  # rows without a vector


@takes(settings(DataConfig, "bad_rows"), FILE)
def embed(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path, option("--out -o", "FILE", "Write the vectors here: .npy or .parquet.")],
    as_: Annotated[str, option("--as", "KIND", "How numbers are kept: float32, float16, int8 or binary.")] = "float32",
    precision: Annotated[
        Literal["float32", "int8"],
        typer.Option(help="What the model computes in; int8 is faster on a processor and less exact."),
    ] = "float32",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Where: in this process, or on a Ray cluster.")
    ] = "local",
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Make a vector of every row of a file, in order; the same command goes on where one was stopped."""
    from seqloom.data.inputs import InputColumns
    from seqloom.search.embedding.bulk import embedding
    from seqloom.search.embedding.output import form_of
    from seqloom.search.embedding.windows import InputSource

    form_of(out)
    require_readable(given)
    where = _engine(engine)
    loaded = load_on(model, device)
    asked = PredictRequest.of(loaded, source, given)
    with _file(source) as (path, stream):
        rows = InputSource(path, InputColumns(asked.named, loaded.columns), asked.reading, asked.skip, stream)
        steps = embedding(loaded, rows, out, kept_as=as_, precision=precision, budget=budget, engine=where)
        written = _follow(steps, out)
    _tell(written)
    if written.bad:
        raise typer.Exit(SOME_BAD)


def _engine(name: str) -> "Engine":
    """What makes the vectors; what is missing for it is told before any work."""
    if name == "local":
        from seqloom.search.embedding.windows import here

        return here
    from seqloom.search.embedding.ray_cluster import on_ray

    with needing("ray"):
        import ray  # noqa: F401
    return on_ray


@contextmanager
def _file(source: str) -> Iterator[tuple[Path, str]]:
    """The file, and what messages call it if it is a stream: that is copied first, for it is read twice."""
    if source != STANDARD_INPUT:
        yield Path(source), ""
        return
    from seqloom.data.inputs import STANDARD_INPUT as NAMED
    from seqloom.files.disk import temporary_folder, write_file

    with temporary_folder("embed") as folder:
        copy = folder / "lines"
        write_file(copy, iter(lambda: sys.stdin.buffer.read(CHUNK), b""))
        yield copy, NAMED


def _follow(steps: "Embedding", out: Path) -> "Finished":
    """What was written; what is kept is told to whoever stops it, and that there was nothing to do."""
    last: Progress | None = None

    def told(event: "CheckedSource | Progress") -> None:
        nonlocal last
        if isinstance(event, Progress):
            if event.done and last is None:
                typer.echo(f"going on: {event.done:,} of {counted(event.total, 'row')} are done", err=True)
            last = event
        else:
            for note in event.notes:
                typer.echo(note, err=True)

    try:
        written = followed_work(steps, told)
    except KeyboardInterrupt:
        if last is not None:
            kept = f"{last.done:,} of {counted(last.total, 'row')} are kept in {out.name}.work"
            typer.echo(f"{kept}; the same command goes on", err=True)
        raise
    if last is None:
        typer.echo("nothing to do: this very command has been done before", err=True)
    return written


def _tell(written: "Finished") -> None:
    """Say what is in the file, what was noticed, what was lost, and which rows have no vector."""
    for note in written.notes:
        typer.echo(f"{note.first} ({counted(note.times, 'time')})" if note.times > 1 else note.first, err=True)
    vectors = counted(written.rows - len(written.bad), "vector")
    typer.echo(f"{vectors} of {written.width:,} numbers in {written.path}", err=True)
    if written.loss is not None:
        rows, cosine, recall = written.loss
        found = f"cosines are off by {number(cosine)} on average, {share(recall)} of the 10 nearest are the same"
        typer.echo(f"lost, measured on {counted(rows, 'row')}: {found}", err=True)
    if written.bad:
        for bad in written.bad[:SHOWN]:
            typer.echo(f"row {bad.row:,}, line {bad.line}: {bad.error}", err=True)
        has = "has" if len(written.bad) == 1 else "have"
        card = f"{written.path.name}.json"
        typer.echo(f"{counted(len(written.bad), 'row')} {has} a place without one: {card} says which and why", err=True)
