"""`seqloom predict --stream`: predictions for one endless sequence, printed as its lines arrive."""

import io
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from seqloom.cli.inputs import LINED, STANDARD_INPUT, PredictRequest
from seqloom.cli.options import Given
from seqloom.cli.predictions import OutputFormat, OutputOptions, PredictionLine, encoded_lines, print_warnings
from seqloom.cli.terminal import Screen
from seqloom.config.data import Format, ReadingConfig
from seqloom.data.cells import rounded_text
from seqloom.data.problems import Ledger
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel
    from seqloom.inference.stream import StreamAnswer

TABLES = (".csv", ".tsv", ".json", ".parquet", ".npz", ".npy", ".conll", ".conllu", ".gz", ".xz", ".zip")


def require_streamable(given: Given, output: OutputOptions) -> None:
    """Raise ConfigError for options that do not work with a stream, before the model is loaded."""
    if output.out is not None:
        raise ConfigError(f"--out {output.out} is only written at the end, and a stream has no end", fix="use > FILE")
    if output.with_input:
        raise ConfigError("--with-input: each prediction of a stream already contains its token", fix="leave it out")
    if given.get("skip_bad_rows"):
        raise ConfigError(
            "--skip-bad-rows: skipping a row of a stream would change all later predictions", fix="leave it out"
        )
    if given.get("id") is not None:
        raise ConfigError("--id: a stream is a single sequence, whose elements have no id", fix="leave it out")
    if given.get("sequence") is not None:
        raise ConfigError(
            "--sequence is for files with many sequences; a stream is a single sequence", fix="leave it out"
        )


def write_stream(loaded: "LoadedModel", request: PredictRequest, output: OutputOptions, most: int | None) -> None:
    """Read a file or standard input, and print each prediction as soon as it is available."""
    from seqloom.data.endless import read_endless
    from seqloom.data.inputs import STANDARD_INPUT as NAMED
    from seqloom.data.inputs import InputColumns
    from seqloom.inference.stream import BLOCK

    ledger, path = Ledger(), Path(request.source)
    reading = loaded.endless(most or BLOCK)
    piped = request.source == STANDARD_INPUT
    lines = request.reading
    if not piped:
        lines = ReadingConfig(format=lines.format or _format_of(path), encoding=lines.encoding)
    _warn_if_untrained(loaded)
    columns = InputColumns(request.named, loaded.columns)
    with nullcontext(cast(io.BufferedReader, sys.stdin.buffer)) if piped else path.open("rb") as stream:
        name = NAMED if piped else request.source
        windows = read_endless(stream, reading.kind, ledger, lines, columns, flows=loaded.flows, name=name)
        _write(reading.answers(windows, ledger), output.form)
    print_warnings(ledger)


def _format_of(path: Path) -> Format | None:
    """The format of a file of lines; ConfigError for tables and other formats."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", fix="check the name, or give - for standard input")
    if path.suffix.lower() in TABLES:
        text = f"{path}: a stream is read from plain lines or JSON lines, not from {path.suffix}"
        raise ConfigError(text, fix=f"tail -n +2 {path} | seqloom predict MODEL - --stream, or --format text")
    return cast(Format | None, LINED.get(path.suffix.lower()))


def _warn_if_untrained(loaded: "LoadedModel") -> None:
    """Print a warning if lines end with an END token, but the model was not trained to continue after one."""
    from seqloom.config.training import StreamsConfig
    from seqloom.tasks.task import Streamer

    if loaded.run is None or loaded.flows or not Streamer.of(loaded.task).closing:
        return
    if not isinstance(loaded.run.training.batching, StreamsConfig):
        typer.echo(
            "the model was not trained to continue after the end of a line; train it with --batching streams", err=True
        )


def _write(blocks: "Iterable[list[StreamAnswer]]", form: OutputFormat) -> None:
    """Print each block of predictions as soon as it arrives; CSV output has one header."""
    screen, first = Screen(), True
    for block in blocks:
        data = b"".join(encoded_lines(map(_line, block), form)).decode()
        if form == "csv" and not first:
            data = data.split("\n", 1)[1]
        try:
            sys.stdout.write(data)
            sys.stdout.flush()
        except BrokenPipeError:
            screen.on_broken_pipe()
        first = False


def _line(answer: "StreamAnswer") -> PredictionLine:
    return PredictionLine({}, rounded_text(answer.to_json()), answer.to_text())
