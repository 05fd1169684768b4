"""Default learning rates and label smoothing: chosen by family, size and target."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import seqloom
from seqloom.config.data import DataConfig, asked_encoding
from seqloom.config.tokenizers import BpeConfig
from seqloom.experiments.auto.plan import AutoPlan
from seqloom.experiments.compare.plan import ComparisonPlan
from seqloom.experiments.compare.winner import _encoding_flags
from seqloom.experiments.tune.plan import TuningPlan
from seqloom.recipes.families import SIZES, Dimensions
from seqloom.training.learning_rate import default_lr
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import Resolved, resolve

GATED = ("lstm", "gru", "bilstm", "seq2seq", "seq2seq-dot", "seq2seq-additive")


def resolved(name: str, tmp_path: Path, **settings: object) -> Resolved:
    data, request = requested((name,), {"steps": 3, **settings})
    return resolve(data, request, cache=tmp_path)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", GATED)
def test_gated_models_learn_faster_where_every_step_has_a_target_and_never_above_a_limit(
    recipe: str, size: str
) -> None:
    whole, steps, tokens = (default_lr(recipe, size, one) for one in ("sequence", "steps", "tokens"))  # type: ignore
    assert steps == pytest.approx(min(0.01, 3 * whole))
    assert tokens == pytest.approx(min(0.018, 9 * whole) if recipe == "lstm" else steps)


@pytest.mark.parametrize("recipe", ["cnn", "transformer", "linear-attention", "rnn"])
def test_others_learn_faster_only_where_they_predict_tokens_and_up_to_size_small(recipe: str) -> None:
    assert default_lr(recipe, "small", "tokens") == pytest.approx(3 * default_lr(recipe, "small", "steps"))
    assert default_lr(recipe, "base", "tokens") == default_lr(recipe, "base")
    wide = Dimensions("small", width=500)
    assert default_lr(recipe, wide, "tokens") == default_lr(recipe, wide), "the width decides, not the name of the size"


@pytest.mark.parametrize(("recipe", "factor"), [("cnn", 9), ("rnn", 9), ("gru", 6), ("transformer", 3), ("gpt", 3)])
def test_filters_and_simple_recurrence_learn_characters_faster_than_words(recipe: str, factor: int) -> None:
    assert default_lr(recipe, "small", "characters") == pytest.approx(factor * 0.001)
    most = 0.018 if factor == 9 else 0.01
    assert default_lr(recipe, "tiny", "characters") == pytest.approx(min(most, factor * 0.002))
    assert default_lr(recipe, "nano", "tokens") == pytest.approx(0.01), "the limit for words is lower"
    assert default_lr(recipe, "base", "characters") == default_lr(recipe, "base", "tokens")


@pytest.mark.slow
@pytest.mark.parametrize(("tokenizer", "lr"), [("characters", 0.009), ("bytes", 0.009), ("words", 0.003)])
def test_characters_and_bytes_are_characters(tokenizer: str, lr: float, tmp_path: Path) -> None:
    settings = {"model": "rnn", "size": "small", "tokenizer": tokenizer, "batch_tokens": 8_192}
    assert resolved("grammar", tmp_path, **settings).config.training.lr == pytest.approx(lr)


def test_a_transformer_with_one_answer_has_the_rate_of_tiny_up_to_the_width_of_small() -> None:
    found = {size: default_lr("transformer", size) for size in SIZES}
    assert found == {"nano": 0.005, "tiny": 0.002, "small": 0.002, "base": 0.0005, "big": 0.0002}
    assert default_lr("cnn", "small") == default_lr("cnn", "small", "steps") == 0.001


@pytest.mark.parametrize("recipe", ["bag", "encoder", "self-attention"])
def test_bags_and_models_normalized_after_each_layer_have_one_rate(recipe: str) -> None:
    assert default_lr(recipe, "small") == default_lr(recipe, "small", "tokens")


@pytest.mark.slow
def test_a_tagger_a_language_model_and_a_classifier_get_the_rate_of_their_targets(tmp_path: Path) -> None:
    found = {
        name: resolved(name, tmp_path, model=model).config.training.lr
        for name, model in {"movies": "bilstm", "grammar": "lstm", "questions": "lstm", "dates": "seq2seq-dot"}.items()
    }
    assert found == {"movies": 0.006, "grammar": 0.018, "questions": 0.002, "dates": 0.006}


@pytest.mark.sampled(1)
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


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("named", [{"max_length": 50}, {"lowercase": True}, {"vocab_size": 300}])
def test_other_settings_of_the_encoding_leave_the_tokenizer_of_the_task(
    named: dict[str, object], tmp_path: Path
) -> None:
    encoding = resolved("dates", tmp_path, **named).config.encoding
    assert isinstance(encoding.tokenizer, BpeConfig)
    given = {"max_length": encoding.max_length, "lowercase": encoding.tokenizer.lowercase}
    assert (given | {"vocab_size": encoding.tokenizer.vocab_size}).items() >= named.items()


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("named", [{"max_length": 50}, {"vocab_size": 300}])
def test_experiments_leave_the_tokenizer_of_the_task_too(named: dict[str, Any], tmp_path: Path) -> None:
    asked = asked_encoding(named)
    plans = (
        ComparisonPlan(data=DataConfig(train=("dates",)), out=str(tmp_path), models=("transformer",), encoding=asked),
        TuningPlan(data=DataConfig(train=("dates",)), out=str(tmp_path), encoding=asked),
        AutoPlan(data=DataConfig(train=("dates",)), out=str(tmp_path), encoding=asked),
    )
    for plan in plans:
        sent = msgspec.json.decode(msgspec.json.encode(plan), type=type(plan))  # as workers get it
        assert sent == plan
        request = RunRequest(model="transformer", size="nano", training={"seed": 1}, encoding=sent.encoding)
        encoding = resolve(sent.data, request, cache=tmp_path / "cache").config.encoding
        assert isinstance(encoding.tokenizer, BpeConfig)
    tokenizer = seqloom.load_data("dates", **named).tokenizer
    assert tokenizer is not None and isinstance(tokenizer.config, BpeConfig)


def test_the_next_command_of_a_comparison_names_the_options_of_tokens(tmp_path: Path) -> None:
    asked = asked_encoding({"vocab_size": 300, "lowercase": True})
    plan = ComparisonPlan(data=DataConfig(train=("dates",)), out=str(tmp_path), models=("gru",), encoding=asked)
    assert sorted(_encoding_flags(plan)) == ["--lowercase", "--vocab-size 300"]
