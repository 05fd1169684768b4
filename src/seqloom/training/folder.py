"""The folder of a run: what is in it, how a run begins in it, and whether one that is there may go on.

    RUN/config.toml    everything that was chosen; written last, so that a folder without it never began
    RUN/data.json      which data it was: sums of the files, the split, what was found
    RUN/places.json    where its files lie (`data.run_files`)
    RUN/vocabulary/    the tokenisers and labels that were fitted
    RUN/checkpoints/   RUN/model/   RUN/metrics.jsonl   RUN/events.jsonl   RUN/looks.jsonl   RUN/.lock

A run that is asked for again goes on if it is the same one (`run_changes`). Another one is refused, with all that
changed and the name of a folder that is free, unless the one that is here was stopped before it kept anything.
"""

import json
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
from seqloom.data.sealing import every_sum
from seqloom.durable import failing
from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.tasks.contract import Meaning
from seqloom.training import checkpoints
from seqloom.training.devices import Device, environment
from seqloom.training.journal import EVENTS, METRICS
from seqloom.training.places import CONFIG, DATA, LOOKS, VOCABULARY, free_name, has_kept, require_place
from seqloom.training.ranks import Ranks
from seqloom.training.run_changes import (
    changed_entries,
    changed_environment,
    changed_settings,
    lengthened,
    refined,
)
from seqloom.training.standing import Environment, Machine, Standing
from seqloom.training.vocabulary import meaning_of, vocabulary_of

__all__ = ["CONFIG", "DATA", "DataFacts", "RunFolder"]

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
                fix=f"restore it from a copy, or train in a new folder: {free_name(self.path)}",
            ) from error

    def vocabulary(self) -> dict[str, bytes]:
        """The files of its vocabulary, verified."""
        return dict(durable.read_folder(self.path / VOCABULARY))

    def meaning(self) -> Meaning:
        """What the numbers that its model reads and writes mean."""
        return meaning_of(self.vocabulary())

    def has_begun(self) -> bool:
        """Whether a run is here that may go on."""
        return (self.path / CONFIG).is_file()

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
        require_place(self.path)
        with durable.hold(self.path):
            yield

    def start(
        self, config: RunConfig, facts: DataFacts, meaning: Meaning, device: Device, ranks: Ranks
    ) -> tuple[str, ...]:
        """What people should know about a run that goes on, nothing about a new one; for process 0, which holds it.

        ConfigError, with all that changed and the name of a free folder, if the run that is here is another one.
        """
        require_place(self.path)
        durable.make_folder(self.path)
        durable.recover(self.path)
        vocabulary, new = vocabulary_of(meaning), not self.has_begun()
        if new:
            self._begin(config, facts, vocabulary)
        durable.make_folder(self.checkpoints)
        durable.recover(self.checkpoints)
        return () if new else self._go_on(config, facts, vocabulary, environment(device, ranks))

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
        more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        told = f"{'; '.join(changes[:SHOWN])}{more}"
        if changes and not has_kept(self.path):
            self._begin(config, facts, vocabulary)
            return (f"the run that was here had kept nothing, and this one begins in its place: {told}",)
        if changes:
            raise ConfigError(
                f"{self.path} holds another run: {told}",
                fix=f"ask for what it was, or train in a new folder: {free_name(self.path)}",
            )
        if before != config:
            durable.write_file(self.path / CONFIG, config.to_toml())
        machine = self.machine()
        warned = changed_environment(machine.environment, now) if machine is not None else ()
        return (*lengthened(before, config), *refined(before, config), *warned)
