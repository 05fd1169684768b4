"""`seqloom embed`: compute a vector for every row of a file, in order."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seqloom.cli.inputs import STANDARD_INPUT, Model, PredictRequest, load_on, require_readable
from seqloom.cli.options import FILE, SKIP_BAD_ROWS, DeviceName, EmbeddingBatchTokens, Given, option, takes
from seqloom.cli.terminal import SOME_BAD, followed_work
from seqloom.errors import needing
from seqloom.events import Progress
from seqloom.report.numbers import counted, number, share

if TYPE_CHECKING:
    from seqloom.search.embedding.bulk import EmbeddedFile, Embedding, Engine
    from seqloom.search.embedding.windows import CheckedSource

CHUNK = 1 << 20  # bytes
SHOWN = 3  # rows without a vector that are listed


@takes(
    SKIP_BAD_ROWS,
    FILE,
    common=("out", "dtype", "precision", "input", "format", "skip_bad_rows", "engine", "batch_tokens", "device"),
    examples=(
        "seqloom embed models/encoder docs.jsonl --out vectors.npy",
        "seqloom embed models/encoder docs.csv --input body --dtype float16 --out vectors.parquet",
    ),
)
def embed(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file of texts, or - for lines of standard input.")],
    out: Annotated[Path, option("--out -o", "FILE", "Write the vectors to this .npy or .parquet file.")],
    dtype: Annotated[
        str,
        option(
            "--dtype", "NAME", "Data type of the stored vectors: float32, float16, int8 or binary (default: float32)."
        ),
    ] = "float32",
    precision: Annotated[
        Literal["float32", "int8"],
        option(
            "--precision",
            "NAME",
            "Precision of the model: float32 or int8; int8 is faster on a CPU and less accurate (default: float32).",
        ),
    ] = "float32",
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", "NAME", "Run on this machine (local) or on a Ray cluster (ray) (default: local)."),
    ] = "local",
    *,
    given: Given,
    batch_tokens: EmbeddingBatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Compute a vector for each row of a file, in the same order. Run the same command again to resume."""
    from seqloom.data.inputs import InputColumns
    from seqloom.search.embedding.bulk import embedding_steps
    from seqloom.search.embedding.output import writer_for
    from seqloom.search.embedding.windows import InputSource

    writer_for(out)
    require_readable(given)
    where = _engine(engine)
    loaded = load_on(model, device)
    asked = PredictRequest.of(loaded, source, given)
    with _file(source) as (path, stream):
        columns = InputColumns(asked.named, loaded.columns, trained_id=loaded.id_column)
        rows = InputSource(path, columns, asked.reading, asked.skip, stream)
        steps = embedding_steps(
            loaded, rows, out, dtype=dtype, precision=precision, batch_tokens=batch_tokens, engine=where
        )
        written = _follow(steps, out)
    _print_result(written)
    if written.bad:
        raise typer.Exit(SOME_BAD)


def _engine(name: str) -> "Engine":
    """Return what computes windows; raise before any work if a package is missing."""
    if name == "local":
        from seqloom.search.embedding.windows import local_engine

        return local_engine
    from seqloom.search.embedding.ray_cluster import ray_engine

    with needing("ray"):
        import ray  # noqa: F401
    return ray_engine


@contextmanager
def _file(source: str) -> Iterator[tuple[Path, str]]:
    """Yield the file, and its name in messages if it is standard input, which is copied because it is read twice."""
    if source != STANDARD_INPUT:
        yield Path(source), ""
        return
    from seqloom.data.inputs import STANDARD_INPUT as NAMED
    from seqloom.files.disk import temporary_folder, write_file

    with temporary_folder("embed") as folder:
        copy = folder / "lines"
        write_file(copy, iter(lambda: sys.stdin.buffer.read(CHUNK), b""))
        yield copy, NAMED


def _follow(steps: "Embedding", out: Path) -> "EmbeddedFile":
    """Run the steps and return the result; print what is stored if it is stopped, or that there was nothing to do."""
    last: Progress | None = None

    def report(event: "CheckedSource | Progress") -> None:
        nonlocal last
        if isinstance(event, Progress):
            if event.done and last is None:
                typer.echo(f"resuming: {event.done:,} of {counted(event.total, 'row')} are done", err=True)
            last = event
        else:
            for note in event.notes:
                typer.echo(note, err=True)

    try:
        written = followed_work(steps, report)
    except KeyboardInterrupt:
        if last is not None:
            stored = f"{last.done:,} of {counted(last.total, 'row')} are saved in {out.name}.work"
            typer.echo(f"{stored}; run the same command again to resume", err=True)
        raise
    if last is None:
        typer.echo("nothing to do: this command has already finished", err=True)
    return written


def _print_result(written: "EmbeddedFile") -> None:
    """Print the number of vectors, warnings, the loss, and which rows have no vector."""
    for note in written.notes:
        typer.echo(f"{note.first} ({counted(note.times, 'time')})" if note.times > 1 else note.first, err=True)
    vectors = counted(written.rows - len(written.bad), "vector")
    typer.echo(f"{vectors} with {written.width:,} dimensions in {written.path}", err=True)
    if written.loss is not None:
        rows, cosine, recall = written.loss
        found = f"mean error of cosines {number(cosine)}, {share(recall)} of the 10 nearest neighbors stay the same"
        typer.echo(f"loss of precision, measured on {counted(rows, 'row')}: {found}", err=True)
    if written.bad:
        for bad in written.bad[:SHOWN]:
            typer.echo(f"row {bad.row:,}, line {bad.line}: {bad.error}", err=True)
        has = "has" if len(written.bad) == 1 else "have"
        card = f"{written.path.name}.json"
        typer.echo(f"{counted(len(written.bad), 'row')} {has} no vector; {card} lists them with the reason", err=True)
