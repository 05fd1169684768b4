"""--width, --layers and --heads: they change the numbers of a size, or are refused with a fix."""

from pathlib import Path
from typing import Any, get_args

import pytest

from seqloom import recipes
from seqloom.cli.recipes import make
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import AnyModel
from seqloom.config.training import RunConfig
from seqloom.errors import ConfigError
from seqloom.recipes.families import ATTENTION, RECIPES, SIZES, Dimensions, Size
from seqloom.training.learning_rate import default_lr
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run_summary import model_named
from training_common import write_data

WORDS = TokensConfig(vocab_size=50)
MADE = [(kind, name) for kind in get_args(recipes.ModelKind) for name in recipes.names(kind)]


def resolved(data: Path, **named: Any) -> Resolved:
    config, request = requested((str(data),), {"epochs": 1, **named})
    return resolve(config, request, cache=data.parent / "cache")


def stacks(model: AnyModel) -> list[Any]:
    return [getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)]


@pytest.mark.parametrize(("kind", "name"), MADE)
def test_a_width_is_that_of_all_stacks_or_refused(kind: str, name: str) -> None:
    wide = Dimensions("nano", width=48)
    if "width" not in RECIPES[name].dimensions:
        with pytest.raises(ConfigError, match=f"'{name}' has no width. Fix: leave width out"):
            make(name, kind, wide)
        return
    changed, plain = make(name, kind, wide), make(name, kind, "nano")
    assert {stack.width for stack in stacks(changed)} == {48}
    assert changed.parameters() > plain.parameters()
    assert {stack.repeat for stack in stacks(changed)} == {stack.repeat for stack in stacks(plain)}


@pytest.mark.parametrize(("kind", "name"), MADE)
def test_layers_are_those_of_all_stacks_or_refused(kind: str, name: str) -> None:
    deep = Dimensions("nano", layers=5)
    if "layers" not in RECIPES[name].dimensions:
        with pytest.raises(ConfigError, match="leave layers out"):
            make(name, kind, deep)
        return
    if (kind, name) != ("embedder", "mlp"):  # its hidden layers are one linear map
        assert make(name, kind, deep).parameters() > make(name, kind, "nano").parameters()


@pytest.mark.parametrize("name", ["transformer", "encoder", "window", "linear-attention"])
def test_heads_are_those_of_attention_and_the_feed_forward_layer_follows_the_width(name: str) -> None:
    config = recipes.classifier(name, inputs=WORDS, num_classes=2, size=Dimensions("small", width=256, heads=8))
    layer = config.encoder.layers[0]
    assert layer.mixer.num_heads == 8 and layer.feed_forward is not None  # type: ignore[union-attr]
    assert layer.feed_forward.hidden == 4 * 256


@pytest.mark.parametrize("name", ["bag", "mlp", "cnn", "rnn", "gru", "lstm", "bilstm", "self-attention"])
def test_a_family_without_heads_refuses_them(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' has no heads. Fix: leave heads out"):
        recipes.classifier(name, inputs=WORDS, num_classes=2, size=Dimensions("small", heads=2))


@pytest.mark.parametrize(
    ("name", "changes", "fix"),
    [
        ("transformer", {"width": 300}, "use heads = 3 or width = 304"),
        ("encoder", {"heads": 5}, "use heads = 4 or width = 190"),
        ("cnn", {"width": 100}, "use width = 99"),
        ("bilstm", {"width": 99}, "use width = 100"),
    ],
)
def test_a_width_that_cannot_be_divided_is_refused_with_one_that_can(name: str, changes: Any, fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        recipes.classifier(name, inputs=WORDS, num_classes=2, size=Dimensions("small", **changes))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("kind", "name"), MADE)
def test_the_numbers_of_a_size_named_again_are_the_size(kind: str, name: str, size: Size) -> None:
    recipe = RECIPES[name]
    same = {one: getattr(recipe.sizes[size], one) for one in recipe.dimensions}
    if recipe.body is None and size == "tiny":
        same.pop("layers", None)  # the decoder of a tiny seq2seq has a layer more than its encoder
    assert make(name, kind, Dimensions(size, **same)) == make(name, kind, size)


def test_a_run_has_the_width_that_was_named_and_its_report_says_it(tmp_path: Path) -> None:
    found = resolved(write_data(tmp_path), model="bilstm", width=300)
    assert found.config.model.encoder.width == 300  # type: ignore[union-attr]
    assert model_named(found.config.model, found.task) == "bilstm, small with width 300"
    assert any(line.startswith("model: bilstm, size small with width 300, ") for line in found.messages)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"model": "bilstm", "size": "nano", "layers": 3}, "bilstm, nano with layers 3"),
        (
            {"model": "transformer", "size": "nano", "width": 24, "heads": 3},
            "transformer, nano with width 24 and heads 3",
        ),
        ({"model": "mlp", "size": "nano", "layers": 2}, "mlp, nano with layers 2"),
        ({"model": "bag", "size": "nano", "width": 12}, "bag, nano"),
    ],
)
def test_the_name_of_a_model_tells_what_was_changed(tmp_path: Path, named: dict[str, Any], told: str) -> None:
    found = resolved(write_data(tmp_path), **named)
    assert model_named(found.config.model, found.task) == told


@pytest.mark.parametrize("setting", ["width", "layers", "heads"])
def test_a_given_model_and_that_of_init_refuse_them_like_dropout(tmp_path: Path, setting: str) -> None:
    model = recipes.classifier("lstm", inputs=WORDS, num_classes=2, size="nano")
    for named in ({"model": model}, {"init": "runs/other"}):
        with pytest.raises(ConfigError, match=f"--{setting} cannot be combined with .* whose layers are fixed"):
            requested((str(tmp_path / "data.csv"),), {**named, setting: 4})


def test_a_resumed_run_is_compared_with_the_width_that_is_named_now(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    before: RunConfig = resolved(data, model="bilstm", width=40).config
    assert RunRequest(width=50).filled(before).model is None  # it is made again, and the folder refuses it
    assert RunRequest().filled(before).model == before.model


@pytest.mark.parametrize("name", ["transformer", "lstm", "cnn"])
def test_the_learning_rate_of_a_width_lies_between_those_of_the_sizes(name: str) -> None:
    widths = [RECIPES[name].sizes[size].width for size in SIZES]
    rates = [default_lr(name, size) for size in SIZES]
    assert [default_lr(name, Dimensions("small", width=width)) for width in widths] == pytest.approx(rates)
    between = default_lr(name, Dimensions("nano", width=(widths[2] + widths[3]) // 2))
    assert rates[3] < between < rates[2]
    assert default_lr(name, Dimensions("small", width=9_000)) == pytest.approx(rates[-1])


def test_a_width_keeps_the_ratio_of_the_feed_forward_layer_in_every_size() -> None:
    for size, numbers in ATTENTION.items():
        config = recipes.language_model("gpt", vocab_size=9, size=Dimensions(size, width=2 * numbers.width))
        block = config.decoder.layers[0].feed_forward
        assert block is not None and block.hidden == 2 * numbers.hidden
