"""A place of a map stands for the square that gradients reach; planted patterns are found where they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.data.check import load_data
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.picture_filters import activation_maps, field, picture_filters
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.taps import recording
from seqloom.tasks.task import ModelSpec, task_of

CROSS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=np.float32)
PLANTED = 2


def pictures(count: int = 10, side: int = 14) -> np.ndarray:
    return np.random.default_rng(0).random((count, side, side)).astype(np.float32) * 0.5


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    np.savez(tmp_path / "p.npz", pictures=pictures(), y=np.arange(10) % 2)
    return subject_of(task_of(ModelSpec.of(load_data(tmp_path / "p.npz"))), "conv2d")


def _read(subject: Subject, found: np.ndarray) -> list[Reading]:
    return [read(subject, picture[:, :, None]) for picture in found]


@pytest.mark.parametrize("layer", [0, 1])
def test_the_square_behind_a_place_is_what_gradients_reach(subject: Subject, layer: int) -> None:
    (reading,) = _read(subject, pictures(1))
    path = f"encoder.input.maps.{layer}"
    square = field(subject, reading, path)
    model: Any = subject.model
    with torch.no_grad():
        for weight, bias in zip(model.encoder.input.weights, model.encoder.input.biases, strict=True):
            weight.abs_()
            bias.fill_(1.0)  # nothing is cut off by the ReLU
    reached = np.zeros((14, 14), dtype=bool)
    for seed in range(12):  # a maximum passes the gradient to one pixel of four: several pictures reach them all
        values = torch.rand(1, 14, 14, 1, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        with recording(model, path) as record:
            model(values)
        (slope,) = torch.autograd.grad(record[path][0][0, :, 1, 2].sum(), values)
        reached |= slope[0, :, :, 0].numpy() != 0
    rows, columns = np.flatnonzero(reached.any(axis=1)), np.flatnonzero(reached.any(axis=0))
    assert (rows[0], rows[-1]) == (square.stride, square.stride + square.side - 1)
    assert (columns[0], columns[-1]) == (2 * square.stride, 2 * square.stride + square.side - 1)


def _plant(subject: Subject) -> np.ndarray:
    """A filter that looks for a cross, and pictures of which the fourth has one at (5, 7)."""
    model: Any = subject.model
    with torch.no_grad():
        model.encoder.input.weights[0][PLANTED, 0] = torch.from_numpy(CROSS - CROSS.mean())
    found = pictures()
    found[3, 5:8, 7:10] = CROSS
    return found


def test_a_planted_pattern_is_the_patch_that_fires_its_filter_most(subject: Subject) -> None:
    readings = _read(subject, _plant(subject))
    view = picture_filters(subject, readings, layer=0, top_k=3)
    best = view.patches[PLANTED]
    assert (best[0].reading, best[0].y, best[0].x) == (3, 5, 7)
    np.testing.assert_allclose(best[0].pixels, CROSS)
    assert len(best) == 3 and best[0].activation > best[1].activation
    assert view.svg() and view.to_json()["patches"][PLANTED][0]["reading"] == 3


def test_maps_are_those_that_pass_the_layer_and_the_loudest_place_is_the_pattern(subject: Subject) -> None:
    readings = _read(subject, _plant(subject))
    view = activation_maps(subject, readings[3], layer=0)
    assert view.maps.shape[1:] == (12, 12) and view.side == 3
    assert np.unravel_index(view.maps[PLANTED].argmax(), (12, 12)) == (5, 7)
    np.testing.assert_allclose(view.picture[5:8, 7:10], CROSS)
    assert f"filter {PLANTED}" in view.svg()


def test_what_has_no_2_d_filters_or_not_those_is_refused(tmp_path: Path, subject: Subject) -> None:
    readings = _read(subject, pictures(2))
    with pytest.raises(ConfigError, match="no layer 5: this model has 2 layers with 2-D filters"):
        activation_maps(subject, readings[0], layer=5)
    with pytest.raises(ConfigError, match="top_k is 0"):
        picture_filters(subject, readings, top_k=0)
    with pytest.raises(DataError, match="no image was given"):
        picture_filters(subject, [])
    other = subject_of(task_on(tmp_path, "classify"), "cnn")
    with pytest.raises(ConfigError, match=r"no image filters.*filters, states"):
        activation_maps(other, read(other, "the cat"))
