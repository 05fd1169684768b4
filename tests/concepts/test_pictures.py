"""Rows 10, 12 and 37: pictures through filters, as patches and as one vector; scikit-learn's digits."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from seqloom.config.training import ByLengthConfig
from seqloom.data.front import load_data
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Part
from seqloom.tasks.choosing import task_of
from seqloom.tasks.contract import HeadSettings, Meaning, Task
from seqloom.tasks.judging import evaluate

FEED = ByLengthConfig(budget=512)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """In place of the fixture of the worked numbers: models here are trained as users train them, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """1,797 pictures of 8 x 8 pixels: 60 % train, 20 % dev, 20 % test, each digit in the same shares, seed 0."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = (pixels.reshape(-1, 8, 8) / 16).astype(np.float32)
    train, rest = train_test_split(np.arange(len(labels)), train_size=0.6, stratify=labels, random_state=0)
    dev, test = train_test_split(rest, train_size=0.5, stratify=labels[rest], random_state=0)
    parts = {"train": train, "dev": dev, "test": test}
    arrays = {f"pictures_{part}": pictures[rows] for part, rows in parts.items()}
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, **arrays, **{f"y_{part}": labels[rows] for part, rows in parts.items()})
    return load_data(path)


def trained(task: Task, digits: Prepared, config: Any, *, epochs: int, rate: float) -> Any:
    """A model after some epochs, the rate rising and falling once."""
    torch.manual_seed(0)
    model, loader = config.build(), task.loader(digits, "train", FEED, seed=0, workers=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * loader.plan.count(0) + 1)
    for step in loader.steps(until=epochs):
        loss, _ = task.loss(model, step.batch, None)
        optimiser.zero_grad()
        loss.mean.backward()
        optimiser.step()
        schedule.step()
    return model


def accuracy(task: Task, digits: Prepared, model: Any) -> float:
    """Of the dev and the test part together: 719 pictures."""
    parts: tuple[Part, ...] = ("dev", "test")
    batches = [
        step.batch for part in parts for step in task.loader(digits, part, FEED, seed=0, workers=0).steps(until=1)
    ]
    return evaluate(task, model, [batch for batch in batches if batch is not None]).metrics["accuracy"]


def test_row_10_the_digits_are_split_as_the_comparison_asks(digits: Prepared) -> None:
    assert {part: len(rows) for part, rows in digits.parts.items()} == {"train": 1078, "dev": 359, "test": 360}
    for rows in digits.parts.values():
        shares = np.bincount(digits.columns["target"].select(rows).values) / len(rows)
        assert np.allclose(shares, 0.1, atol=0.01)


@pytest.mark.slow
def test_row_10_filters_read_digits(digits: Prepared) -> None:
    task = task_of(Meaning.of(digits))
    model = trained(task, digits, task.model("conv2d", "small", HeadSettings()), epochs=25, rate=0.004)
    assert accuracy(task, digits, model) > 0.97


@pytest.mark.slow
def test_row_37_a_transformer_reads_digits_as_patches(digits: Prepared) -> None:
    task = task_of(Meaning.of(digits))
    config: Any = task.model("patch-transformer", "tiny", HeadSettings())
    wider = msgspec.structs.replace(config, encoder=msgspec.structs.replace(config.encoder, width=32))
    assert accuracy(task, digits, trained(task, digits, wider, epochs=60, rate=0.01)) > 0.96
