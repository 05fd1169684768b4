"""The parts of models that several shapes share: a middle between an input and a head."""

from typing import Any

from seqloom.config.heads import MappedHead
from seqloom.config.inputs import AnyInput, NgramsConfig, SpelledConfig, TokensConfig
from seqloom.config.models import EncoderConfig, SequenceModelConfig
from seqloom.recipes.bodies import Body


def around(body: Body, inputs: AnyInput) -> dict[str, Any]:
    """The settings that encoders and decoders share."""
    return {
        "width": body.width,
        "position": body.position,
        "position_scale": _position_scale(body, inputs),
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def _position_scale(body: Body, inputs: AnyInput) -> float:
    """What makes sinusoids as large as the inputs that they are added to, at the start of training.

    A table of vectors starts at width^-1/2, and sinusoids have a root mean square of 2^-1/2: unscaled they would drown
    tokens. Numbers and pixels are mapped to about the size of sinusoids.
    """
    looked_up = isinstance(inputs, TokensConfig | NgramsConfig | SpelledConfig)
    return round((2 / body.width) ** 0.5, 4) if body.position == "sinusoidal" and looked_up else 1.0


def encode(body: Body, inputs: AnyInput) -> EncoderConfig:
    """The encoder with this middle."""
    return EncoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body, inputs))


def answering(body: Body, inputs: AnyInput, head: MappedHead) -> SequenceModelConfig:
    """The model with this middle and one answer for each sequence."""
    return SequenceModelConfig(
        encoder=encode(body, inputs),
        pooling=body.pooling,
        hidden=body.hidden,
        dropout=body.dropout,
        head=head,
    )
