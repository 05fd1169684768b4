"""`config.parameters()` is the number of weights that `build()` makes: a model can be refused before it exists."""

from typing import Any, get_args

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from config.configurations import TOKENS, Made, models, of_recipes, pool, raw_input
from seqloom.config.heads import (
    ClassHeadConfig,
    CrfHeadConfig,
    ElementHead,
    NextTokenHeadConfig,
    Pooling,
    SequenceHead,
    UnmappedHead,
    VectorHeadConfig,
)
from seqloom.config.inputs import AnyInput, FiltersConfig, FlatConfig, PatchesConfig, PictureConfig
from seqloom.config.mixers import POSITIONS, RELATIVE, SCORES, AnyMixer, AttentionConfig
from seqloom.config.models import (
    ElementModelConfig,
    EmbedderConfig,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.config.stacks import (
    AnyConditioned,
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderConfig,
    EncoderConfig,
    FeedForwardConfig,
)
from seqloom.errors import ConfigError
from seqloom.nn.models import count_parameters

WIDTH = 8
PLAIN = EncoderConfig(input=TOKENS, width=WIDTH)


def built_on_meta(config: Any) -> int:
    """The weights of a model whose tensors have shapes but no memory."""
    with torch.device("meta"):
        return count_parameters(config.build())


@pytest.mark.parametrize("made", list(of_recipes(("nano",))), ids=lambda made: made.name)
def test_a_tiny_recipe_has_the_weights_that_its_configuration_counts(made: Made) -> None:
    assert count_parameters(made.config.build()) == made.config.parameters()


@pytest.mark.slow
@pytest.mark.parametrize("made", list(of_recipes(("small", "base", "big"))), ids=lambda made: made.name)
def test_a_recipe_of_any_size_has_the_weights_that_its_configuration_counts(made: Made) -> None:
    assert built_on_meta(made.config) == made.config.parameters()


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(models())
def test_a_drawn_model_has_the_weights_that_its_configuration_counts_and_runs(config: Any) -> None:
    model = config.build()
    assert count_parameters(model) == config.parameters()
    stack = config.decoder if isinstance(config, LanguageModelConfig) else config.encoder
    inputs = [raw_input(stack.input, [3, 1])]
    assume(not isinstance(stack.input, PictureConfig) or '"edges"' not in config.to_json())  # a picture has none
    if isinstance(config, EncoderDecoderConfig):
        inputs.insert(0, raw_input(config.decoder.input, [2, 4]))
    scores = model.eval()(*inputs)
    assert bool(torch.isfinite(scores if isinstance(scores, torch.Tensor) else scores.values).all())


@pytest.mark.parametrize("source", pool(AnyInput), ids=lambda source: source.kind())
@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_every_input_under_every_pooling(source: Any, pooling: Any) -> None:
    config = EmbedderConfig(encoder=EncoderConfig(input=source, width=WIDTH), pooling=pooling)
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("mixer", pool(AnyMixer), ids=lambda mixer: mixer.kind())
@pytest.mark.parametrize("position", POSITIONS)
def test_every_mixer_with_every_position(mixer: Any, position: Any) -> None:
    relation = position if position in RELATIVE else "none"
    try:
        mixer.fit(WIDTH, relation)
    except ConfigError:
        with pytest.raises(ConfigError):
            EncoderConfig(input=TOKENS, width=WIDTH, position=position, layers=(BlockConfig(mixer=mixer),))
        return
    assert count_parameters(mixer.build(WIDTH, relation)) == mixer.parameters(WIDTH, relation)
    config = EncoderConfig(input=TOKENS, width=WIDTH, position=position, layers=(BlockConfig(mixer=mixer),), repeat=3)
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("arrangement", ["plain", "residual", "post", "pre"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("activation", [None, "relu", "swiglu"])
def test_every_surrounding_of_a_mixer(arrangement: Any, norm: Any, activation: Any) -> None:
    inner = None if activation is None else FeedForwardConfig(hidden=20, activation=activation)
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2), arrangement=arrangement, norm=norm, feed_forward=inner, dropout=0.1
    )
    config = EncoderConfig(input=TOKENS, width=WIDTH, layers=(block, block), final_norm=norm, repeat=2)
    assert count_parameters(config.build()) == config.parameters()
    assert count_parameters(block.build_causal(WIDTH)) == block.parameters(WIDTH)


@pytest.mark.parametrize("layer", pool(AnyConditioned), ids=lambda layer: layer.kind())
@pytest.mark.parametrize("score", SCORES)
def test_every_layer_that_reads_a_memory(layer: Any, score: Any) -> None:
    if "score" in layer.__struct_fields__:
        layer = type(layer)(**{name: getattr(layer, name) for name in layer.__struct_fields__} | {"score": score})
    decoder = ConditionedDecoderConfig(input=TOKENS, width=WIDTH, layers=(layer,), final_norm="rms")
    config = EncoderDecoderConfig(encoder=PLAIN, decoder=decoder, head=NextTokenHeadConfig(vocab_size=11))
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("join", ["add", "concatenate"])
@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_positions_added_and_concatenated(join: Any, position: Any) -> None:
    config = EncoderConfig(input=TOKENS, width=WIDTH, position=position, position_join=join, max_length=33)
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("head", pool(SequenceHead), ids=lambda head: head.kind())
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
def test_every_head_of_a_sequence(head: Any, hidden: Any) -> None:
    hidden = (*hidden, head.answers) if isinstance(head, UnmappedHead) else hidden
    config = SequenceModelConfig(encoder=PLAIN, head=head, hidden=hidden, pooling="attention")
    assert count_parameters(config.build()) == config.parameters()


ELEMENT_HEADS = [
    *pool(ElementHead),
    CrfHeadConfig(labels=("O", "B-X", "I-X", "B-Y"), scheme="bio"),
    CrfHeadConfig(labels=("O", "S-X", "B-X", "I-X", "E-X"), scheme="bioes"),
    NextTokenHeadConfig(vocab_size=7, tied=False),
]


@pytest.mark.parametrize("head", ELEMENT_HEADS, ids=lambda head: head.kind())
def test_every_head_of_an_element(head: Any) -> None:
    config = ElementModelConfig(encoder=PLAIN, head=head)
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("size", [None, WIDTH, 5])
@pytest.mark.parametrize("unit", [True, False])
def test_every_head_of_an_embedder(size: Any, unit: bool) -> None:
    config = EmbedderConfig(encoder=PLAIN, head=VectorHeadConfig(size=size, unit=unit))
    assert count_parameters(config.build()) == config.parameters()


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_matrix_counts_once(tied: bool) -> None:
    decoder = DecoderConfig(input=TOKENS, width=WIDTH)
    config = LanguageModelConfig(decoder=decoder, head=NextTokenHeadConfig(vocab_size=11, tied=tied))
    assert count_parameters(config.build()) == config.parameters() == 11 * WIDTH * (1 if tied else 2) + 11


PICTURES: list[PictureConfig] = [
    FlatConfig(height=5, width=7, channels=2),
    *(PatchesConfig(height=12, width=8, patch=patch, channels=2) for patch in (1, 2, 4)),
    *(
        FiltersConfig(height=height, width=width, filters=filters, kernel_size=size)
        for height, width in ((1, 9), (9, 1), (2, 3), (12, 17))
        for filters in ((3,), (3, 4), (2, 2, 2))
        for size in (1, 2)
        if size == 1 or (min(height, width) > 1 and len(filters) < 2) or min(height, width) > 10
    ),
]


@pytest.mark.parametrize("picture", PICTURES, ids=str)
def test_a_picture_becomes_as_many_elements_as_its_configuration_says(picture: Any) -> None:
    pixels = torch.zeros(2, picture.height, picture.width, picture.channels)
    encoder = EncoderConfig(input=picture, width=4, position="learned", max_length=picture.length()).build()
    assert encoder(pixels).values.shape[1] == picture.length()
    if picture.length() > 1:
        with pytest.raises(ConfigError, match=f"set max_length to {picture.length():,}"):
            EncoderConfig(input=picture, width=4, position="learned", max_length=picture.length() - 1)


def test_classes_are_counted_with_their_bias() -> None:
    assert ClassHeadConfig(num_classes=3).parameters(5) == 3 * 5 + 3
