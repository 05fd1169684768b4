"""Predictions as JSON lines, a table or plain text: one line for each input, in the same order.

    jsonl   {"line": 1, "label": "good", "scores": {"good": 0.9, "bad": 0.1}}
    csv     line,label,scores.good,scores.bad        a list is JSON in its cell
    text    good                                     an empty line for each blank line of a text

A bad row has a line too: `error` says what is wrong with it. A table has that column only with --skip-bad-rows.
`write_predictions` predicts all rows and writes them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec
import typer

from seqloom.cli.inputs import STANDARD_INPUT, PredictRequest
from seqloom.cli.terminal import SOME_BAD, Screen, work_bar
from seqloom.config.data import ANY_ROWS
from seqloom.data.cells import flat, rounded_text, row
from seqloom.data.problems import UNLIMITED, Ledger, Problem
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.schema import Example
    from seqloom.inference.model import LoadedModel
    from seqloom.tasks.task import Prediction

OutputFormat = Literal["jsonl", "csv", "text"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("jsonl", "csv", "text")
SUFFIXES: dict[str, OutputFormat] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".txt": "text"}
ERROR = "error"  # the column with the problem of a bad row
BLOCK = 256  # lines that are written together; lines of standard input are written one by one
OTHER_SUFFIXES = (".json", ".tsv", ".parquet", ".npz", ".xlsx")  # suffixes of other formats


class PredictionLine(NamedTuple):
    """One line of the output: the position of its input, and the prediction as data and as text."""

    place: dict[str, Any]
    prediction: dict[str, Any]
    shown: str
    error: str = ""

    def fields(self) -> dict[str, Any]:
        return self.place | self.prediction | ({ERROR: self.error} if self.error else {})


def output_format_of(asked: str | None, out: Path | None, usual: OutputFormat = "jsonl") -> OutputFormat:
    """Return the given format, else that of the file suffix, else the usual one; raise ConfigError if they differ."""
    if asked is not None and asked not in OUTPUT_FORMATS:
        raise ConfigError(f"--output-format {asked!r}", fix=f"choose from {', '.join(OUTPUT_FORMATS)}")
    ending = "" if out is None else out.suffix.lower()
    if ending in OTHER_SUFFIXES or (asked is not None and SUFFIXES.get(ending, asked) != asked):
        form = asked or usual
        fix = f"--out {cast(Path, out).with_suffix('.txt' if form == 'text' else f'.{form}')}"
        kinds = asked or f"{', '.join(OUTPUT_FORMATS[:-1])} or {OUTPUT_FORMATS[-1]}"
        raise ConfigError(f"--out {out}: predictions are written as {kinds}, not as {cast(Path, out).suffix}", fix=fix)
    return asked if asked is not None else SUFFIXES.get(ending, usual)


def prediction_line(example: "Example", prediction: "Prediction", source: str, *, with_input: bool) -> PredictionLine:
    """Return the line of a prediction, with the id of its row or its position in the file."""
    name = {} if example.id is None else {"id": example.id}
    # A text as it was read; the text of a text in words; both texts of a pair.
    given = {"input": getattr(example.input, "text", example.input)} if with_input else {}
    return PredictionLine(
        name | _place(*example.place[:2], source) | given, rounded_text(prediction.to_json()), prediction.to_text()
    )


def error_line(problem: Problem, source: str) -> PredictionLine:
    """Return the line of a bad row; an empty one for a blank line."""
    if problem.severity == "note":
        return PredictionLine(_place(*problem.place[:2], source), {}, "")
    message = f"{problem.code}: {problem.text}"
    return PredictionLine(_place(*problem.place[:2], source), {}, f"(error: {message})", message)


def _place(path: str, line: int | None, source: str) -> dict[str, Any]:
    return {"line": line} if path == source else {"file": path}


def encoded_lines(lines: Iterable[PredictionLine], form: OutputFormat, last: tuple[str, ...] = ()) -> Iterator[bytes]:
    """Encode lines in a format, one by one; a table ends with the columns `last`."""
    if form == "jsonl":
        return (msgspec.json.encode(line.fields()) + b"\n" for line in lines)
    return _table(lines, last) if form == "csv" else (f"{line.shown}\n".encode() for line in lines)


def _table(lines: Iterable[PredictionLine], last: tuple[str, ...]) -> Iterator[bytes]:
    """Encode a table with the columns of the first prediction, and `last`. Bad rows before it are delayed."""
    columns: list[str] = []
    waiting: list[PredictionLine] = []
    for line in lines:
        waiting.append(line)
        if line.error and not columns:
            continue
        if not columns:
            columns = list(dict.fromkeys([*line.place, *flat(line.prediction), *last]))
            yield row(columns)
        yield from (_cells(one, columns) for one in waiting)
        waiting.clear()
    if waiting:  # there was no prediction
        columns = list(dict.fromkeys([*waiting[0].place, *last]))
        yield row(columns)
        yield from (_cells(one, columns) for one in waiting)


def _cells(line: PredictionLine, columns: list[str]) -> bytes:
    fields = line.place | flat(line.prediction) | ({ERROR: line.error} if line.error else {})
    assert fields.keys() <= set(columns) | {"line", "file"}, "all predictions of a task have the same fields"
    return row(fields.get(name) for name in columns)


class OutputOptions(NamedTuple):
    """Where and in which format predictions are written."""

    form: OutputFormat
    out: Path | None
    with_input: bool


def write_predictions(
    loaded: "LoadedModel", asked: PredictRequest, output: OutputOptions, batch_tokens: int | None
) -> None:
    """Predict every input and write the predictions in order, with a progress bar on a terminal."""
    from seqloom.data.inputs import STANDARD_INPUT as NAMED
    from seqloom.inference.model import BATCH_TOKENS
    from seqloom.inference.prediction import BadRowLedger, LineLedger

    bad_rows = ANY_ROWS if asked.skip else UNLIMITED
    ledger = LineLedger(bad_rows) if output.form == "text" else BadRowLedger(bad_rows)
    if output.with_input:
        kind = loaded.spec.schema.input
        if not kind.reads_tokens:
            raise ConfigError(f"--with-input is for texts, but the model reads {kind}", fix="leave it out")
    source, windows = asked.source, asked.windows(loaded, ledger)
    replaces = output.out is not None and output.out.exists()
    name = NAMED if source == STANDARD_INPUT else source
    with _progress(source, ledger) as show:
        replies = loaded.replies(windows, ledger, batch_tokens=batch_tokens or BATCH_TOKENS)
        lines = (
            show(
                error_line(one, name)
                if isinstance(one, Problem)
                else prediction_line(*one, name, with_input=output.with_input)
            )
            for one in replies
        )
        last = (ERROR,) if asked.skip else ()
        write_lines(lines, output.form, output.out, 1 if source == STANDARD_INPUT else BLOCK, last)
    print_summary(ledger, output.out, replaced=replaces)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)


def write_lines(
    lines: Iterator[PredictionLine], form: OutputFormat, out: Path | None, most: int, last: tuple[str, ...]
) -> None:
    """Write the lines to a file, which appears when it is complete, or directly to standard output.

    `last` are the last columns of a table.
    """
    if out is not None:
        from seqloom.files.disk import write_file

        return write_file(out, encoded_lines(lines, form, last))
    screen, blocks = Screen(), encoded_lines(lines, form, last)
    while together := b"".join(islice(blocks, most)):
        screen.print(together.decode(), end="", markup=False, soft_wrap=True)
    return None


@contextmanager
def _progress(source: str, ledger: Ledger) -> Iterator[Any]:
    """Show a progress bar on a terminal inside the `with`."""
    path, done = Path(source), 0
    whole = path.stat().st_size if path.is_file() else 0
    with work_bar() as moved:

        def show(line: PredictionLine) -> PredictionLine:
            nonlocal done
            done += 1
            moved(Progress("predictions", done, part=min(1.0, ledger.bytes / whole) if whole else None))
            return line

        yield show


def print_summary(ledger: Ledger, out: Path | None, *, replaced: bool = False) -> None:
    """Print warnings, where the predictions are, whether they replaced a file, and how many rows failed."""
    print_warnings(ledger)
    if out is not None:
        earlier = ", replacing the earlier file" if replaced else ""
        typer.echo(f"{counted(ledger.rows, 'prediction')} written to {out}{earlier}", err=True)
    if ledger.skipped:
        kinds = ", ".join(f"{code} {count:,}" for code, count in ledger.bad.most_common())
        typer.echo(
            f"{counted(ledger.skipped, 'row')} could not be predicted ({kinds}); the field 'error' has the reason",
            err=True,
        )


def print_warnings(ledger: Ledger) -> None:
    """Print the warnings about rows: truncated, skipped, ..."""
    for _, count, samples in ledger.warnings():
        often = f" ({counted(count, 'time')})" if count > 1 else ""
        typer.echo(f"{samples[0]}{often}", err=True)
