"""Captions (row 12 of the table of concepts): one vector, a sequence of vectors or a picture becomes many words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit
from seqloom.config.training import ByLengthConfig, ConstantConfig, StepsConfig
from seqloom.inference.model import load
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run

ROWS = 160
COLORS, SIDES = ("red", "green", "blue"), ("left", "right")


def told(color: int, side: int) -> str:
    return f"A {COLORS[color]} light, {SIDES[side]}." if side else f"{COLORS[color].title()} light!"


def vector(color: int, side: int) -> np.ndarray:
    return np.eye(5, dtype=np.float32)[[color, 3 + side]].sum(axis=0, keepdims=True)  # [1,5]


def vectors(color: int, side: int) -> np.ndarray:
    return np.eye(5, dtype=np.float32)[[3 + side, color, 3 + side]]  # [3,5]


def picture(color: int, side: int) -> np.ndarray:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[2:6, 4 * side : 4 * side + 4, color] = 255
    return pixels


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make", "kind"),
    [("x", vector, "vectors"), ("vectors", vectors, "vectors"), ("pictures", picture, "picture")],
    ids=["vector", "vectors", "picture"],
)
def test_row_12_one_input_becomes_many_words(
    tmp_path: Path, name: str, make: Callable[[int, int], np.ndarray], kind: str
) -> None:
    drawn = [tuple(pair) for pair in np.random.default_rng(0).integers(0, (3, 2), size=(ROWS, 2)).tolist()]
    noise = np.random.default_rng(1).normal(scale=0.01, size=(ROWS, *make(0, 0).shape))
    given = np.stack([make(*pair) for pair in drawn])
    given = given if given.dtype == np.uint8 else (given + noise).astype(np.float32)
    np.savez(tmp_path / "a.npz", **{name: given, "captions": [told(*pair) for pair in drawn]})
    training: dict[str, Any] = {
        "duration": StepsConfig(steps=250),
        "batching": ByLengthConfig(batch_tokens=200),
        "lr": 0.01,
    }
    training |= {"schedule": ConstantConfig(), "patience": 0, "validate_every": 250}
    config = DataConfig(train=(str(tmp_path / "a.npz"),), split=RandomSplit(dev_size=0.25, test_size=0.0))
    request = RunRequest(model="transformer", size="nano", dropout=0.0, encoding=EncodingConfig(), training=training)
    resolved = resolve(config, request)
    assert (resolved.prepared.schema.input.name, resolved.prepared.schema.target.name) == (kind, "text")
    for _ in train_run(tmp_path / "run", resolved, device=choose_device("cpu", "float32"), workers=0):
        pass
    model = load(tmp_path / "run")
    found = [model.predict([given[drawn.index(pair)]])[0].text for pair in [(0, 0), (1, 1), (2, 1)]]  # type: ignore[attr-defined]
    assert found == [told(0, 0), told(1, 1), told(2, 1)]
    assert model.evaluate().metrics["bleu"] > 90
    assert model.translate(given[:1], n_best=2)[0].alternatives
