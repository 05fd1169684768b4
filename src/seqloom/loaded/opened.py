"""A trained model that was read from its folder: what it is made of, and what is known of its training."""

from functools import cached_property
from pathlib import Path
from typing import cast

import msgspec
import torch

from seqloom.bundle import built, read_bundle
from seqloom.bundle.places import RUN_CONFIG, run_of
from seqloom.config.data import BadRows, EncodingConfig
from seqloom.config.reading import read
from seqloom.config.training import RunConfig
from seqloom.data.run_files import RunData, located
from seqloom.models import count_parameters
from seqloom.tasks.choosing import task_of

ANY_LENGTH = 2**24  # the most that a configuration may say


class Opened:
    """The parts of a model: `task`, `config`, `meaning`, `model` and `notes`, and its `run` if it is still in one."""

    def __init__(self, path: Path, device: torch.device | str) -> None:
        bundle = read_bundle(path)
        self.path, self.device = path, torch.device(device)
        self.config, self.meaning, self.notes = bundle.config, bundle.meaning, bundle.notes
        decided = bundle.notes.get("metric")  # in its training
        self.task = task_of(bundle.meaning).deciding_by(None if decided is None else str(decided))
        self.task.require(bundle.config)
        self.model = built(bundle, device)
        self.folder = run_of(path)  # of its run, if it is still in one
        self.run = None if self.folder is None else cast(RunConfig, read(self.folder / RUN_CONFIG, RunConfig))

    @cached_property
    def data(self) -> RunData | None:
        """What its run was told, with its files where they lie now; None of a model folder alone."""
        return None if self.folder is None or self.run is None else located(self.folder, self.run)

    def __repr__(self) -> str:
        schema = self.meaning.schema
        answer = f"{len(schema.labels):,} {'tags' if schema.target == 'tags' else 'labels'}" if schema.labels else ""
        symbols = "" if self.meaning.tokenizer is None else f"{self.meaning.tokenizer.vocab_size:,} symbols"
        size = f"{count_parameters(self.model):,} parameters"
        facts = [f"{schema.input} to {schema.target}", answer, symbols, size, f"on {self.device}"]
        return f"{type(self).__name__}({self.task.name}: {', '.join(filter(None, facts))}; {self.path})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that training read, as far as it is known."""
        if self.task.asked.schema.input != self.meaning.schema.input:
            return ()  # questions are no rows of the training data
        return self.run.data.input if self.run is not None else tuple(map(str, self.notes.get("columns", ())))

    @property
    def sequence(self) -> str | None:
        """The column whose value all steps of a sequence share, if training read such a table."""
        return None if self.run is None else self.run.data.sequence

    @property
    def bad_rows(self) -> BadRows:
        """The rule for bad rows that training had; of a model folder alone none is read over."""
        return BadRows() if self.run is None else self.run.data.bad_rows

    @property
    def encoding(self) -> EncodingConfig:
        """How texts became numbers in training; of a model folder alone, as far as its notes say."""
        if self.run is not None:
            return self.run.encoding
        longest = self.notes.get("longest")
        return EncodingConfig(longest=longest) if isinstance(longest, int) else EncodingConfig()

    def reading(self) -> EncodingConfig:
        """How inputs become numbers here: what is read in windows is not cut."""
        return msgspec.structs.replace(self.encoding, longest=ANY_LENGTH) if self.task.in_windows else self.encoding
