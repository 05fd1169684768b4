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
from seqloom.data.problems import Ledger, counted
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.data.examples import Example
    from seqloom.loaded import LoadedModel
    from seqloom.tasks.contract import Prediction

STANDARD_INPUT = "-"
TOGETHER = 256  # lines that are written at once

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]


@shares(FileOptions)
def predict(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for lines of standard input.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")] = None,
    *,
    shared: FileOptions,
) -> None:
    """Answer every input of a file: one JSON object a line, in their order."""
    reading = shared.reading()
    if out is not None and source != STANDARD_INPUT and out.absolute() == Path(source).absolute():
        raise ConfigError(f"--out {out} is the input itself, which the answers would replace", fix="another name")
    from seqloom.loaded.model import BUDGET

    loaded, ledger = load_on(model, shared.device), Ledger()
    examples = _examples(loaded, source, tuple(shared.input_ or ()), reading, ledger)
    with _progress(source, ledger) as show:
        lines = (
            show(_line(*pair, source)) for pair in loaded.answers(examples, ledger, budget=shared.budget or BUDGET)
        )
        _write(lines, out)
    _tell(ledger, out)


def load_on(model: Path, device: str) -> "LoadedModel":
    """The model on the device that was asked for, which is said aloud where it was chosen."""
    from seqloom.loaded import load
    from seqloom.training.devices import choose_device

    if device not in ("auto", "cpu", "cuda", "mps"):
        raise ConfigError(f"--device {device!r}", fix="choose from auto, cpu, cuda, mps")
    chosen = choose_device(device, "float32")  # type: ignore[arg-type]  # one of the four
    loaded = load(model, device=chosen.torch)
    for sentence in chosen.said:
        typer.echo(sentence, err=True)
    return loaded


def _examples(
    loaded: "LoadedModel", source: str, named: tuple[str, ...], reading: Any, ledger: Ledger
) -> "Iterator[Example]":
    from seqloom.data.inputs import Columns, read_inputs, read_lines_of

    kind = loaded.meaning.schema.input
    if source == STANDARD_INPUT:
        return read_lines_of(cast(io.BufferedReader, sys.stdin.buffer), kind, ledger)
    columns = Columns(named, loaded.columns)
    return read_inputs(Path(source), kind, ledger, columns=columns, reading=reading)


def _line(example: "Example", prediction: "Prediction", source: str) -> bytes:
    """The answer to one example, with the name that the data gives it or the place where it stood."""
    path, line, _ = example.place
    place: dict[str, Any] = {"line": line} if path == source or source == STANDARD_INPUT else {"file": path}
    name = {"id": example.id} if example.id else {}
    return msgspec.json.encode(name | place | prediction.to_json()) + b"\n"


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
    for code, count, samples in ledger.warnings():
        typer.echo(f"{samples[0]} ({counted(count, 'time')}; {code})", err=True)
    if out is not None:
        typer.echo(f"{counted(ledger.rows, 'answer')} written to {out}", err=True)
