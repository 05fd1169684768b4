"""One rate of dropout for a whole model: where a recipe has dropout it takes the rate, and nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from seqloom import recipes
from seqloom.config.base import dropouts, with_dropout
from seqloom.config.data import DataConfig, RandomSplit
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel
from seqloom.config.stacks import DecoderBlockConfig
from seqloom.config.training import RunConfig
from seqloom.nn.types import Padded
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from training_common import resolved, write_data

VOCABULARY, HEIGHT = 9, 8
TOKENS = TokensConfig(vocab_size=VOCABULARY)
SIDES = {"height": HEIGHT, "width": HEIGHT}
MAKE: dict[str, Callable[[str, Any], AnyModel]] = {
    "classifier": lambda name, size: recipes.classifier(name, inputs=TOKENS, num_classes=2, size=size),
    "tagger": lambda name, size: recipes.tagger(name, inputs=TOKENS, num_tags=3, size=size),
    "language-model": lambda name, size: recipes.language_model(name, vocab_size=VOCABULARY, size=size),
    "masked-model": lambda name, size: recipes.masked_model(name, inputs=TOKENS, size=size),
    "embedder": lambda name, size: recipes.embedder(name, inputs=TOKENS, size=size),
    "translator": lambda name, size: recipes.translator(name, source=TOKENS, target_vocab_size=VOCABULARY, size=size),
    "picture-classifier": lambda name, size: recipes.picture_classifier(name, **SIDES, num_classes=2, size=size),
    "graph-classifier": lambda name, size: recipes.graph_model(
        name, inputs=TOKENS, head=ClassHeadConfig(num_classes=2), size=size
    ),
    "graph-tagger": lambda name, size: recipes.graph_tagger(name, inputs=TOKENS, num_tags=3, size=size),
}
MADE = [(shape, name) for shape in get_args(recipes.ModelKind) for name in recipes.names(shape)]
DROPPING = [(shape, name) for shape, name in MADE if name != "linear"]  # which has no vectors between layers
SIZES = [pytest.param(size, marks=pytest.mark.slow if size != "nano" else ()) for size in recipes.SIZES]


def made(shape: str, name: str, size: str = "nano") -> AnyModel:
    return MAKE[shape](name, size)


def places(config: Any, at: str = "") -> dict[str, float]:
    """Every rate of dropout in a configuration, 0 included, by its path."""
    if isinstance(config, tuple):
        return {
            path: rate for number, part in enumerate(config) for path, rate in places(part, f"{at}{number}.").items()
        }
    found = {}
    for field in getattr(config, "__struct_fields__", ()):
        held = getattr(config, field)
        found |= {f"{at}{field}": held} if field.endswith("dropout") else places(held, f"{at}{field}.")
    return found


def answers(config: AnyModel, *, training: bool) -> torch.Tensor:
    """What the model says of one batch; whoever asks again gets the same weights."""
    torch.manual_seed(0)
    model = config.build().train(training)
    edges = torch.tensor([[[0, 1], [1, 0]], [[2, 3], [3, 2]]])
    x = Padded.of(torch.arange(12).view(2, 6) % VOCABULARY, torch.tensor([6, 4]), edges=edges)
    if config.kind() == "encoder-decoder":
        said = model(x, x)
    else:
        said = model(torch.rand(2, HEIGHT, HEIGHT, 1) if "height" in config.to_json() else x)
    return said.values if isinstance(said, Padded) else said


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("shape", "name"), MADE)
def test_a_rate_changes_the_places_that_have_dropout_and_no_others(shape: str, name: str, size: str) -> None:
    before, after = places(config := made(shape, name, size)), places(with_dropout(config, 0.45))
    assert {path for path, rate in before.items() if rate} == {path for path, rate in after.items() if rate}
    assert {rate for rate in after.values() if rate} <= {0.45}
    assert sorted(dropouts(config)) == sorted(rate for rate in before.values() if rate)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("shape", "name"), MADE)
def test_the_rate_that_a_recipe_has_is_the_recipe(shape: str, name: str, size: str) -> None:
    config = made(shape, name, size)
    rates = set(dropouts(config))
    if len(rates) == 1:  # inputs of filters and recurrences have less than their layers, and no one rate is theirs
        assert with_dropout(config, rates.pop()) == config
    else:
        assert rates == (set() if name == "linear" else {0.2, 0.3})


@pytest.mark.parametrize(("shape", "name"), MADE)
def test_without_dropout_training_computes_what_evaluation_does(shape: str, name: str) -> None:
    config = with_dropout(made(shape, name), 0.0)
    assert not any(places(config).values())
    torch.testing.assert_close(answers(config, training=True), answers(config, training=False))


@pytest.mark.parametrize(("shape", "name"), DROPPING)
def test_a_rate_acts_in_every_model_but_the_linear_one(shape: str, name: str) -> None:
    config = with_dropout(made(shape, name), 0.45)
    assert config != made(shape, name)
    assert not torch.allclose(answers(config, training=True), answers(config, training=False))


@pytest.mark.parametrize("size", recipes.SIZES)
@pytest.mark.parametrize("name", recipes.names("translator"))
def test_both_sides_of_a_translator_and_both_kinds_of_attention_are_treated_alike(name: str, size: str) -> None:
    config = with_dropout(made("translator", name, size), 0.45)
    assert set(dropouts(config.encoder)) == set(dropouts(config.decoder)) == {0.45}
    assert config.encoder.dropout == config.decoder.dropout
    assert {layer.dropout for layer in (*config.encoder.layers, *config.decoder.layers)} == {0.45}
    for layer in config.decoder.layers:
        if isinstance(layer, DecoderBlockConfig):
            assert layer.attention_dropout == getattr(layer.mixer, "dropout", 0.0) == 0.0


# --- whole runs ------------------------------------------------------------------------------------------------------


def translating(folder: Path, dropout: float | None) -> RunConfig:
    """The settings of a run that translates."""
    rows = [f"{left} {right}\t{right} {left}" for left in "abcdef" for right in "uvwxyz"]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *rows]), encoding="utf-8")
    data = DataConfig(
        train=(str(folder / "pairs.tsv"),), task="translate", input=("source",), target=("target",), split=RandomSplit()
    )
    request = RunRequest(model="transformer", size="nano", dropout=dropout)
    return resolve(data, request, cache=folder / "cache").config


@pytest.mark.parametrize("model", ["transformer", "encoder", "window", "bag", "self-attention"])
def test_a_run_that_is_told_the_rate_of_its_recipe_is_the_same_run(tmp_path: Path, model: str) -> None:
    data = write_data(tmp_path)
    told, plain = (resolved(data, model=model, dropout=dropout).config for dropout in (0.1, None))
    assert places(told.model) == places(plain.model)
    assert told == plain


def test_a_translator_that_is_told_the_rate_of_its_recipe_is_the_same(tmp_path: Path) -> None:
    assert places(translating(tmp_path, 0.1).model) == places(translating(tmp_path, None).model)


def test_a_model_without_dropout_says_that_a_rate_changes_nothing(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    told, plain = resolved(data, model="linear", dropout=0.3), resolved(data, model="linear")
    assert told.config == plain.config
    assert "dropout: linear has no dropout layers, so --dropout 0.3 has no effect" in told.messages
    assert not any(
        "dropout" in line for line in (*plain.messages, *resolved(data, model="linear", dropout=0.0).messages)
    )


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_run_that_goes_on_is_asked_for_its_own_rate(tmp_path: Path, rate: float) -> None:
    before = resolved(write_data(tmp_path), model="transformer", dropout=rate).config
    assert RunRequest(dropout=rate).filled(before).model == before.model
    assert RunRequest(dropout=0.2).filled(before).model != before.model  # and the folder refuses another one
