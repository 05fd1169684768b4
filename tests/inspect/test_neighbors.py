"""One word in several sentences: its vectors before any layer are the same there, and behind layers they are not."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from inspection_common import subject_of, task_on
from seqloom.data.check import load_data
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import requirements
from seqloom.inspect.neighbors import NeighborsView, neighbors
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Subject
from seqloom.nn.taps import recording
from seqloom.report import numbers
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.stack import png
from seqloom.tasks.task import ModelSpec, task_of

SENTENCES = ("the cat sat on a mat", "a big cat ran to the house", "dog dog cat")
MIXED = ("שלום עולם טוב 😀", "hello עולם 12 world", "مرحبا بالعالم עולם")


def asked(
    subject: Subject, sentences: tuple[str, ...] = SENTENCES, word: str | int = "cat", **options: object
) -> NeighborsView:
    return neighbors(subject, [read(subject, one) for one in sentences], word=word, **options)  # type: ignore[arg-type]


def test_a_word_is_itself_without_context_and_moves_with_it(tmp_path: Path) -> None:
    view = asked(subject_of(task_on(tmp_path, "classify"), "transformer"))
    assert [(each.sentence, each.number) for each in view.occurrences] == [(0, 1), (1, 2), (2, 2)]
    np.testing.assert_allclose(view.static, 1, atol=1e-6)
    assert np.diag(view.contextual) == pytest.approx(1)
    assert (view.contextual[np.triu_indices(3, 1)] < 0.999).all()


@torch.no_grad()
def test_cosines_are_those_of_the_vectors_behind_the_layer(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "gru")
    view = asked(subject, layer=0)
    found = []
    for sentence, number in ((0, 1), (1, 2)):
        with recording(subject.model, view.layer) as heard:
            subject.model(read(subject, SENTENCES[sentence]).inputs)
        found.append(heard[view.layer][0][0, number])
    assert view.contextual[0, 1] == pytest.approx(float(torch.cosine_similarity(*found, dim=0)), abs=1e-6)


def test_the_nearest_are_in_order_and_never_the_word_itself(tmp_path: Path) -> None:
    view = asked(subject_of(task_on(tmp_path, "classify"), "lstm"), top_k=5)
    near = [each.contextual for each in view.nearest]
    assert near == sorted(near, reverse=True) and len(near) == 5
    assert (0, 1) not in [(each.at.sentence, each.at.number) for each in view.nearest]
    assert view.similarities[1] == pytest.approx(1) and len(view.similarities) == 6


def test_the_usual_cosine_is_the_mean_over_all_pairs(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "cnn")
    view = asked(subject, ("cat mat", "dog"), "cat", top_k=9)
    words = (("cat", 0), ("mat", 0), ("dog", 1))
    pairs = [asked(subject, ("cat mat", "dog"), word, sentence=at, top_k=9).nearest for word, at in words]
    assert view.mean_cosine == pytest.approx(np.mean([each.contextual for near in pairs for each in near]), abs=1e-6)


def test_words_of_other_directions_keep_their_text_and_their_order(tmp_path: Path) -> None:
    rows = [f"{one},{'yes' if at else 'no'}" for at, one in enumerate(MIXED)]
    view = asked(subject_of(task_on(tmp_path, "classify", rows=rows), "transformer"), MIXED, "עולם")
    assert [(each.sentence, each.number) for each in view.occurrences] == [(0, 1), (1, 1), (2, 2)]
    assert [each.context for each in view.occurrences] == list(MIXED), "in the order in which they were written"
    assert view.sentence == ("שלום", "עולם", "טוב", "😀")
    strip = view.figures()[0].svg()
    places = [float(part.split('x="')[1].split('"')[0]) for part in strip.split("<rect")[1:] if "(token" in part]
    assert places == sorted(places, reverse=True), "most of it runs from the right"
    assert json.loads(json.dumps(view.to_json(), ensure_ascii=False))["word"] == "עולם"
    for line in view.text(80).splitlines():
        assert line.count("\u2068") == line.count("\u2069"), "what is turned is closed in"


@pytest.mark.slow
def test_a_label_from_the_right_ends_where_one_from_the_left_does() -> None:
    """In a PNG: resvg takes the start of a line for its left end, whatever its direction."""
    reach = []
    for name in ("ooooo", "ששששש"):
        bars = Bars(title="T", labels=[name, "a label of some length"], values=[0.0, 1.0])
        pixels = np.asarray(Image.open(io.BytesIO(png(bars.svg()))).convert("L")).astype(int)
        row = pixels[110:134, :440].min(axis=0)  # the first label, left of its bar
        reach.append(int(np.flatnonzero(row < 128)[-1]))
    assert abs(reach[0] - reach[1]) < 24
    assert min(reach) > 60


def test_what_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    with pytest.raises(DataError, match="sentence 0 has no word 'cow'"):
        asked(subject, word="cow")
    with pytest.raises(DataError, match=r"no word 6 in the sentence.*0 to 5"):
        asked(subject, word=6)
    with pytest.raises(DataError, match="no sentence 3"):
        asked(subject, sentence=3)
    with pytest.raises(ConfigError, match="no layer 9"):
        asked(subject, layer=9)
    with pytest.raises(ConfigError, match="do not depend on the context"):
        asked(subject_of(task_on(tmp_path, "classify"), "mlp"))


def test_a_picture_has_no_words(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).random((8, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "a.npz", pictures=pictures, y=np.arange(8) % 2)
    subject = subject_of(task_of(ModelSpec.of(load_data(tmp_path / "a.npz"))), "patch-transformer")
    reading = read(subject, pictures[0][:, :, None])
    with pytest.raises(DataError, match="an image has no words"):
        neighbors(subject, [reading], word=0)
    for question in (requirements.contexts, requirements.answers_by_element):
        assert "no tokens" in str(requirements.reason(question, subject, reading))


def test_a_word_in_capitals_has_another_vector_and_its_cosine_is_told(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    view = asked(subject, ("the cat sat", "the CAT sat"))
    assert len(view.occurrences) == 2 and view.static[0, 1] < 0.99
    assert f"{numbers.number(view.static[0, 1])} without context" in view.sentences()[1]
