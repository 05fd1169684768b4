"""What the tests of the tasks share: small data of every kind, and tiny models."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from data_settings import BY_NAME, Setting, objects, one
from objectives_common import ROWS, TABLES
from seqloom.config.data import EncodingConfig, RandomSplit, SplitName
from seqloom.config.training import AnyBatching, ByLengthConfig
from seqloom.data.check import load_data
from seqloom.data.dataset import open_data
from seqloom.data.prepared import Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.nn.models import EncoderDecoder, LanguageModel
from seqloom.nn.types import Batch
from seqloom.tasks.task import HeadSettings, ModelSpec, Task, task_of
from seqloom.text.special_tokens import END

WORDS = Setting(
    "words with a label",
    one(
        "a.jsonl",
        objects(tokens=[["a", "good" if n % 2 else "bad", f"w{n}"] for n in range(40)], label=["x", "y"] * 20),
    ),
    "words",
    "label",
    {"task": "classify"},
)

BY_LENGTH = ByLengthConfig(batch_tokens=64)


class Small:
    """A small set with its task."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.task: Task = task_of(ModelSpec.of(prepared))

    def model(self, recipe: str | None = None, head: HeadSettings = HeadSettings()) -> nn.Module:  # noqa: B008
        """A tiny model, the same one every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = self.task.model(recipe or self.task.recipes()[0], "nano", head).build()
        if isinstance(model, EncoderDecoder | LanguageModel):
            with torch.no_grad():
                model.head.bias[END] += 1.0  # or it would write for ever before it has learned to stop
        return model

    def batches(self, split: SplitName = "dev", batching: AnyBatching = BY_LENGTH) -> list[Batch[Any, Any]]:
        """The batches of one epoch."""
        steps = self.task.loader(self.prepared, split, batching, seed=0, workers=0).steps(until=1)
        return [step.batch for step in steps if step.batch is not None]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Small]:
    """The set of a name in `data_settings`, a quarter of it dev, read once."""
    kept: dict[str, Small] = {}

    def find(name: str) -> Small:
        if name not in kept:
            setting = WORDS if name == WORDS.name else BY_NAME[name]
            folder, ledger = tmp_path_factory.mktemp("set"), Ledger()
            config = setting.config(folder)
            split = RandomSplit(dev_size=0.25, test_size=0.0)
            fields = {field: getattr(config, field) for field in config.__struct_fields__}
            dataset = open_data(type(config)(**(fields | {"split": split})), ledger)
            kept[name] = Small(prepare(dataset, EncodingConfig(), ledger))
        return kept[name]

    return find


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Small]:
    """A set of lines that a test writes: a training set and a dev set, where any share of labels may be new."""
    monkeypatch.setattr("seqloom.data.checks.labels.UNSEEN_SHARE", 1.0)
    numbers: Iterator[int] = itertools.count()

    def write(name: str, train: str, dev: str, **settings: Any) -> Small:
        folder = tmp_path / str(next(numbers))
        for part, text in (("train", train), ("dev", dev)):
            (folder / part).mkdir(parents=True)
            (folder / part / name).write_text(text)
        return Small(load_data(folder / "train" / name, dev=folder / "dev" / name, **settings))

    return write


@pytest.fixture
def table(written: Callable[..., Small]) -> Callable[[str], Small]:
    """A small set of one of the kinds that embed learns from."""

    def find(kind: str) -> Small:
        header, row = TABLES[kind]
        lines = "\n".join([header, *(row(n) for n in range(ROWS))]) + "\n"
        return written("a.csv", lines, lines, task="embed")

    return find
