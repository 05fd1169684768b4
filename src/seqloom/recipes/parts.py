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
        "input_scale": _input_scale(body, inputs),
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def _input_scale(body: Body, inputs: AnyInput) -> float:
    """What makes inputs as large as the sinusoids that are added to them, at the start of training.

    A table of vectors starts at width^-1/2, and sinusoids have a root mean square of 2^-1/2. Shrinking the sinusoids
    instead was measured too: scores of attention then start near zero, and order is learned late (docs/recipes.md).
    Numbers and pixels are mapped to about the size of sinusoids.
    """
    looked_up = isinstance(inputs, TokensConfig | NgramsConfig | SpelledConfig)
    return round((body.width / 2) ** 0.5, 4) if body.position == "sinusoidal" and looked_up else 1.0


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
