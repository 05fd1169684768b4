"""What the tests of bulk embedding share: a small model of an imported checkpoint, and small files."""

from pathlib import Path

import numpy as np

from importing_common import write_checkpoint, write_sentences
from seqloom.importing.models import import_model
from seqloom.search.embedding import bulk, windows

WORDS = [
    "the",
    "cat",
    "sat",
    "unaffable",
    "cats",
    "great",
    "bad",
    "film",
    "filming",
    "i",
    "a",
    "b",
    "mask",
    "cafe",
]


def small_model(folder: Path) -> Path:
    """A model folder: two layers of width 16, texts cut after 12 tokens."""
    checkpoint = write_checkpoint(folder / "checkpoint")
    write_sentences(checkpoint)
    return import_model(checkpoint, folder / "model")


def some_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 10 words, none of them twice."""
    draws = np.random.default_rng(seed)
    return [" ".join([*draws.choice(WORDS, draws.integers(1, 10)), f"b{row}"]) for row in range(count)]


def write_texts(path: Path, texts: list[str]) -> Path:
    """The file of texts, one a line."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def in_small_windows() -> None:
    """Make windows of 8 rows, which are enough for a scale, so that a small file has several."""
    windows.ROWS = bulk.ENOUGH = 8
