"""A swap inside an edit tells the answers of the edited model, as long as the text may be."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.errors import DataError
from seqloom.inspect.edits import ablated, attending, carried, clamped, patched
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.readings import is_touched, read, scores, scores_of_both
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.what_if import swap
from seqloom.nn.ops.kernels import plainly
from seqloom.nn.taps import recording

BEGINNING = " ".join(["the cat sat on a big mat"] * 42)
LAST = 297  # BEGIN, 294 words, and three more

Edit = Callable[[Subject, Reading, Reading], AbstractContextManager[Any]]
EDITS: dict[str, tuple[str, Edit]] = {
    "ablated": ("transformer", lambda subject, _one, _other: ablated(subject, layer=0)),
    "attending, last": (
        "transformer",
        lambda subject, one, _: attending(subject, one, token=LAST, weights=[1.0] + [0.0] * LAST, layer=1),
    ),
    "attending, early": (
        "linear-attention",
        lambda subject, one, _: attending(subject, one, token=10, weights=[1.0] * 11 + [0.0] * (LAST - 10), layer=0),
    ),
    "patched, last": ("gru", lambda subject, one, other: patched(subject, one, other, at=LAST, layer=0)),
    "patched, early": ("transformer", lambda subject, one, other: patched(subject, one, other, at=10, layer=0)),
    "clamped": ("lstm", lambda subject, _one, _other: clamped(subject, unit=0, value=1.0)),
    "carried, last": ("lstm", lambda subject, one, other: carried(subject, one, other, at=LAST)),
    "carried, early": ("gru", lambda subject, one, other: carried(subject, one, other, at=10)),
}


@torch.no_grad()
def alone(edit: Callable[[], AbstractContextManager[Any]], subject: Subject, reading: Reading) -> np.ndarray:
    """[R,K] probabilities of one text, the edit made for it alone."""
    with edit():
        return scores(subject, reading.inputs)[0].double().softmax(dim=-1).numpy()


QUICK = "attending, last"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow][name == QUICK :]) for name in EDITS])
def test_a_swap_inside_an_edit_is_that_of_the_edited_model(tmp_path: Path, name: str) -> None:
    recipe, make = EDITS[name]
    subject = subject_of(task_on(tmp_path, "lm"), recipe)
    one, two = (read(subject, f"{BEGINNING} the {word} ran") for word in ("dog", "house"))
    other = read(subject, " ".join(["a dog ran to the big house"] * 42) + " the cat ran")
    before, after = (alone(lambda: make(subject, one, other), subject, reading) for reading in (one, two))
    with make(subject, one, other):
        view = swap(subject, one, old="dog", new="house", views=())
    np.testing.assert_allclose(view.distance, np.abs(after - before).sum(axis=1) / 2, atol=1e-6)
    assert np.abs(before - alone(lambda: torch.no_grad(), subject, one)).max() > 1e-5, "the edit does something"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["lstm", "gru"])
def test_a_state_is_carried_at_its_place_in_texts_of_any_length(tmp_path: Path, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), recipe)
    texts = [read(subject, f"{BEGINNING} {end}") for end in ("the dog ran", "the big house on a mat", "a dog")]
    other = read(subject, " ".join(["a dog ran to the big house"] * 43))

    def edit() -> AbstractContextManager[Any]:
        return carried(subject, texts[0], other, at=2)

    with edit(), torch.no_grad():
        found = [scores(subject, text.inputs)[0].double().softmax(dim=-1).numpy() for text in texts]
    for text, one in zip(texts, found, strict=True):
        np.testing.assert_allclose(one, alone(edit, subject, text), atol=1e-6)


def test_a_text_that_does_not_fit_an_edit_is_refused_in_words(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "transformer")
    one, shorter = read(subject, "the cat sat on"), read(subject, "the cat")
    with (
        patched(subject, one, one, at=4, layer=0),
        pytest.raises(DataError, match=r"no token 4 to patch in a text of 3 tokens"),
    ):
        scores_of_both(subject, one, shorter)
    told = attending(subject, one, token=1, weights=[1.0, 0.0, 0.0, 0.0, 0.0], layer=0)
    with told, pytest.raises(DataError, match=r"5 weights for a text with 3 keys"):
        scores_of_both(subject, one, shorter)


def test_whoever_has_a_hand_in_a_model_is_noticed_and_forgotten(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "transformer")
    model = subject.model
    assert not is_touched(model)
    with recording(model, "*.output"):
        assert is_touched(model)
    with plainly():
        assert is_touched(model)
    handles = [model.get_submodule("head").register_forward_hook(lambda *_: None)]
    assert is_touched(model)
    handles.append(model.get_submodule("decoder.layers.0").register_forward_pre_hook(lambda *_: None))
    handles.pop(0).remove()
    assert is_touched(model)
    handles.pop().remove()
    assert not is_touched(model)


@pytest.mark.slow
def test_attribution_beside_a_long_swap_is_left_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, "lm"), "gru"), " ".join(["the cat sat"] * 171) + " a dog")
    view = inspection.swap(old="dog", new="house")
    assert len(inspection.reading.sides[0].tokens) == 516 and view.differences == ()
    said = (
        "Attribution is left out for texts of more than 512 tokens, because it is slow; views=['attribution'] adds it."
    )
    assert said in view.sentences() and said in view.text(400) and said in view.to_json()["notes"]
    asked = inspection.swap(old="dog", new="house", views=["attribution"])
    assert [one.of for one in asked.differences] == ["attribution"]
    assert not any("left out" in sentence for sentence in asked.sentences())
