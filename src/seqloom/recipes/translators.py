"""Models that write a sequence while looking at another."""

from seqloom.config.blocks import AlignmentConfig, AnyConditioned, DecoderBlockConfig, FeedForwardConfig, SeededConfig
from seqloom.config.combinations import Score
from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.inputs import AnyInput, TokensConfig
from seqloom.config.mixers import AnyMixer, BidirectionalConfig, LstmConfig, OneWay
from seqloom.config.models import ConditionedDecoderConfig, EncoderDecoderConfig
from seqloom.recipes.bodies import Body, bilstm
from seqloom.recipes.families import recipe_of
from seqloom.recipes.parts import around, encode
from seqloom.recipes.sizes import ATTENTION, Size


def translator(name: str, *, source: AnyInput, target_vocab_size: int, size: Size = "small") -> EncoderDecoderConfig:
    """A model that writes a sequence of symbols while looking at a source: text, vectors or a picture."""
    recipe = recipe_of(name, "translator", size)
    body = bilstm(size) if recipe.body is None else recipe.body(size)
    layers, repeat = (_seq2seq(name), 1) if recipe.body is None else (_decoder_layers(body, size), body.repeat)
    target = TokensConfig(vocab_size=target_vocab_size)
    return EncoderDecoderConfig(
        encoder=encode(body, source),
        decoder=ConditionedDecoderConfig(input=target, layers=layers, repeat=repeat, **around(body, target)),
        head=NextTokenHeadConfig(vocab_size=target_vocab_size),
    )


def _seq2seq(name: str) -> tuple[AnyConditioned, ...]:
    """Two LSTM layers that start from the source's last vector, and the attention that the name asks for."""
    layers: tuple[AnyConditioned, ...] = (SeededConfig(mixer=LstmConfig(), dropout=0.3),) * 2
    scores: dict[str, Score] = {f"seq2seq-{score}": score for score in ("dot", "scaled_dot", "additive", "bilinear")}
    return (*layers, AlignmentConfig(score=scores[name], dropout=0.3)) if name in scores else layers


def _decoder_layers(body: Body, size: Size) -> tuple[AnyConditioned, ...]:
    """The blocks of an encoder, each with attention to the source in its middle."""
    return tuple(
        DecoderBlockConfig(
            mixer=_one_way(layer.mixer),
            num_heads=ATTENTION[size].heads,
            feed_forward=layer.feed_forward or FeedForwardConfig(hidden=ATTENTION[size].hidden),
            dropout=layer.dropout,
        )
        for layer in body.layers
    )


def _one_way(mixer: AnyMixer) -> OneWay:
    assert not isinstance(mixer, BidirectionalConfig), "no recipe with a decoder reads from both ends"
    return mixer
