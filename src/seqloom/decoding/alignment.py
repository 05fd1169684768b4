"""Alignment: which elements of the source a decoder looked at for each symbol that it was about to say."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqloom.decoding.answers import Looked, Looking
from seqloom.nn.mixers.cross import Alignment, CrossAttention
from seqloom.nn.models import EncoderDecoder
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.taps import listening, recording
from seqloom.nn.types import Padded


@torch.no_grad()
def alignment(model: EncoderDecoder, source: Any, target: Padded) -> Tensor | None:
    """[T,S] the weights of the last layer that looks at the source, mean over its heads; None where none does.

    One example is given, as batches of one row. `target` is what the decoder reads: BEGIN and the symbols. Row t shows
    where it looked before it said symbol t.
    """
    tap = _tap_of(model)
    if tap is None:
        return None
    with recording(model, tap) as heard:
        model.decoder(target, model.encoder(source))
    ((request,),) = heard.values()
    return weights(request)[0].mean(dim=0)


def _tap_of(model: EncoderDecoder) -> str | None:
    """The name of the tap on the last layer that looks at the source; None where none does."""
    looking = [name for name, part in model.named_modules() if isinstance(part, Alignment | CrossAttention)]
    return f"{looking[-1]}.weights" if looking else None


def looking(model: EncoderDecoder) -> Looking | None:
    """What watches where a decoder looks while `write` writes with it; None where it looks at nothing."""
    tap = _tap_of(model)
    return None if tap is None else partial(_watch, model, tap)


@contextmanager
def _watch(model: EncoderDecoder, tap: str) -> Iterator[Looked]:
    """Inside the `with`, a function that gives [B,T,S]: where the model looked in its latest step."""
    latest: list[Request] = []

    def keep(_: str, request: Request) -> None:
        latest[:] = [request]

    def looks() -> Tensor:  # mean over the heads; the padding of the source needs no look, and counts as looked at
        padding = ~latest[0].key_places.valid[:, None]
        return weights(latest[0]).mean(dim=1).masked_fill(padding, 1.0)

    with listening(model, tap, keep):
        yield looks
