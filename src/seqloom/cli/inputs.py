"""What verbs that ask a model share: the model on its device, and the file or the stream of its inputs."""

import io
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from seqloom.cli.options import Given, option, require_device
from seqloom.cli.terminal import Screen
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.config.options import said, with_flags
from seqloom.data.problems import Ledger
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from seqloom.data.schema import Example
    from seqloom.inference.model import LoadedModel

STANDARD_INPUT = "-"
NOT_ASKED = " in float32"  # of a model that is only asked, nobody chooses the precision
LINED = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}  # files in which a bad line spoils itself alone

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]
Deterministic = Annotated[bool, option("--deterministic", None, "Use only kernels whose sums do not depend on timing.")]
Exact = Annotated[bool, option("--exact", None, "No graph: compare every passage, however many there are.")]


def load_on(model: Path, device: str) -> "LoadedModel":
    """The model on the device that was asked for; where it was chosen, people at a terminal read which and why."""
    from seqloom.inference.model import load
    from seqloom.training.devices import choose_device

    require_device(device)
    chosen = choose_device(device, "float32")  # type: ignore[arg-type]  # one of the four
    loaded = load(model, device=chosen.torch)
    screen = Screen(stderr=True)
    for sentence in chosen.said if device == "auto" and screen.is_terminal else ():
        screen.say(sentence.removesuffix(NOT_ASKED))
    return loaded


def exact(wanted: bool) -> "AbstractContextManager[None]":
    """A block in which torch refuses kernels whose sums depend on timing, if that is wanted."""
    from seqloom.config.training import TrainingConfig
    from seqloom.training import devices

    return devices.deterministic(TrainingConfig(deterministic=True)) if wanted else nullcontext()


class TextEmbedder(NamedTuple):
    """A loaded model that makes vectors with batches of a certain size."""

    loaded: "LoadedModel"
    budget: int

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """[N,W] the vectors of the texts, in their order."""
        return self.loaded.embed(texts, budget=self.budget)


def embedder_of(model: Path, device: str, budget: int | None) -> TextEmbedder:
    """The model on the device, with the batches, that were asked for."""
    from seqloom.inference.model import BUDGET

    return TextEmbedder(load_on(model, device), budget or BUDGET)


def require_another(source: str, out: Path | None) -> None:
    """Refuse a file for the answers that is the input."""
    if out is not None and source != STANDARD_INPUT and out.absolute() == Path(source).absolute():
        raise ConfigError(f"--out {out} is the input itself, which the answers would replace", fix="another name")


def require_readable(given: Given) -> None:
    """Refuse what was typed about a file of inputs and cannot be, before a model is read."""
    ReadingConfig(**said(ReadingConfig, given))
    said(BadRows, given)


def reading_of(loaded: "LoadedModel", source: str, given: Given) -> ReadingConfig:
    """How a file of inputs is read: as is told, else as in training, which is said; a stream only as is told."""
    from seqloom.inference.as_trained import inputs_as_trained

    told = said(ReadingConfig, given)
    if source == STANDARD_INPUT:
        return ReadingConfig(**told)
    read = inputs_as_trained(loaded.run, Path(source), told)
    for sentence in read.said:
        typer.echo(sentence, err=True)
    return read.config


class PredictRequest(NamedTuple):
    """What is asked of a model: where the inputs stand, and how they are read."""

    source: str
    named: tuple[str, ...]  # columns
    sequence: str | None
    reading: ReadingConfig
    skip: bool  # whether bad rows are told and the rest answered

    @classmethod
    def of(cls, loaded: "LoadedModel", source: str, given: Given) -> "PredictRequest":
        """What was typed; what was not is as in training."""
        reading, skip = reading_of(loaded, source, given), with_flags(loaded.bad_rows, given).skip
        return cls(source, tuple(given.get("input", ())), given.get("sequence"), reading, skip)

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
