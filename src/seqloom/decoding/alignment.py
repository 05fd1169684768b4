"""Alignment: the attention of a decoder to its source, for each generated token."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.decoding.answers import AttentionOf, WatchAttention
from seqloom.nn.mixers.cross import Alignment, CrossAttention
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.taps import listening, recording
from seqloom.nn.types import Padded


@torch.no_grad()
def alignment(model: EncoderDecoder, source: Any, target: Padded) -> Tensor | None:
    """[T,S] the attention of the last layer that attends to the source, mean over its heads; None if none does.

    Takes one example, as batches of one row. `target` is what the decoder reads: BEGIN and the tokens. Row t is the
    attention for token t.
    """
    tap = _tap_of(model)
    if tap is None:
        return None
    with recording(model, tap) as recorded:
        model.decoder(target, model.encoder(source))
    ((request,),) = recorded.values()
    return weights(request)[0].mean(dim=0)


def _tap_of(model: EncoderDecoder) -> str | None:
    """The name of the tap on the last layer that attends to the source; None if none does."""
    watching = [name for name, part in model.named_modules() if isinstance(part, Alignment | CrossAttention)]
    return f"{watching[-1]}.weights" if watching else None


def watching(model: EncoderDecoder) -> WatchAttention | None:
    """Records the attention of a decoder during `write`; None for a model without attention to its source."""
    tap = _tap_of(model)
    return None if tap is None else partial(_watch, model, tap)


@contextmanager
def _watch(model: EncoderDecoder, tap: str) -> Iterator[AttentionOf]:
    """Inside the `with`, a function that returns the attention [B,T,S] of the latest step."""
    latest: list[Request] = []

    def keep(_: str, request: Request) -> None:
        latest[:] = [request]

    def attention() -> Tensor:  # mean over heads; padding of the source counts as covered
        padding = ~latest[0].key_places.valid[:, None]
        return weights(latest[0]).mean(dim=1).masked_fill(padding, 1.0)

    with listening(model, tap, keep):
        yield attention
