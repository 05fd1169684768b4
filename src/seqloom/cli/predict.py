"""`seqloom predict`: the answers of a model to inputs, a line for each, in the order of the inputs."""

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from seqloom.cli.answers import ERROR, AnswerLine, Form, answered, form_of, refused, written
from seqloom.cli.data_options import BadRowsRule, FileOptions, Sequence, bad_rows, reading_settings
from seqloom.cli.shared_options import shares
from seqloom.cli.terminal import SOME_BAD, Screen, work_bar
from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Problem, counted
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from seqloom.data.schema import Example
    from seqloom.inference.model import LoadedModel
    from seqloom.inference.prediction import Reply

STANDARD_INPUT = "-"
TOGETHER = 256  # lines that are written at once; of a stream each alone, for somebody may wait for it
NOT_ASKED = " in float32"  # of a model that is only asked, nobody chooses the precision
LINED = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}  # files in which a bad line spoils itself alone

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Use only kernels whose sums do not depend on timing.")
]


@shares(FileOptions)
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="FORM", help="jsonl, csv or text; else by the name of --out, or jsonl."),
    ] = None,
    with_input: Annotated[bool, typer.Option("--with-input", help="Repeat the input beside its answer.")] = False,
    sequence: Sequence = None,
    bad_rows_: BadRowsRule = None,
    deterministic: Deterministic = False,
    *,
    shared: FileOptions,
) -> None:
    """Answer every input of a file: a line for each, in their order."""
    told, wanted = reading_settings(shared), Wanted(form_of(as_, out), out, with_input)
    bad_rows(bad_rows_, None)  # refused before the model is read
    require_another(source, out)
    loaded = load_on(model, shared.device)
    reading, skip = reading_of(loaded, source, told), bad_rows(bad_rows_, None, loaded.bad_rows).skip
    asked = PredictRequest(source, tuple(shared.input_ or ()), sequence, reading, skip)
    with exact(deterministic):
        answer(loaded, asked, wanted, shared.budget)


def require_another(source: str, out: Path | None) -> None:
    """Refuse a file for the answers that is the input."""
    if out is not None and source != STANDARD_INPUT and out.absolute() == Path(source).absolute():
        raise ConfigError(f"--out {out} is the input itself, which the answers would replace", fix="another name")


def reading_of(loaded: "LoadedModel", source: str, told: dict[str, Any]) -> ReadingConfig:
    """How a file of inputs is read: as is told, else as in training, which is said; a stream only as is told."""
    from seqloom.inference.as_trained import inputs_as_trained

    if source == STANDARD_INPUT:
        return ReadingConfig(**told)
    read = inputs_as_trained(loaded.run, Path(source), told)
    for sentence in read.said:
        typer.echo(sentence, err=True)
    return read.config


class Wanted(NamedTuple):
    """How the answers are wanted."""

    form: Form
    out: Path | None
    with_input: bool


def answer(loaded: "LoadedModel", asked: "PredictRequest", wanted: Wanted, budget: int | None) -> None:
    """Write the answer to every input, in their order; people at a terminal see how far it is."""
    from seqloom.inference.model import BUDGET
    from seqloom.inference.prediction import PredictionNote

    ledger = PredictionNote() if asked.skip else Ledger()
    if wanted.with_input:
        _require_text(loaded)
    source, windows = asked.source, asked.windows(loaded, ledger)
    with _progress(source, ledger) as show:
        replies = loaded.replies(windows, ledger, budget=budget or BUDGET)
        lines = (show(_line(reply, source, with_input=wanted.with_input)) for reply in replies)
        last = (ERROR,) if asked.skip else ()
        write_lines(lines, wanted.form, wanted.out, 1 if source == STANDARD_INPUT else TOGETHER, last)
    tell(ledger, wanted.out)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)


def load_on(model: Path, device: str) -> "LoadedModel":
    """The model on the device that was asked for; where it was chosen, people at a terminal read which and why."""
    from seqloom.inference.model import load
    from seqloom.training.devices import choose_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise ConfigError(f"--device {device!r}", fix="choose from auto, cpu, cuda, mps")
    chosen = choose_device(device, "float32")  # type: ignore[arg-type]  # one of the four
    loaded = load(model, device=chosen.torch)
    screen = Screen(stderr=True)
    for sentence in chosen.said if device == "auto" and screen.is_terminal else ():
        screen.print(sentence.removesuffix(NOT_ASKED), markup=False, soft_wrap=True)
    return loaded


def exact(wanted: bool) -> "AbstractContextManager[None]":
    """A block in which torch refuses kernels whose sums depend on timing, if that is wanted."""
    from seqloom.config.training import TrainingConfig
    from seqloom.training import devices

    return devices.deterministic(TrainingConfig(deterministic=True)) if wanted else nullcontext()


def _require_text(loaded: "LoadedModel") -> None:
    kind = loaded.meaning.schema.input
    if not kind.reads_tokens:
        raise ConfigError(f"--with-input repeats texts, and the model reads {kind}", fix="leave it out")


class PredictRequest(NamedTuple):
    """What is asked of a model: where the inputs stand, and how they are read."""

    source: str
    named: tuple[str, ...]  # columns
    sequence: str | None
    reading: ReadingConfig
    skip: bool  # whether bad rows are told and the rest answered

    def windows(self, loaded: "LoadedModel", ledger: Ledger) -> "Iterable[list[Example]]":
        """The inputs, some at a time: of a stream, whatever has arrived."""
        from seqloom.data.inputs import InputColumns, arriving, lines_of, read_inputs
        from seqloom.inference.prediction import windows_of

        kind, path = loaded.task.asked.schema.input, Path(self.source)
        columns = InputColumns(self.named, loaded.columns, self.sequence, loaded.sequence)
        if self.source == STANDARD_INPUT:
            return arriving(cast(io.BufferedReader, sys.stdin.buffer), kind, ledger, self.reading.format, columns)
        if self.skip and self.sequence is None and self._has_lines(path):
            format_ = self.reading.format or cast(Any, LINED[path.suffix.lower()])
            return lines_of(path, kind, ledger, format_, columns)
        return windows_of(read_inputs(path, kind, ledger, columns=columns, reading=self.reading))

    def _has_lines(self, path: Path) -> bool:
        """Whether a file is read line by line: a bad one can then be told alone, even where it is no UTF-8."""
        plain = ReadingConfig(format=self.reading.format)
        lined = self.reading.format in ("text", "jsonl") or (
            self.reading.format is None and path.suffix.lower() in LINED
        )
        return path.is_file() and lined and self.reading == plain


def _line(reply: "Reply", source: str, *, with_input: bool) -> AnswerLine:
    """The line of an answer, or of a row that has none."""
    from seqloom.data.inputs import STANDARD_INPUT as NAMED

    name = NAMED if source == STANDARD_INPUT else source
    if isinstance(reply, Problem):
        return refused(reply, name)
    return answered(reply[0], reply[1], name, with_input=with_input)


def write_lines(lines: Iterator[AnswerLine], form: Form, out: Path | None, most: int, last: tuple[str, ...]) -> None:
    """Nothing; the lines are in a file that is whole or not there, or on standard output as they come.

    `last` are columns that a table ends with.
    """
    if out is not None:
        from seqloom.files.disk import write_file

        return write_file(out, written(lines, form, last))
    screen, pieces = Screen(), written(lines, form, last)
    while together := b"".join(islice(pieces, most)):
        screen.print(together.decode(), end="", markup=False, soft_wrap=True)
    return None


@contextmanager
def _progress(source: str, ledger: Ledger) -> Iterator[Any]:
    """A block with a bar on a terminal; what is shown in it passes through."""
    path, done = Path(source), 0
    whole = path.stat().st_size if path.is_file() else 0
    with work_bar() as moved:

        def show(line: AnswerLine) -> AnswerLine:
            nonlocal done
            done += 1
            moved(counted(done, "answer"), ledger.bytes, whole)
            return line

        yield show


def tell(ledger: Ledger, out: Path | None) -> None:
    """Say what was cut, passed over or could not be answered, and where the answers are."""
    tell_warnings(ledger)
    if out is not None:
        typer.echo(f"{counted(ledger.rows, 'answer')} written to {out}", err=True)
    if ledger.skipped:
        kinds = ", ".join(f"{code} {count:,}" for code, count in ledger.bad.most_common())
        typer.echo(f"{counted(ledger.skipped, 'row')} could not be answered ({kinds}): see 'error' there", err=True)


def tell_warnings(ledger: Ledger) -> None:
    """Say what was cut or passed over."""
    for _, count, samples in ledger.warnings():
        typer.echo(_first_of(count, samples[0]), err=True)


def _first_of(count: int, problem: Problem) -> str:
    """A warning, and how often it came up if that is more than once."""
    return f"{problem} ({counted(count, 'time')})" if count > 1 else str(problem)
