"""Default learning rates and label smoothing: chosen by family, size and target."""

from pathlib import Path

import pytest

from seqloom.recipes.families import SIZES
from seqloom.training.learning_rate import default_lr
from seqloom.training.request import requested
from seqloom.training.resolve import Resolved, resolve

GATED = ("lstm", "gru", "bilstm", "seq2seq", "seq2seq-dot", "seq2seq-additive")


def resolved(name: str, tmp_path: Path, **settings: object) -> Resolved:
    data, request = requested((name,), {"steps": 3, **settings})
    return resolve(data, request, cache=tmp_path)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", GATED)
def test_gated_models_learn_faster_where_every_step_has_a_target_and_never_above_a_hundredth(
    recipe: str, size: str
) -> None:
    one, every = (default_lr(recipe, size, every_step=steps) for steps in (False, True))  # type: ignore[arg-type]
    assert every == pytest.approx(min(0.01, 3 * one))


@pytest.mark.parametrize("recipe", ["cnn", "transformer", "bag", "linear-attention", "rnn"])
def test_other_families_have_one_rate(recipe: str) -> None:
    assert default_lr(recipe, "small") == default_lr(recipe, "small", every_step=True)


@pytest.mark.slow
def test_a_tagger_a_language_model_and_a_classifier_get_the_rate_of_their_targets(tmp_path: Path) -> None:
    found = {
        name: resolved(name, tmp_path, model=model).config.training.lr
        for name, model in {"movies": "bilstm", "grammar": "lstm", "questions": "lstm", "dates": "seq2seq-dot"}.items()
    }
    assert found == {"movies": 0.006, "grammar": 0.006, "questions": 0.002, "dates": 0.006}


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["bleu", "exact_match", "loss"])
def test_translators_of_sentences_are_smoothed_whatever_metric_chooses(metric: str, tmp_path: Path) -> None:
    words = ["the", "a", "red", "blue", "old", "man", "house", "tree", "sees", "likes"]
    lines = [" ".join(words[(row * step) % 10] for step in (1, 3, 7, 9, 11, 13)) for row in range(1, 60)]
    for name, turned in {"train.en": 1, "train.de": -1}.items():
        (tmp_path / name).write_text("\n".join(" ".join(line.split()[::turned]) for line in lines))
    files = (str(tmp_path / "train.en"), str(tmp_path / "train.de"))

    def smoothing(*data: str, **settings: object) -> float:
        config, request = requested(data, {"steps": 3, "metric": metric, **settings})
        return resolve(config, request, cache=tmp_path / "cache").config.model.head.label_smoothing  # type: ignore

    assert smoothing(*files) == 0.1 and smoothing(*files, label_smoothing=0.0) == 0.0
    assert smoothing("dates") == 0.0, "a date has one right form"
