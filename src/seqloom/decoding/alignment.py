"""Alignment: which elements of the source a decoder looked at for each symbol that it was about to say."""

from typing import Any

import torch
from torch import Tensor

from seqloom.mixers.cross import Alignment, CrossAttention
from seqloom.models import EncoderDecoder
from seqloom.operators.attention import weights
from seqloom.taps import recording
from seqloom.types import Padded


@torch.no_grad()
def alignment(model: EncoderDecoder, source: Any, target: Padded) -> Tensor | None:
    """[T,S] the weights of the last layer that looks at the source, mean over its heads; None where none does.

    One example is given, as batches of one row. `target` is what the decoder reads: BEGIN and the symbols. Row t shows
    where it looked before it said symbol t.
    """
    looking = [name for name, part in model.named_modules() if isinstance(part, Alignment | CrossAttention)]
    if not looking:
        return None
    with recording(model, f"{looking[-1]}.weights") as heard:
        model.decoder(target, model.encoder(source))
    ((request,),) = heard.values()
    return weights(request)[0].mean(dim=0)
