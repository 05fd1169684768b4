"""The parts of models that several shapes share: a middle between an input and a head."""

from typing import Any

from seqloom.config.heads import MappedHead
from seqloom.config.inputs import AnyInput
from seqloom.config.models import EncoderConfig, SequenceModelConfig
from seqloom.recipes.bodies import Body


def around(body: Body) -> dict[str, Any]:
    """The settings that encoders and decoders share."""
    return {
        "width": body.width,
        "position": body.position,
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def encode(body: Body, inputs: AnyInput) -> EncoderConfig:
    """The encoder with this middle."""
    return EncoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body))


def answering(body: Body, inputs: AnyInput, head: MappedHead) -> SequenceModelConfig:
    """The model with this middle and one answer for each sequence."""
    return SequenceModelConfig(
        encoder=encode(body, inputs),
        pooling=body.pooling,
        hidden=body.hidden,
        dropout=body.dropout,
        head=head,
    )
