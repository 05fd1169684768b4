"""Answers as files hold them: JSON lines, a table, or plain text; each has a line for each input, in their order.

    jsonl   {"line": 1, "label": "good", "scores": {"good": 0.9, "bad": 0.1}}
    csv     line,label,scores.good,scores.bad        lists stand as JSON in their cell
    text    good

A row that could not be answered has its line too: `error` says what is wrong with it. A table has that column only
where bad rows are told instead of ending all. `answer` asks the model for all of them.
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
from seqloom.data.cells import rounded_text, row
from seqloom.data.problems import Ledger, Problem
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.schema import Example
    from seqloom.inference.model import LoadedModel
    from seqloom.tasks.task import Prediction

Form = Literal["jsonl", "csv", "text"]
FORMS: tuple[Form, ...] = ("jsonl", "csv", "text")
ENDINGS: dict[str, Form] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".txt": "text"}
ERROR = "error"  # the name of what is wrong with a row
TOGETHER = 256  # lines that are written at once; of a stream each alone, for somebody may wait for it
OTHERS = (".json", ".tsv", ".parquet", ".npz", ".xlsx")  # names that promise something else


class AnswerLine(NamedTuple):
    """One line of the output: where its input stood, what programs read of the answer, and what people read."""

    place: dict[str, Any]
    answer: dict[str, Any]
    shown: str
    error: str = ""

    def fields(self) -> dict[str, Any]:
        """Everything under its name."""
        return self.place | self.answer | ({ERROR: self.error} if self.error else {})


def form_of(asked: str | None, out: Path | None) -> Form:
    """The form that was asked for, or that the name of the file promises; ConfigError for another."""
    if asked is not None and asked not in FORMS:
        raise ConfigError(f"--as {asked!r}", fix=f"choose from {', '.join(FORMS)}")
    ending = "" if out is None else out.suffix.lower()
    if ending in OTHERS or (asked is not None and ENDINGS.get(ending, asked) != asked):
        form = asked or "jsonl"
        fix = f"--out {cast(Path, out).with_suffix('.txt' if form == 'text' else f'.{form}')}"
        raise ConfigError(f"--out {out}: the answers are {form}, and not {cast(Path, out).suffix}", fix=fix)
    return asked if asked is not None else ENDINGS.get(ending, "jsonl")


def answered(example: "Example", prediction: "Prediction", source: str, *, with_input: bool) -> AnswerLine:
    """The line of an answer, with the name that the data gives its input or the place where that stood."""
    name = {"id": example.id} if example.id else {}
    # A text as it was read; of a text cut into words, the text; of a pair both.
    given = {"input": getattr(example.input, "text", example.input)} if with_input else {}
    return AnswerLine(
        name | _place(*example.place[:2], source) | given, rounded_text(prediction.to_json()), prediction.shown()
    )


def refused(problem: Problem, source: str) -> AnswerLine:
    """The line of a row that cannot be answered."""
    said = f"{problem.code}: {problem.text}"
    return AnswerLine(_place(*problem.place[:2], source), {}, f"(error: {said})", said)


def _place(path: str, line: int | None, source: str) -> dict[str, Any]:
    return {"line": line} if path == source else {"file": path}


def written(lines: Iterable[AnswerLine], form: Form, last: tuple[str, ...] = ()) -> Iterator[bytes]:
    """The bytes of the lines in a form, as they come; a table ends with the columns `last`, whether filled or not."""
    if form == "jsonl":
        return (msgspec.json.encode(line.fields()) + b"\n" for line in lines)
    return _table(lines, last) if form == "csv" else (f"{line.shown}\n".encode() for line in lines)


def _table(lines: Iterable[AnswerLine], last: tuple[str, ...]) -> Iterator[bytes]:
    """A table; its columns are those of the first answer, and `last`. Rows before it that have none wait for it."""
    columns: list[str] = []
    waiting: list[AnswerLine] = []
    for line in lines:
        waiting.append(line)
        if line.error and not columns:
            continue
        if not columns:
            columns = list(dict.fromkeys([*line.place, *flat(line.answer), *last]))
            yield row(columns)
        yield from (_cells(one, columns) for one in waiting)
        waiting.clear()
    if waiting:  # not one answer
        columns = list(dict.fromkeys([*waiting[0].place, *last]))
        yield row(columns)
        yield from (_cells(one, columns) for one in waiting)


def _cells(line: AnswerLine, columns: list[str]) -> bytes:
    fields = line.place | flat(line.answer) | ({ERROR: line.error} if line.error else {})
    assert fields.keys() <= set(columns) | {"line", "file"}, "all answers of a task have the same fields"
    return row(fields.get(name) for name in columns)


def flat(answer: dict[str, Any]) -> dict[str, Any]:
    """The same with a name for each value of an inner object.

    >>> flat({"label": "good", "scores": {"good": 0.9, "bad": 0.1}})
    {'label': 'good', 'scores.good': 0.9, 'scores.bad': 0.1}
    """
    inner = {name: value for name, value in answer.items() if isinstance(value, dict)}
    plain = {name: value for name, value in answer.items() if name not in inner}
    return plain | {f"{name}.{key}": one for name, value in inner.items() for key, one in value.items()}


class Wanted(NamedTuple):
    """How the answers are wanted."""

    form: Form
    out: Path | None
    with_input: bool


def answer(loaded: "LoadedModel", asked: PredictRequest, wanted: Wanted, budget: int | None) -> None:
    """Write the answer to every input, in their order; people at a terminal see how far it is."""
    from seqloom.data.inputs import STANDARD_INPUT as NAMED
    from seqloom.inference.model import BUDGET
    from seqloom.inference.prediction import PredictionNote

    ledger = PredictionNote() if asked.skip else Ledger()
    if wanted.with_input:
        kind = loaded.meaning.schema.input
        if not kind.reads_tokens:
            raise ConfigError(f"--with-input repeats texts, and the model reads {kind}", fix="leave it out")
    source, windows = asked.source, asked.windows(loaded, ledger)
    name = NAMED if source == STANDARD_INPUT else source
    with _progress(source, ledger) as show:
        replies = loaded.replies(windows, ledger, budget=budget or BUDGET)
        lines = (
            show(refused(one, name) if isinstance(one, Problem) else answered(*one, name, with_input=wanted.with_input))
            for one in replies
        )
        last = (ERROR,) if asked.skip else ()
        write_lines(lines, wanted.form, wanted.out, 1 if source == STANDARD_INPUT else TOGETHER, last)
    tell(ledger, wanted.out)
    if ledger.skipped:
        raise typer.Exit(SOME_BAD)


def write_lines(lines: Iterator[AnswerLine], form: Form, out: Path | None, most: int, last: tuple[str, ...]) -> None:
    """Write the lines to a file that is whole or not there, or to standard output as they come.

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
            moved(Progress("answers", done, part=min(1.0, ledger.bytes / whole) if whole else None))
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
        often = f" ({counted(count, 'time')})" if count > 1 else ""
        typer.echo(f"{samples[0]}{often}", err=True)
