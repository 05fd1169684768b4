"""The run folder: its files, how a run starts in it, and whether the run in it can be resumed.

    RUN/config.toml    the complete configuration; written last, so a folder without it contains no run
    RUN/data.json      which data it was: hashes of the files, the split, the findings
    RUN/paths.json     where its data files are (`data.run_files`)
    RUN/vocabulary/    the fitted tokenizers and labels
    RUN/checkpoints/   RUN/model/   RUN/metrics.jsonl   RUN/events.jsonl   RUN/test_evaluations.jsonl   RUN/.lock

The same request again resumes the run. Another is refused, with a list of the changes (`run_location.py`) and the
name of a free folder, unless the run in the folder was stopped before it saved anything.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from seqloom import files
from seqloom.bundle import read_tokenizers, tokenizer_files
from seqloom.config.base import read
from seqloom.config.old_names import renamed_facts
from seqloom.config.training import RunConfig
from seqloom.data.dataset import Dataset, all_fingerprints
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DamagedError, DataError, DurableError
from seqloom.files import disk
from seqloom.files.disk import existing
from seqloom.files.layouts import RunFile, VocabularyFile
from seqloom.tasks.task import ModelSpec
from seqloom.training import checkpoint
from seqloom.training.checkpoint import Record
from seqloom.training.devices import Device, Ranks, environment
from seqloom.training.events import Report, events_of, read_log
from seqloom.training.run_location import (
    CHANGED_FILE,
    CHANGED_SPLIT,
    CHANGED_VOCABULARY,
    DIFFERENT,
    brief_changes,
    changed,
    changed_entries,
    changed_environment,
    free_name,
    has_results,
    require_run_folder,
    resume_messages,
)
from seqloom.training.state import Environment, Machine, TrainingState

REPLACED = (RunFile.METRICS, RunFile.EVENTS, RunFile.MEMORY, RunFile.REPORT, RunFile.CARD)  # by a new run

# The vocabulary of a run: fitted once, and compared when the run is resumed.
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


def vocabulary_of(spec: ModelSpec) -> dict[str, bytes]:
    schema = spec.schema
    outline = _Outline(schema.input.name, schema.target.name, tuple(spec.sizes), spec.numbers, spec.units)
    labels = json.dumps(schema.labels, ensure_ascii=False).encode()
    schema_file = msgspec.json.encode(outline)
    return {VocabularyFile.LABELS: labels, VocabularyFile.SCHEMA: schema_file, **tokenizer_files(spec)}


def spec_of(files: Mapping[str, bytes]) -> ModelSpec:
    """The model spec in the files of a vocabulary; DamagedError if they are not readable."""
    try:
        labels = msgspec.json.decode(files[VocabularyFile.LABELS], type=tuple[str, ...])
        outline = msgspec.json.decode(files[VocabularyFile.SCHEMA], type=_Outline)
        schema = Schema(outline.input, outline.target, labels)
    except (KeyError, msgspec.DecodeError, DataError) as error:
        raise DamagedError(
            f"the vocabulary of the run is not readable: {error!r}", fix="restore it from a backup"
        ) from error
    tokenizers = read_tokenizers(files, schema, Path(RunFile.VOCABULARY))
    return ModelSpec(schema, *tokenizers, outline.sizes, outline.numbers, units=outline.units)


class DataFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The data of a run, as in data.json."""

    fingerprints: dict[str, Any]  # size and sha256 of every file
    split: dict[str, Any]  # the rule, and the number of rows in each set
    findings: list[Any] = []
    messages: list[str] = []

    @classmethod
    def of(cls, dataset: Dataset, prepared: Prepared) -> "DataFacts":
        """The facts about prepared data, without those about the sealed test set."""
        split = json.loads(prepared.split_summary.to_json())
        split["counts"] = {part: rows for part, rows in split["counts"].items() if part in dataset.splits}
        plain = {
            "fingerprints": all_fingerprints(dataset),
            "split": split,
            "findings": prepared.findings,
            "messages": dataset.messages,
        }
        return msgspec.json.decode(msgspec.json.encode(plain), type=cls)


class RunFolder:
    """A run folder: to start a run, to resume it, or to read it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints, self.model = self.path / RunFile.CHECKPOINTS, self.path / RunFile.MODEL

    def config(self) -> RunConfig:
        config: RunConfig = read(self.path / RunFile.CONFIG, RunConfig)
        return config

    def data(self) -> DataFacts:
        """The facts about its data."""
        try:
            plain = msgspec.json.decode((self.path / RunFile.DATA).read_bytes(), type=dict[str, Any])
            return msgspec.convert(renamed_facts(plain), DataFacts)
        except (OSError, msgspec.DecodeError) as error:
            text = f"the facts about the data are not readable ({error})"
            raise DamagedError(
                f"{self.path / RunFile.DATA}: {text}",
                fix=f"restore it from a backup, or train in a new folder: {free_name(self.path)}",
            ) from error

    def vocabulary(self) -> dict[str, bytes]:
        """The files of its vocabulary, verified."""
        return dict(files.read_folder(self.path / RunFile.VOCABULARY))

    def spec(self) -> ModelSpec:
        """The spec of its model: schema, labels and tokenizers."""
        return spec_of(self.vocabulary())

    def exists(self) -> bool:
        """Whether this folder contains a run."""
        return (self.path / RunFile.CONFIG).is_file()

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: step, validation, end."""
        return read_log(self.path / RunFile.METRICS)

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl: start, speed, checkpoint, notice, end."""
        return read_log(self.path / RunFile.EVENTS)

    def log(self, report: Report) -> None:
        """Add an event to events.jsonl."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        files.append_lines(self.path / RunFile.EVENTS, [{"when": when, **record} for record in events_of(report)])

    def test_evaluations(self) -> list[dict[str, Any]]:
        """One record for each evaluation on the test set."""
        return list(files.read_lines(existing(self.path / RunFile.TEST_EVALUATIONS)).records)

    def run_state(self) -> TrainingState | None:
        """The training state of the newest checkpoint whose state is intact; tensors are not verified."""
        return self._newest(checkpoint.read_state)

    def machine(self) -> Machine | None:
        """The machine of that checkpoint."""
        return self._newest(checkpoint.read_machine)

    def _newest(self, read: Callable[[Path], Record]) -> Record | None:
        for path in reversed(checkpoint.steps(self.checkpoints)):
            try:
                return read(path)
            except DurableError:  # reported when the complete checkpoint is read
                continue
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context that locks the folder for this process. The folder is checked first, and made if it is missing."""
        require_run_folder(self.path)
        with files.hold(self.path):
            yield

    def start(
        self, config: RunConfig, facts: DataFacts, spec: ModelSpec, device: Device, ranks: Ranks
    ) -> tuple[str, ...]:
        """Start a new run or resume the one in this folder. Only for process 0, which has locked it.

        Returns messages about a resumed run, none about a new one. ConfigError, with all changes and the name of a free
        folder, if the folder contains a different run.
        """
        require_run_folder(self.path)
        files.make_folder(self.path)
        files.recover(self.path)
        vocabulary, new = vocabulary_of(spec), not self.exists()
        if new:
            self._begin(config, facts, vocabulary)
        files.make_folder(self.checkpoints)
        files.recover(self.checkpoints)
        return () if new else self._resume(config, facts, vocabulary, environment(device, ranks))

    def _begin(self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes]) -> None:
        contents = {name: disk.cut(memoryview(data), disk.VOCABULARY) for name, data in vocabulary.items()}
        files.replace_folder(self.path / RunFile.VOCABULARY, contents)
        files.write_file(self.path / RunFile.DATA, msgspec.json.format(msgspec.json.encode(facts), indent=2))
        files.write_file(self.path / RunFile.CONFIG, config.to_toml())

    def _resume(
        self, config: RunConfig, facts: DataFacts, vocabulary: dict[str, bytes], now: Environment
    ) -> tuple[str, ...]:
        before, known = self.config(), self.data()
        changes = [
            *changed_entries(CHANGED_FILE, known.fingerprints, facts.fingerprints),
            *changed_entries(CHANGED_SPLIT, known.split, facts.split),
            *map(str, changed(before, config)),
            *changed_entries(CHANGED_VOCABULARY, self.vocabulary(), vocabulary),
        ]
        listed = "; ".join(brief_changes(changes))
        if changes and not has_results(self.path):
            files.remove_files(self.path / name for name in REPLACED)
            self._begin(config, facts, vocabulary)
            return (f"the earlier run in this folder saved no checkpoint, so this run replaces it: {listed}",)
        if changes:
            raise ConfigError(
                f"{self.path}{DIFFERENT}{listed}",
                fix=f"repeat its settings to resume it, or train in a new folder: {free_name(self.path)}",
            )
        if before != config:
            files.write_file(self.path / RunFile.CONFIG, config.to_toml())
        machine = self.machine()
        warned = changed_environment(machine.environment, now) if machine is not None else ()
        return (*resume_messages(before, config), *warned)
