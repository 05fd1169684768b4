"""The folder of a run: what is in it, how a run begins in it, and whether one that is there may go on.

    RUN/config.toml    everything that was chosen; written last, so that a folder without it never began
    RUN/data.json      which data it was: sums of the files, the split, what was found
    RUN/places.json    where its files lie (`data.run_files`)
    RUN/vocabulary/    the tokenisers and labels that were fitted
    RUN/checkpoints/   RUN/model/   RUN/metrics.jsonl   RUN/events.jsonl   RUN/looks.jsonl   RUN/.lock

A run that is asked for again goes on if it is the same one (`home.py`). Another one is refused, with all that
changed and the name of a folder that is free, unless the one that is here was stopped before it kept anything.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from seqloom import files
from seqloom.bundle import read_tokenizers, tokenizer_files
from seqloom.config.base import read
from seqloom.config.training import RunConfig
from seqloom.data.dataset import Dataset, every_sum
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DamagedError, DataError, DurableError
from seqloom.files import disk
from seqloom.files.layouts import RunFile, VocabularyFile
from seqloom.tasks.task import Meaning
from seqloom.training import checkpoint
from seqloom.training.checkpoint import Record
from seqloom.training.devices import Device, Ranks, environment
from seqloom.training.home import (
    changed,
    changed_entries,
    changed_environment,
    free_name,
    going_on,
    has_kept,
    require_place,
)
from seqloom.training.state import Environment, Machine, TrainingState

OF_BEFORE = (RunFile.METRICS, RunFile.EVENTS, RunFile.MEMORY, RunFile.REPORT, RunFile.CARD)  # when another run begins

# The vocabulary of a run as files: what the numbers in its data mean, fitted once and compared when it goes on.
#
# labels.json        ["neg", "pos"], in the order of their numbers
# schema.json        {"input": "text", "target": "label", "sizes": [], "numbers": 0}, and the units of numbers
# tokenizer.json     of the input, if it is text; target_tokenizer.json of a target text that has its own


class _Outline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    input: str
    target: str
    sizes: tuple[int, ...]
    numbers: int
    units: tuple[tuple[float, float], ...] = ()


def vocabulary_of(meaning: Meaning) -> dict[str, bytes]:
    """The files of a vocabulary."""
    schema = meaning.schema
    outline = _Outline(schema.input.name, schema.target.name, tuple(meaning.sizes), meaning.numbers, meaning.units)
    labels = json.dumps(schema.labels, ensure_ascii=False).encode()
    schema_file = msgspec.json.encode(outline)
    return {VocabularyFile.LABELS: labels, VocabularyFile.SCHEMA: schema_file, **tokenizer_files(meaning)}


def meaning_of(files: Mapping[str, bytes]) -> Meaning:
    """What the numbers mean, from the files of a vocabulary; DamagedError for files that are none."""
    try:
        labels = msgspec.json.decode(files[VocabularyFile.LABELS], type=tuple[str, ...])
        outline = msgspec.json.decode(files[VocabularyFile.SCHEMA], type=_Outline)
        schema = Schema(outline.input, outline.target, labels)
    except (KeyError, msgspec.DecodeError, DataError) as error:
        raise DamagedError(
            f"the vocabulary of the run cannot be read: {error!r}", fix="restore it from a copy"
        ) from error
    tokenizers = read_tokenizers(files, schema, Path(RunFile.VOCABULARY))
    return Meaning(schema, *tokenizers, outline.sizes, outline.numbers, units=outline.units)


SHOWN = 6  # changes in one message


class DataFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which data a run reads, as plain values."""

    fingerprints: dict[str, Any]  # of every file
    split: dict[str, Any]  # the rule, and the rows of each part
    findings: list[Any] = []
    said: list[str] = []

    @classmethod
    def of(cls, dataset: Dataset, prepared: Prepared) -> "DataFacts":
        """The facts about prepared data; of a part that stays shut, not even the number of its rows."""
        split = json.loads(prepared.divided.to_json())
        split["counts"] = {part: rows for part, rows in split["counts"].items() if part in dataset.parts}
        plain = {
            "fingerprints": every_sum(dataset),
            "split": split,
            "findings": prepared.findings,
            "said": dataset.said,
        }
        return msgspec.json.decode(msgspec.json.encode(plain), type=cls)


class RunFolder:
    """A run folder, to begin in, to go on in, or to look at."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints, self.model = self.path / RunFile.CHECKPOINTS, self.path / RunFile.MODEL

    def config(self) -> RunConfig:
        """The configuration of the run."""
        config: RunConfig = read(self.path / RunFile.CONFIG, RunConfig)
        return config

    def data(self) -> DataFacts:
        """Which data it reads."""
        try:
            return msgspec.json.decode((self.path / RunFile.DATA).read_bytes(), type=DataFacts)
        except (OSError, msgspec.DecodeError) as error:
            text = f"expected the facts about the data, found that they cannot be read ({error})"
            raise DamagedError(
                f"{self.path / RunFile.DATA}: {text}",
                fix=f"restore it from a copy, or train in a new folder: {free_name(self.path)}",
            ) from error

    def vocabulary(self) -> dict[str, bytes]:
        """The files of its vocabulary, verified."""
        return dict(files.read_folder(self.path / RunFile.VOCABULARY))

    def meaning(self) -> Meaning:
        """What the numbers that its model reads and writes mean."""
        return meaning_of(self.vocabulary())

    def has_begun(self) -> bool:
        """Whether a run is here that may go on."""
        return (self.path / RunFile.CONFIG).is_file()

    def metrics(self) -> list[dict[str, Any]]:
        """The records that equal runs share: step, validation, end."""
        return list(files.read_lines(self.path / RunFile.METRICS).records)

    def events(self) -> list[dict[str, Any]]:
        """The records that depend on the machine: begun, pace, saved, notice, ended."""
        return list(files.read_lines(self.path / RunFile.EVENTS).records)

    def looks(self) -> list[dict[str, Any]]:
        """One record for each look at the test part."""
        return list(files.read_lines(self.path / RunFile.LOOKS).records)

    def standing(self) -> TrainingState | None:
        """Where the run stood at its newest checkpoint whose record of it verifies; tensors are not looked at."""
        return self._newest(checkpoint.read_standing)

    def machine(self) -> Machine | None:
        """On which machine that was."""
        return self._newest(checkpoint.read_machine)

    def _newest(self, read: Callable[[Path], Record]) -> Record | None:
        for path in reversed(checkpoint.steps(self.checkpoints)):
            try:
                return read(path)
            except DurableError:  # told when the whole checkpoint is read
                continue
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which this process alone writes here; the place is looked at first, the folder made if missing."""
        require_place(self.path)
        with files.hold(self.path):
            yield

    def start(
        self, config: RunConfig, facts: DataFacts, meaning: Meaning, device: Device, ranks: Ranks
    ) -> tuple[str, ...]:
        """What people should know about a run that goes on, nothing about a new one; for process 0, which holds it.

        ConfigError, with all that changed and the name of a free folder, if the run that is here is another one.
        """
        require_place(self.path)
        files.make_folder(self.path)
        files.recover(self.path)
        vocabulary, new = vocabulary_of(meaning), not self.has_begun()
        if new:
            self._begin(config, facts, vocabulary)
        files.make_folder(self.checkpoints)
        files.recover(self.checkpoints)
        return () if new else self._go_on(config, facts, vocabulary, environment(device, ranks))

    def _begin(self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes]) -> None:
        contents = {name: disk.cut(memoryview(data), disk.VOCABULARY) for name, data in vocabulary.items()}
        files.replace_folder(self.path / RunFile.VOCABULARY, contents)
        files.write_file(self.path / RunFile.DATA, msgspec.json.format(msgspec.json.encode(facts), indent=2))
        files.write_file(self.path / RunFile.CONFIG, config.to_toml())

    def _go_on(
        self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes], now: Environment
    ) -> tuple[str, ...]:
        before, known = self.config(), self.data()
        changes = [
            *changed_entries("the file", known.fingerprints, facts.fingerprints),
            *changed_entries("of the split, the", known.split, facts.split),
            *map(str, changed(before, config)),
            *changed_entries("of the vocabulary,", self.vocabulary(), vocabulary),
        ]
        more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        told = f"{'; '.join(changes[:SHOWN])}{more}"
        if changes and not has_kept(self.path):
            files.remove_files(self.path / name for name in OF_BEFORE)
            self._begin(config, facts, vocabulary)
            return (f"the run that was here had kept nothing, and this one begins in its place: {told}",)
        if changes:
            raise ConfigError(
                f"{self.path} holds another run: {told}",
                fix=f"ask for what it was, or train in a new folder: {free_name(self.path)}",
            )
        if before != config:
            files.write_file(self.path / RunFile.CONFIG, config.to_toml())
        machine = self.machine()
        warned = changed_environment(machine.environment, now) if machine is not None else ()
        return (*going_on(before, config), *warned)
