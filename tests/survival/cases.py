"""The runs that are killed: small models of several families and tasks, two epochs of about sixty steps each."""

import hashlib
import random
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.config.data import ColumnSplit, DataConfig, EncodingConfig, ReadingConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.config.training import (
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    EpochsConfig,
    NewtonConfig,
    PlateauConfig,
    SgdConfig,
    StepsConfig,
    StreamsConfig,
)
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve

SAVE_EVERY = 7
WORDS = ("red", "green", "blue", "old", "new", "tall", "flat", "warm")
BASE: dict[str, Any] = {
    "duration": EpochsConfig(epochs=2),
    "schedule": ConstantConfig(),
    "validate_every": 20,
    "save_every": SAVE_EVERY,
    "log_every": 3,
    "lr": 0.01,
    "patience": 0,
}


class Case(NamedTuple):
    """A model on data; `settings` are those of `TrainingConfig`, over `BASE`."""

    data: dict[str, Any]
    model: str
    settings: dict[str, Any]
    tokenizer: Any = None


CASES = {
    "gru": Case(
        {"train": ("labels.csv",), "split": ColumnSplit(split_column="split")},
        "gru",
        {"batching": ByLengthConfig(batch_tokens=18), "ema": 0.9, "accumulate": 2},
    ),
    "transformer": Case(
        {"train": ("pairs.csv",), "split": ColumnSplit(split_column="split"), "task": "translate"}
        | {"input": ("text",), "target": ("said",)},
        "transformer",
        {"batching": ByLengthConfig(batch_tokens=44), "schedule": CosineConfig(warmup=10), "validate_every": 0},
        CharactersConfig(),
    ),
    "lstm": Case(
        {"train": ("train.txt",), "dev": ("dev.txt",), "task": "lm", "reading": ReadingConfig(unit="line")},
        "lstm",
        {"batching": StreamsConfig(batch_rows=4, row_length=12), "schedule": PlateauConfig(factor=0.5, patience=1)}
        | {"optimizer": SgdConfig(momentum=0.9), "lr": 0.5},
    ),
    "linear": Case(
        {"train": ("labels.csv",), "split": ColumnSplit(split_column="split")},
        "linear",
        {"duration": StepsConfig(steps=120), "optimizer": NewtonConfig(l2=(1.0, 0.1), tolerance=0.0), "lr": 1.0},
    ),
}


def write_data(folder: Path, rows: int = 300) -> None:
    """Labels to guess, words to spell backwards, and text to go on with."""
    draw = random.Random(0)
    texts = [[draw.choice(WORDS) for _ in range(draw.randint(1, 6))] for _ in range(rows)]
    parts = ["dev" if row % 10 == 0 else "train" for row in range(rows)]
    labeled = [
        f"{' '.join(text)},{'yes' if 'red' in text else 'no'},{part}" for text, part in zip(texts, parts, strict=True)
    ]
    pairs = [f"{text[0]},{text[0][::-1]},{part}" for text, part in zip(texts, parts, strict=True)]
    lines = [" ".join(text) for text in texts]
    _write(folder / "labels.csv", ["text,label,split", *labeled])
    _write(folder / "pairs.csv", ["text,said,split", *pairs])
    _write(folder / "train.txt", lines * 2)
    _write(folder / "dev.txt", lines[: rows // 10])


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def resolved(name: str, folder: Path, cache: Path, **settings: Any) -> Resolved:
    """A case with nothing left open; `settings` are those of `TrainingConfig`, over the case's own."""
    case = CASES[name]
    files = {part: tuple(str(folder / file) for file in case.data.get(part, ())) for part in ("train", "dev")}
    encoding = EncodingConfig(tokenizer=case.tokenizer) if case.tokenizer is not None else None
    training = BASE | case.settings | settings
    request = RunRequest(model=case.model, size="nano", dropout=0.2, training=training, encoding=encoding)
    return resolve(DataConfig(**(case.data | files)), request, cache=cache)


def sums(out: Path) -> dict[str, str]:
    """The sha256 of everything that two equal runs have in common: all but hours, pace and machine."""
    shared = [out / name for name in ("config.toml", "data.json", "metrics.jsonl", "card.md")]
    shared += [path for name in ("model", "vocabulary", "checkpoints") for path in (out / name).rglob("*")]
    kept = [path for path in shared if path.is_file() and not _differs(path)]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(kept)}


def _differs(path: Path) -> bool:
    """Whether a file tells of the machine: a checkpoint's machine.json, and the manifest that has its sum."""
    return path.parent.name.startswith("step-") and path.name in ("machine.json", "manifest.json")
