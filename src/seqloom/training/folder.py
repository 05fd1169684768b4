"""The folder of a run: what is in it, how a run begins in it, and whether one that is there may go on.

    RUN/config.toml    everything that was chosen; written last, so that a folder without it never began
    RUN/data.json      which data it was: sums of the files, the split, what was found
    RUN/vocabulary/    the tokenisers and labels that were fitted
    RUN/checkpoints/   RUN/model/   RUN/metrics.jsonl   RUN/events.jsonl   RUN/looks.jsonl   RUN/.lock

A run that is asked for again goes on if it is the same one (`run_changes`). Otherwise it is refused with all that
changed and the name of a folder that is free.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seqloom import durable
from seqloom.config import reading
from seqloom.config.training import RunConfig
from seqloom.data.dataset import Dataset
from seqloom.data.preparing import Prepared
from seqloom.durable import failing
from seqloom.errors import ConfigError, DamagedError, DurableError, near_name
from seqloom.tasks.contract import Meaning
from seqloom.training import checkpoints
from seqloom.training.devices import Device, environment
from seqloom.training.journal import EVENTS, METRICS
from seqloom.training.ranks import Ranks
from seqloom.training.run_changes import (
    changed_entries,
    changed_environment,
    changed_settings,
    lengthened,
)
from seqloom.training.standing import Environment, Machine, Standing
from seqloom.training.vocabulary import meaning_of, vocabulary_of

CONFIG, DATA, VOCABULARY, LOOKS = "config.toml", "data.json", "vocabulary", "looks.jsonl"
BEFORE_CONFIG = (DATA, VOCABULARY)  # what a start that was interrupted may leave
SHOWN = 6  # changes in one message

Record = TypeVar("Record", Standing, Machine)


class DataFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which data a run reads, as plain values."""

    fingerprints: dict[str, Any]  # of every file
    split: dict[str, Any]  # the rule, and the rows of each part
    findings: list[Any] = []
    said: list[str] = []

    @classmethod
    def of(cls, dataset: Dataset, prepared: Prepared) -> "DataFacts":
        """The facts about prepared data."""
        plain = {
            "fingerprints": dataset.fingerprints(),
            "split": json.loads(prepared.divided.to_json()),
            "findings": prepared.findings,
            "said": dataset.said,
        }
        return msgspec.json.decode(msgspec.json.encode(plain), type=cls)


class RunFolder:
    """A run folder, to begin in, to go on in, or to look at."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints, self.model = self.path / "checkpoints", self.path / "model"

    def config(self) -> RunConfig:
        """The configuration of the run."""
        config: RunConfig = reading.read(self.path / CONFIG, RunConfig)
        return config

    def data(self) -> DataFacts:
        """Which data it reads."""
        try:
            return msgspec.json.decode((self.path / DATA).read_bytes(), type=DataFacts)
        except (OSError, msgspec.DecodeError) as error:
            raise DamagedError(
                f"{self.path / DATA}: expected the facts about the data, found that they cannot be read ({error})",
                fix=f"restore it from a copy, or train in a new folder: {self.free_name()}",
            ) from error

    def vocabulary(self) -> dict[str, bytes]:
        """The files of its vocabulary, verified."""
        return dict(durable.read_folder(self.path / VOCABULARY))

    def meaning(self) -> Meaning:
        """What the numbers that its model reads and writes mean."""
        return meaning_of(self.vocabulary())

    def metrics(self) -> list[dict[str, Any]]:
        """The records that equal runs share: step, validation, end."""
        return list(durable.read_lines(self.path / METRICS).records)

    def events(self) -> list[dict[str, Any]]:
        """The records that depend on the machine: begun, pace, saved, notice, ended."""
        return list(durable.read_lines(self.path / EVENTS).records)

    def looks(self) -> list[dict[str, Any]]:
        """One record for each look at the test part."""
        return list(durable.read_lines(self.path / LOOKS).records)

    def standing(self) -> Standing | None:
        """Where the run stood at its newest checkpoint whose record of it verifies; tensors are not looked at."""
        return self._newest(checkpoints.read_standing)

    def machine(self) -> Machine | None:
        """On which machine that was."""
        return self._newest(checkpoints.read_machine)

    def _newest(self, read: Callable[[Path], Record]) -> Record | None:
        for path in reversed(checkpoints.steps(self.checkpoints)):
            try:
                return read(path)
            except DurableError:  # told when the whole checkpoint is read
                continue
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which this process alone writes here; the place is looked at first, the folder made if missing."""
        self.require_place()
        with durable.hold(self.path):
            yield

    def require_place(self) -> None:
        """Raise ConfigError where no run can be: before any work, and without writing anything."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file, and a run needs a folder", fix="choose another name")
        if not self.path.parent.is_dir():
            raise ConfigError(
                f"{self.path}: there is no folder {self.path.parent}", fix=f"make it, or {near_name(self.path.parent)}"
            )
        existing = self.path if self.path.exists() else self.path.parent
        if not os.access(existing, os.W_OK | os.X_OK):
            raise ConfigError(f"{existing} cannot be written", fix="choose another folder, or change its permissions")
        self._require_ours()

    def _require_ours(self) -> None:
        """Refuse a folder in which somebody keeps other things."""
        if not self.path.exists() or (self.path / CONFIG).exists():
            return
        names = sorted(path.name for path in self.path.iterdir())
        strays = [name for name in names if name not in BEFORE_CONFIG and not name.startswith(".")]
        if strays:
            raise ConfigError(
                f"{self.path} holds {strays[0]} and no {CONFIG}, so it is not the folder of a run",
                fix=f"train in a new folder: {self.free_name()}",
            )

    def free_name(self) -> Path:
        """A folder beside this one that is not there yet: RUN-2, RUN-3, ..."""
        number = 2
        while (other := self.path.with_name(f"{self.path.name}-{number}")).exists():
            number += 1
        return other

    def start(
        self, config: RunConfig, facts: DataFacts, meaning: Meaning, device: Device, ranks: Ranks
    ) -> tuple[str, ...]:
        """What people should know about a run that goes on, nothing about a new one; for process 0, which holds it.

        ConfigError, with all that changed and the name of a free folder, if the run that is here is another one.
        """
        self.require_place()
        durable.make_folder(self.path)
        durable.recover(self.path)
        vocabulary = vocabulary_of(meaning)
        if not (self.path / CONFIG).exists():
            self._begin(config, facts, vocabulary)
            said: tuple[str, ...] = ()
        else:
            said = self._go_on(config, facts, vocabulary, environment(device, ranks))
        durable.make_folder(self.checkpoints)
        durable.recover(self.checkpoints)
        return said

    def _begin(self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes]) -> None:
        contents = {name: failing.cut(memoryview(data), failing.VOCABULARY) for name, data in vocabulary.items()}
        durable.replace_folder(self.path / VOCABULARY, contents)
        durable.write_file(self.path / DATA, msgspec.json.format(msgspec.json.encode(facts), indent=2))
        durable.write_file(self.path / CONFIG, config.to_toml())

    def _go_on(
        self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes], now: Environment
    ) -> tuple[str, ...]:
        before, known = self.config(), self.data()
        changes = [
            *changed_entries("the file", known.fingerprints, facts.fingerprints),
            *changed_entries("of the split, the", known.split, facts.split),
            *changed_settings(before, config),
            *changed_entries("of the vocabulary,", self.vocabulary(), vocabulary),
        ]
        if changes:
            more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
            raise ConfigError(
                f"{self.path} holds another run: {'; '.join(changes[:SHOWN])}{more}",
                fix=f"ask for what it was, or train in a new folder: {self.free_name()}",
            )
        if before != config:
            durable.write_file(self.path / CONFIG, config.to_toml())
        machine = self.machine()
        warned = changed_environment(machine.environment, now) if machine is not None else ()
        return (*lengthened(before, config), *warned)
