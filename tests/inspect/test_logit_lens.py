"""The logit lens: its last row is the model's own answer, and what it tells of the others is what the head says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import LINES, SETTINGS, subject_of, task_on
from seqloom.errors import ConfigError
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.logit_lens import LogitLensView, logit_lens
from seqloom.inspect.next_tokens import next_tokens
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL
from seqloom.nn.taps import recording
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.matrix import LARGEST_SIDE, Matrix
from seqloom.text.special_tokens import MASK

TEXT = "the cat sat on a mat"


def writer(folder: Path, recipe: str) -> tuple[Subject, Reading]:
    subject = subject_of(task_on(folder, "lm"), recipe)
    return subject, read(subject, TEXT)


def filler(folder: Path, monkeypatch: pytest.MonkeyPatch, recipe: str) -> tuple[Subject, Reading]:
    monkeypatch.setitem(LINES, "masked", LINES["lm"])
    monkeypatch.setitem(SETTINGS, "masked", {"task": "masked"})
    subject = subject_of(task_on(folder, "masked"), recipe)
    return subject, read(subject, "the cat [MASK] on a mat")


def require_own_answer(subject: Subject, reading: Reading, view: LogitLensView) -> None:
    with torch.no_grad():
        own = scores(subject, reading.inputs)[0].double().softmax(dim=-1).numpy()
    np.testing.assert_allclose(view.probability[-1], own.max(axis=1), atol=1e-6)
    assert view.predictions[-1] == tuple(subject.name(int(one)) for one in own.argmax(axis=1))
    np.testing.assert_allclose(view.entropy[-1], -(own * np.log(own)).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("recipe", ["transformer", "lstm", "gru", "linear-attention", "cnn"])
def test_the_last_row_is_the_answer_of_the_model(tmp_path: Path, recipe: str) -> None:
    subject, reading = writer(tmp_path, recipe)
    view = logit_lens(subject, reading)
    require_own_answer(subject, reading, view)
    known = next_tokens(subject, reading)
    np.testing.assert_allclose(view.target_probability[-1], np.exp(-known.surprisal), atol=1e-6)
    np.testing.assert_array_equal(view.target_rank[-1], known.rank)
    assert view.tokens[:2] == ("<begin>", "the") and view.targets[:2] == ("the", "cat")


@pytest.mark.parametrize("recipe", ["encoder", "bilstm"])
def test_a_masked_model_is_asked_about_the_tokens_that_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    subject, reading = filler(tmp_path, monkeypatch, recipe)
    view = logit_lens(subject, reading)
    require_own_answer(subject, reading, view)
    gap = [token.id for token in reading.sides[0].tokens].index(MASK)
    assert view.targets[gap] == "?" and view.targets[gap - 1] == "cat"
    assert np.isnan(view.target_probability[:, gap]).all() and (view.target_rank[:, gap] == 0).all()
    assert not np.isnan(np.delete(view.target_probability, gap, axis=1)).any()
    assert view.to_json()["target_probability"][0][gap] is None


@pytest.mark.parametrize("recipe", ["transformer", "seq2seq"])
def test_a_translator_is_read_off_its_decoder(tmp_path: Path, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), recipe)
    reading = read(subject, "the big cat", target="le chat")
    view = logit_lens(subject, reading)
    require_own_answer(subject, reading, view)
    assert (view.tokens[0], view.targets[0]) == ("<begin>", "le")


def test_a_layer_is_read_through_the_norm_and_the_head_of_the_model(tmp_path: Path) -> None:
    subject, reading = writer(tmp_path, "transformer")
    model: Any = subject.model
    with torch.no_grad(), recording(model, "decoder.layers.0.output") as told:
        scores(subject, reading.inputs)
        (states,) = told["decoder.layers.0.output"]
        norm = model.decoder.exit[0].module
        own = (norm(states[0]) @ model.head.table.T + model.head.bias).softmax(dim=-1).numpy()
    view = logit_lens(subject, reading)
    np.testing.assert_allclose(view.probability[0], own.max(axis=1), atol=1e-6)
    said = np.array(reading.targets)
    np.testing.assert_allclose(view.target_probability[0], own[np.arange(len(said)), said], atol=1e-6)
    order = [1 + int((row > row[one]).sum()) for row, one in zip(own, said, strict=True)]
    np.testing.assert_array_equal(view.target_rank[0], order)


def test_an_answer_is_decided_where_no_later_layer_says_otherwise() -> None:
    tokens = (("a", "a", "b"), ("a", "b", "c"), ("a", "a", "c"))
    numbers = np.full((3, 3), 0.5)
    view = LogitLensView(
        title="x",
        layers=tuple(f"decoder.layers.{at}.output" for at in range(3)),
        tokens=("1", "2", "3"),
        targets=("a", "a", "a"),
        first=0,
        predictions=tokens,
        probability=numbers,
        entropy=numbers,
        target_rank=np.ones((3, 3), dtype=int),
        target_probability=numbers,
    )
    assert view.decided_after.tolist() == [0, 2, 1]
    assert "after layer 0 at 1, after layer 1 at 1, after layer 2 at 1" in view.sentences()[0]
    assert "[a 0.50]" in view.text()  # framed: it is what truly comes


def test_a_window_is_a_part_of_the_whole(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "gru")
    reading = read(subject, " ".join(["the cat sat on a big mat"] * 30))
    whole, part = logit_lens(subject, reading), logit_lens(subject, reading, window=(150, 160))
    np.testing.assert_allclose(part.target_probability, whole.target_probability[:, 150:160], atol=1e-6)
    assert part.tokens == whole.tokens[150:160] and part.first == 150
    assert [figure.kind for figure in part.figures()] == ["matrix", "line"]
    assert [figure.kind for figure in whole.figures()][:2] == ["heat_map", "heat_map"]
    with pytest.raises(ConfigError, match=r"from 5 to 500 is not inside the 211"):
        logit_lens(subject, reading, window=(5, 500))


def test_what_has_no_lens_says_why_and_what_there_is(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    with pytest.raises(ConfigError, match=r"classify does not predict tokens.*states"):
        logit_lens(subject, read(subject, TEXT))
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    asked = Inspection(subject, "the cat", target="le chat")
    assert "only 2 of the 3 layers" in asked.missing()["logit_lens"]


def test_dropout_and_modes_are_left_alone(tmp_path: Path) -> None:
    subject, reading = writer(tmp_path, "transformer")
    still = logit_lens(subject, reading)
    subject.model.train()
    again = logit_lens(subject, reading)
    assert subject.model.training
    np.testing.assert_array_equal(still.target_probability, again.target_probability)


def hand_made(rank: np.ndarray, truth: np.ndarray) -> LogitLensView:
    """Layers x positions whose numbers are known."""
    layers, count = rank.shape
    return LogitLensView(
        title="x",
        layers=tuple(f"decoder.layers.{at}.output" for at in range(layers)),
        tokens=tuple(f"t{at}" for at in range(count)),
        targets=tuple(f"s{at}" for at in range(count)),
        first=1_000,
        predictions=(("a",) * count,) * layers,
        probability=np.full(rank.shape, 0.5),
        entropy=np.full(rank.shape, 0.5),
        target_rank=rank,
        target_probability=truth,
    )


def test_what_truly_comes_is_framed_in_its_cell_of_every_matrix() -> None:
    rank = np.full((LARGEST_SIDE, SMALL), 2)
    right = [(0, 1), (3, 0), (5, SMALL - 1), (LARGEST_SIDE - 1, SMALL - 2)]  # layer, position
    for place in right:
        rank[place] = 1
    matrices = [one for one in hand_made(rank, np.full(rank.shape, 0.5)).figures() if isinstance(one, Matrix)]
    found = [(one.columns[across], one.rows[down]) for one in matrices for down, across in one.framed]
    assert len(matrices) > 1 and matrices[-1].framed
    assert sorted(found) == sorted((f"layer {layer}", f"t{at} → s{at}") for layer, at in right)


def test_places_worth_looking_at_are_those_where_the_layers_find_most() -> None:
    first, last = np.full(MEDIUM + 1, 0.5), np.full(MEDIUM + 1, 0.5)
    last[[7, 300]], first[9], last[11] = (0.8, 0.9), 0.9, np.nan  # found, lost, unknown
    rank = np.ones((2, MEDIUM + 1), dtype=int)
    (bars,) = (one for one in hand_made(rank, np.stack([first, last])).figures() if isinstance(one, Bars))
    assert bars.labels[:2] == ("1300 t300 → s300", "1007 t7 → s7")
    np.testing.assert_allclose(bars.values[:3], [0.4, 0.3, 0.0])
    assert not {"1009 t9 → s9", "1011 t11 → s11"} & set(bars.labels)
