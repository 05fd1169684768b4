"""What is shown of positions is what the model adds, turns or compares with."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from inspection_common import subject_of, subject_with, task_on
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.positions import extrapolation, positions
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject
from seqloom.nn.ops.attention import weights
from seqloom.nn.ops.relations import rotate
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded
from seqloom.report.figures.heatmap import HeatMap
from seqloom.tasks.task import HeadSettings, Task

HOWS = ("sinusoidal", "learned", "rotary", "alibi", "t5", "shaw")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("lm"), "lm")


def _with(task: Task, how: str) -> Subject:
    config = task.model("transformer", "nano", HeadSettings())
    decoder = msgspec.structs.replace(config.decoder, position=how, max_length=40)  # type: ignore[union-attr]
    return subject_with(task, msgspec.structs.replace(config, decoder=decoder))


def test_a_table_is_what_the_model_adds_to_its_inputs(task: Task) -> None:
    for how in ("sinusoidal", "learned"):
        subject = _with(task, how)
        view = positions(subject, length=8)
        zeros = torch.zeros(1, 8, view.details.values.shape[1])
        entry = subject.model.get_submodule(view.layer)
        from_model = entry(Padded.of(zeros)).values[0].detach()
        np.testing.assert_allclose(view.details.values, from_model, atol=1e-6)


def test_what_rotary_leaves_of_a_match_is_the_dot_product_of_turned_vectors(task: Task) -> None:
    subject = _with(task, "rotary")
    view = positions(subject, length=30)
    width = 2 * view.details.values.shape[1]
    ones = torch.ones(1, 1, 30, width, dtype=torch.float64)
    turned = rotate(ones, torch.arange(30)[None])[0, 0]
    ((_, left),) = view.details.curves
    np.testing.assert_allclose(left, turned @ turned[0] / width, atol=1e-9)


@pytest.mark.parametrize("how", ["alibi", "t5"])
def test_a_bias_is_the_difference_that_it_makes_to_the_scores(task: Task, how: str) -> None:
    """Of two keys at distances a and b with equal vectors, the logarithm of their weights differs by the bias."""
    subject = _with(task, how)
    view = positions(subject, length=6)
    with recording(subject.model, "decoder.layers.0.mixer.weights") as heard:
        scores(subject, read(subject, "the cat sat on the").inputs)
    ((request,),) = heard.values()
    alike = request._replace(key=torch.zeros_like(request.key))
    found = weights(alike)[0, :, -1].log().detach()
    np.testing.assert_allclose(
        view.details.values - view.details.values[:, -1:], found - found[:, -1:], atol=1e-5, err_msg=how
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("length", [10, 200, pytest.param(4000, marks=pytest.mark.slow)])
def test_every_kind_is_drawn_at_every_length(task: Task, how: str, length: int) -> None:
    view = positions(_with(task, how), length=length)
    assert view.scheme == how and view.figures()[0].kind == "heat_map"
    assert json.dumps(view.to_json(), allow_nan=False)
    if how == "learned":
        assert view.length == min(length, 40)
    lines = [series.name for figure in view.figures()[1:] for series in figure.series]  # type: ignore[attr-defined]
    if length > 10 and how == "t5":
        assert "longest training input" in lines
    if how in ("sinusoidal", "rotary", "alibi"):  # computed, not trained
        assert "longest training input" not in lines and "training" not in view.svg()


@pytest.mark.parametrize("how", ["sinusoidal", "learned"])
def test_rows_of_a_map_of_positions_are_all_positions(task: Task, how: str) -> None:
    view = positions(_with(task, how), length=30)
    drawn = view.figures()[0]
    assert isinstance(drawn, HeatMap) and drawn.y == tuple(range(30)) and "no value" not in drawn.svg()
    assert ("were not trained" in drawn.caption) == (how == "learned")


def test_wavelengths_are_those_of_the_table(task: Task) -> None:
    """A pair of dimensions is the same again after its wavelength."""
    view = positions(_with(task, "sinusoidal"), length=64)
    first = view.details.wavelengths[0]
    assert first == pytest.approx(2 * np.pi)
    assert view.details.values[44, 0] == pytest.approx(np.sin(44 % first), abs=1e-9)


def test_a_model_without_positions_is_refused(task: Task, tmp_path: Path) -> None:
    subject = subject_of(task, "lstm")
    with pytest.raises(ConfigError, match="has no position encoding"):
        positions(subject)
    with pytest.raises(ConfigError, match="no position encoding at layer 9"):
        positions(_with(task, "rotary"), layer=9)


TEXTS = ["the cat sat on the mat a dog ran to the big house"] * 8


def test_the_loss_at_a_length_is_the_mean_of_windows_of_it(task: Task) -> None:
    subject = _with(task, "alibi")
    view = extrapolation(subject, TEXTS, lengths=(13, 26))
    reading = read(subject, TEXTS[0])
    logs = scores(subject, reading.inputs)[0, :-1].detach().log_softmax(dim=-1)
    said = torch.tensor(reading.targets)[:-1]
    assert view.lengths == (13, 26) and view.windows == (8, 4)
    assert view.loss[0] == pytest.approx(float(torch.nn.functional.nll_loss(logs, said)), abs=1e-5)
    assert view.trained_length == 7 and not np.isnan(view.loss_beyond).any()


def test_lengths_that_cannot_be_read_are_refused(task: Task, tmp_path: Path) -> None:
    subject = _with(task, "learned")
    with pytest.raises(DataError, match="longer than the 40 learned positions"):
        extrapolation(subject, TEXTS, lengths=(10, 60))
    with pytest.raises(DataError, match="the texts have 104"):
        extrapolation(subject, TEXTS, lengths=(10, 600))
    other = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="is not a language model"):
        extrapolation(other, TEXTS, lengths=(2,))
