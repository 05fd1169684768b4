"""`seqloom predict`: the answers of a model to inputs, one JSON object a line, in the order of the inputs."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from seqloom.cli.data_options import FileOptions
from seqloom.cli.screen import Screen
from seqloom.cli.sharing import shares
from seqloom.data.problems import Ledger, Problem, counted
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.data.examples import Example, Input
    from seqloom.loaded import LoadedModel
    from seqloom.tasks.contract import Prediction

STANDARD_INPUT = "-"
TOGETHER = 256  # lines that are written at once
OTHER_FORMATS = (".csv", ".tsv", ".json", ".parquet", ".npz", ".xlsx")  # names that promise something else
WHOLE = 1e6  # from here on six digits have no place behind the point
NOT_ASKED = " in float32"  # of a model that is only asked, nobody chooses the precision

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]


@shares(FileOptions)
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")] = None,
    with_input: Annotated[bool, typer.Option("--with-input", help="Repeat the input beside its answer.")] = False,
    *,
    shared: FileOptions,
) -> None:
    """Answer every input of a file: one JSON object a line, in their order."""
    reading = shared.reading()
    if out is not None:
        _require_name(out, source)
    from seqloom.loaded.model import BUDGET

    loaded, ledger = load_on(model, shared.device), Ledger()
    if with_input:
        _require_text(loaded)
    examples = _examples(loaded, source, tuple(shared.input_ or ()), reading, ledger)
    with _progress(source, ledger) as show:
        answers = loaded.answers(examples, ledger, budget=shared.budget or BUDGET)
        lines = (show(_line(*pair, source, with_input=with_input)) for pair in answers)
        _write(lines, out)
    _tell(ledger, out)


def load_on(model: Path, device: str) -> "LoadedModel":
    """The model on the device that was asked for; where it was chosen, people at a terminal read which and why."""
    from seqloom.loaded import load
    from seqloom.training.devices import choose_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise ConfigError(f"--device {device!r}", fix="choose from auto, cpu, cuda, mps")
    chosen = choose_device(device, "float32")  # type: ignore[arg-type]  # one of the four
    loaded = load(model, device=chosen.torch)
    screen = Screen(stderr=True)
    for sentence in chosen.said if device == "auto" and screen.is_terminal else ():
        screen.print(sentence.removesuffix(NOT_ASKED), markup=False, soft_wrap=True)
    return loaded


def _require_name(out: Path, source: str) -> None:
    """Refuse a file for the answers that is the input, or whose name promises another format than it will have."""
    if source != STANDARD_INPUT and out.absolute() == Path(source).absolute():
        raise ConfigError(f"--out {out} is the input itself, which the answers would replace", fix="another name")
    if out.suffix.lower() in OTHER_FORMATS:
        raise ConfigError(
            f"--out {out}: the answers are JSON, one object a line, and not {out.suffix}",
            fix=f"--out {out.with_suffix('.jsonl')}",
        )


def _require_text(loaded: "LoadedModel") -> None:
    kind = loaded.meaning.schema.input
    if kind in ("vectors", "picture"):
        raise ConfigError(f"--with-input repeats texts, and the model reads {kind}", fix="leave it out")


def _examples(
    loaded: "LoadedModel", source: str, named: tuple[str, ...], reading: Any, ledger: Ledger
) -> "Iterator[Example]":
    from seqloom.data.inputs import Columns, read_inputs, read_lines_of

    kind = loaded.meaning.schema.input
    if source == STANDARD_INPUT:
        return read_lines_of(cast(io.BufferedReader, sys.stdin.buffer), kind, ledger)
    columns = Columns(named, loaded.columns)
    return read_inputs(Path(source), kind, ledger, columns=columns, reading=reading)


def _line(example: "Example", prediction: "Prediction", source: str, *, with_input: bool) -> bytes:
    """The answer to one example, with the name that the data gives it or the place where it stood."""
    given = {"input": _repeated(example.input)} if with_input else {}
    path, line, _ = example.place
    place: dict[str, Any] = {"line": line} if path == source or source == STANDARD_INPUT else {"file": path}
    name = {"id": example.id} if example.id else {}
    return msgspec.json.encode(name | place | given | rounded(prediction.to_json())) + b"\n"


def _repeated(given: "Input") -> Any:
    """A text as it was read; of a text cut into words, the text."""
    return getattr(given, "text", given)


def rounded(value: Any) -> Any:
    """The same plain value, each fraction in it to six digits that matter: a model knows no more.

    >>> rounded({"scores": {"good": 0.12345678901234567}, "numbers": [1234567.75, -2e-9], "line": 3})
    {'scores': {'good': 0.123457}, 'numbers': [1234568.0, -2e-09], 'line': 3}
    """
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < WHOLE else round(value, 0)
    return value


def _write(lines: Iterator[bytes], out: Path | None) -> None:
    """Nothing; the lines are in a file that is whole or not there, or on standard output as they come."""
    if out is not None:
        from seqloom.durable import write_file

        return write_file(out, lines)
    screen = Screen()
    while together := b"".join(line for line, _ in zip(lines, range(TOGETHER), strict=False)):
        screen.print(together.decode(), end="", markup=False, soft_wrap=True)
    return None


@contextmanager
def _progress(source: str, ledger: Ledger) -> Iterator[Any]:
    """A block with a bar on a terminal; what is shown in it passes through."""
    screen = Screen(stderr=True)
    path = Path(source)
    size = path.stat().st_size if path.is_file() else 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work, done = bar.add_task("", total=size or None), 0

        def show(line: bytes) -> bytes:
            nonlocal done
            done += 1
            bar.update(work, description=f"{counted(done, 'answer')}", completed=min(ledger.bytes, size))
            return line

        yield show


def _tell(ledger: Ledger, out: Path | None) -> None:
    """Say what was cut or passed over, and where the answers are."""
    for _, count, samples in ledger.warnings():
        typer.echo(_first_of(count, samples[0]), err=True)
    if out is not None:
        typer.echo(f"{counted(ledger.rows, 'answer')} written to {out}", err=True)


def _first_of(count: int, problem: Problem) -> str:
    """A warning, and how often it came up if that is more than once."""
    return f"{problem} ({counted(count, 'time')})" if count > 1 else str(problem)
