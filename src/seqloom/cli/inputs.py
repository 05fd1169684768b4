"""Shared by verbs that use a model: the model on its device, and its input file or stream."""

import io
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import msgspec
import typer

from seqloom.cli.options import Given, option, require_device
from seqloom.cli.terminal import Screen
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.config.options import said, with_flags
from seqloom.data.problems import Ledger, Place
from seqloom.errors import ConfigError, near_name

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from seqloom.data.schema import Example
    from seqloom.inference.as_trained import FileReading
    from seqloom.inference.model import LoadedModel
    from seqloom.search.documents import TextFile

STANDARD_INPUT = "-"
FILE_NAME = re.compile(r"\.\w{1,8}$")  # the end of a file name, not of a sentence
PATH_MARKS = frozenset("/\\")  # in a single word, they make it a path
NOT_ASKED = " in float32"  # prediction has no choice of precision
LINED = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}  # files in which a bad line does not affect others

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]
Deterministic = Annotated[
    bool, option("--deterministic", None, "Use only deterministic GPU kernels; slower (default: off).")
]
Exact = Annotated[
    bool,
    option(
        "--exact", None, "Exact search instead of approximate search (HNSW); slower in large indexes (default: off)."
    ),
]


def load_on(model: Path, device: str) -> "LoadedModel":
    """Load the model on its device; with `auto`, print the chosen device and the reason on a terminal."""
    from seqloom.inference.model import load
    from seqloom.training.devices import choose_device

    require_device(device)
    chosen = choose_device(device, "float32")  # type: ignore[arg-type]  # one of the four
    loaded = load(model, device=chosen.torch)
    screen = Screen(stderr=True)
    for sentence in chosen.messages if device == "auto" and screen.is_terminal else ():
        screen.say(sentence.removesuffix(NOT_ASKED))
    return loaded


def exact(wanted: bool) -> "AbstractContextManager[None]":
    """Inside the `with`, torch uses only deterministic kernels if `wanted`."""
    from seqloom.config.training import TrainingConfig
    from seqloom.training import devices

    return devices.deterministic(TrainingConfig(deterministic=True)) if wanted else nullcontext()


class TextEmbedder(NamedTuple):
    """A loaded model that computes vectors with a given batch size."""

    loaded: "LoadedModel"
    batch_tokens: int | None  # None: the default of the device

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        return self.loaded.embed(texts, batch_tokens=self.batch_tokens)


def embedder_of(model: Path, device: str, batch_tokens: int | None) -> TextEmbedder:
    """Load the model on its device, with its batch size."""
    return TextEmbedder(load_on(model, device), batch_tokens)


def require_another(source: str, out: Path | None) -> None:
    """Raise ConfigError if the output file is the input."""
    if out is not None and source != STANDARD_INPUT and out.absolute() == Path(source).absolute():
        raise ConfigError(f"--out {out} is the input file and would be overwritten", fix="give another name")


def require_readable(given: Given) -> None:
    """Raise ConfigError for wrong reading options before a model is loaded."""
    ReadingConfig(**said(ReadingConfig, given))
    said(BadRows, given)


def reading_of(loaded: "LoadedModel", source: str, given: Given, identity: str | None = None) -> "FileReading":
    """Return how to read an input file: by the options, else as in training; a stream only by the options.

    `identity` is the column of ids of training, if the verb reads ids.
    """
    from seqloom.inference.as_trained import FileReading, inputs_as_trained, trained_format

    named = said(ReadingConfig, given)
    if source == STANDARD_INPUT:
        reading, was = ReadingConfig(**named), None if loaded.run is None else trained_format(loaded.run)
        return FileReading(reading, as_trained=reading.format == was == "jsonl")
    columns = () if "input" in given else loaded.columns
    return _printed(inputs_as_trained(loaded.run, Path(source), named, columns, identity, loaded.spec.schema.labels))


def text_file_of(file: Path, model: Path | None, given: Given) -> "TextFile":
    """Return a file of texts: read by the options, else as the run of the model was."""
    from seqloom.inference.as_trained import inputs_as_trained, run_config
    from seqloom.search.documents import TextFile

    run = None if model is None else run_config(model)
    columns = run.data.input if run is not None and len(run.data.input) == 1 else ()
    read = inputs_as_trained(run, file, said(ReadingConfig, given), () if "input" in given else columns)
    return TextFile(file, tuple(given.get("input", ())), given.get("id"), columns, _printed(read).config)


def _printed(read: "FileReading") -> "FileReading":
    """Return how a file is read, after the message about what was reused from training, if it exists."""
    from seqloom.data.readers.files import is_there

    for sentence in read.messages if all(is_there(str(file)) for file in read.files) else ():
        typer.echo(sentence, err=True)
    return read


class PredictRequest(NamedTuple):
    """The inputs to predict, and how to read them."""

    source: str
    named: tuple[str, ...]  # columns
    sequence: str | None
    reading: ReadingConfig
    skip: bool  # whether bad rows are reported and the others predicted
    as_trained: bool = False  # whether it is a table in the format of training
    id: str | None = None  # column of ids
    text: str | None = None  # one text, read in place of standard input

    @classmethod
    def of(cls, loaded: "LoadedModel", source: str, given: Given) -> "PredictRequest":
        """Build the request from options; the defaults are those of training."""
        read = reading_of(loaded, source, given, None if "id" in given else loaded.id_column)
        skip = with_flags(loaded.bad_rows, given).skip_bad_rows
        named = tuple(given.get("input", ()))
        return cls(source, named, given.get("sequence"), read.config, skip, read.as_trained, given.get("id"))

    @classmethod
    def of_argument(cls, loaded: "LoadedModel", argument: str, given: Given) -> "PredictRequest":
        """The same for an argument that may also be a text: one that is no file and does not look like a file name.

        A single word may also be a misspelled name, so it is said that it is read as a text.
        """
        from seqloom.data.readers.files import is_there, known_format

        reads_text, words = loaded.task.input_spec.schema.input.reads_tokens, len(argument.split())
        if not words:
            raise ConfigError("the input is empty", fix="give a file, a text in quotes, or - for standard input")
        is_name = is_there(argument) or known_format(Path(argument)) is not None or "://" in argument
        if argument == STANDARD_INPUT or is_name or not reads_text:
            return cls.of(loaded, argument, given)
        if FILE_NAME.search(argument) or (words == 1 and PATH_MARKS & set(argument)):
            fix = f"{near_name(Path(argument))}; a text that looks like a file name is read from standard input: -"
            Ledger().bad_file("file.missing", "there is no such file", Place(argument), fix)
        if words == 1:
            typer.echo(f"text: {argument!r}, because there is no file of this name", err=True)
        return cls.of(loaded, STANDARD_INPUT, given)._replace(text=argument)

    def windows(self, loaded: "LoadedModel", ledger: Ledger) -> "Iterable[list[Example]]":
        """Yield the inputs in windows; for a stream, the lines that have arrived."""
        from seqloom.data.inputs import InputColumns, Stream, lines_of, read_inputs, read_stream
        from seqloom.inference.prediction import windows_of

        kind, path = loaded.task.input_spec.schema.input, Path(self.source)
        columns = InputColumns(
            self.named,
            loaded.columns,
            self.sequence,
            loaded.sequence,
            self.as_trained,
            self.id,
            loaded.id_column,
        )
        if self.source == STANDARD_INPUT:
            stream: Stream = cast(io.BufferedReader, sys.stdin.buffer)
            reading = self.reading
            if self.text is not None:
                stream, reading = io.BytesIO(self.text.encode()), msgspec.structs.replace(reading, encoding="utf-8")
            return read_stream(stream, kind, ledger, reading, columns)
        if self.skip and self.sequence is None and self._has_lines(path):
            format_ = self.reading.format or cast(Any, LINED[path.suffix.lower()])
            return lines_of(path, kind, ledger, format_, columns)
        return windows_of(read_inputs(path, kind, ledger, columns=columns, reading=self.reading))

    def _has_lines(self, path: Path) -> bool:
        """Whether a file is read line by line, so that a bad line does not affect others."""
        plain = ReadingConfig(format=self.reading.format)
        lined = self.reading.format in ("text", "jsonl") or (
            self.reading.format is None and path.suffix.lower() in LINED
        )
        return path.is_file() and lined and self.reading == plain
