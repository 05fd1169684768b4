"""Vectors from a model that is loaded: in order, alike however they are asked for, and refused where there are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bundle_common import make_reviews, make_run
from seqloom.errors import ConfigError, RejectedError
from seqloom.inference.model import load

TEXTS = ["a film", "good", "bad bad film of the year", "a good film", "x"] * 3
PAIRS = "sentence1,sentence2,score\na film,a good film,4.5\nbad,good,0.5\na film,bad film,2.5\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedding")


@pytest.fixture(scope="module")
def model(place: Path) -> Any:
    """An embedder of scored pairs that was never trained."""
    for name in ("train", "pairs"):
        (place / f"{name}.csv").write_text(PAIRS)
    files = {part: (str(place / f"{name}.csv"),) for part, name in (("train", "train"), ("dev", "pairs"))}
    return load(make_run(place / "pairs", "gru", task="embed", **files))


@pytest.fixture(scope="module")
def classifier(place: Path) -> Any:
    return load(make_run(place / "reviews", "mlp", **make_reviews(place)))


@pytest.mark.parametrize("batch_tokens", [1, 12, 8_192])
def test_vectors_come_in_the_order_of_the_texts_whatever_the_batch(model: Any, batch_tokens: int) -> None:
    found = model.embed(TEXTS, batch_tokens=batch_tokens)
    assert (found.shape, found.dtype) == ((len(TEXTS), 12), np.float32)
    np.testing.assert_allclose(found, np.concatenate([model.embed([text]) for text in TEXTS]), atol=1e-6)


def test_embed_and_predict_say_the_same(model: Any) -> None:
    predicted = model.predict(["a film", "bad"])
    np.testing.assert_array_equal(model.embed(["a film", "bad"]), [one.to_json()["vector"] for one in predicted])
    assert predicted[0].to_text().startswith(f"{predicted[0].vector[0]:.6g}, ")


def test_a_vector_has_length_one(model: Any, classifier: Any) -> None:
    for one in (model, classifier):
        np.testing.assert_allclose(np.linalg.norm(one.embed(["a good film", "bad"]), axis=1), 1.0, rtol=1e-5)


def test_the_vector_of_a_classifier_is_what_its_head_reads(classifier: Any) -> None:
    read: list[torch.Tensor] = []
    hook = classifier.model.head.register_forward_pre_hook(lambda _, given: read.append(given[0].values[:, 0]))
    classifier.predict(["a good film"])
    hook.remove()
    expected = torch.nn.functional.normalize(read[0], dim=-1).numpy()
    np.testing.assert_allclose(classifier.embed(["a good film"]), expected, atol=1e-6)


def test_no_texts_have_no_vectors_of_the_same_size(model: Any, classifier: Any) -> None:
    assert model.embed([]).shape == (0, 12)
    assert classifier.embed([]).shape == (0, classifier.embed(["a"]).shape[1])


def test_what_is_no_text_is_named_before_any_work(model: Any) -> None:
    with pytest.raises(RejectedError, match=r"inputs:2"):
        model.embed(["a", 3.5])
    with pytest.raises(ConfigError, match="found one text"):
        model.embed("a film")


def test_a_model_without_vectors_says_so(place: Path) -> None:
    (place / "lines.txt").write_text("a film\nbad\n")
    language = load(make_run(place / "lm", "gru", train=(str(place / "lines.txt"),), task="lm"))
    with pytest.raises(ConfigError, match="cannot embed texts: its task is lm"):
        language.embed(["a"])


def test_a_model_is_judged_by_data_of_any_kind_that_stands_together(model: Any, place: Path) -> None:
    (place / "related.csv").write_text("question,answer\na film,a good film\nbad,bad film\n")
    (place / "triples.csv").write_text("anchor,positive,negative\na film,a good film,bad\nbad,bad film,good\n")
    assert {"pearson", "spearman"} <= set(model.evaluate(place / "pairs.csv").metrics)
    for name in ("related.csv", "triples.csv"):
        found = model.evaluate(place / name)
        assert found.metrics["accuracy"] in (0.0, 0.5, 1.0)
        assert found.rows == 2


def test_questions_to_a_model_of_pairs_are_single_texts(model: Any) -> None:
    assert model.task.input_spec.schema.input.name == "text"
    assert model.columns == ()
