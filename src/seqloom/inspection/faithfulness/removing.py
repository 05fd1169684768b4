"""An input without some of its tokens: deleted where answers do not stand at tokens, masked where they do.

    delete    the symbols are left out, never cut anew from a text: the sequence gets shorter
    mask      vectors of zeros stand in their place: of tags, of running text, of patches of a picture

Special symbols are never removed.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspection.faithfulness.answers import probabilities
from seqloom.inspection.flow import still
from seqloom.inspection.subject import Reading, Subject, repeated
from seqloom.inspection.vectors import changed_vectors
from seqloom.models import EncoderDecoder, SequenceModel
from seqloom.types import Padded, Pair, Spelled

Removal = Literal["delete", "mask"]
REMOVALS = ("delete", "mask")
MOST_ELEMENTS = 8192  # tokens that one pass reads


def chosen_removal(subject: Subject, reading: Reading, removal: str | None) -> Removal:
    """How tokens are removed: as asked, or deleted where that can be; ConfigError where it cannot."""
    read = reading.inputs.source if isinstance(reading.inputs, Pair) else reading.inputs
    deletes = isinstance(subject.model, SequenceModel | EncoderDecoder) and isinstance(read, Padded | Spelled)
    if removal is None:
        return "delete" if deletes else "mask"
    if removal not in REMOVALS:
        raise ConfigError(f"there is no removal '{removal}'", fix=did_you_mean(removal, REMOVALS))
    if removal == "delete" and not deletes:
        raise ConfigError(
            "each answer of this model stands at an element of its input: none can be deleted", fix="take mask"
        )
    return "delete" if removal == "delete" else "mask"


@torch.no_grad()
def without(subject: Subject, reading: Reading, gone: np.ndarray, removal: Removal) -> Tensor:
    """[N,Q,K] the answers to an input without the tokens `gone` [N,T] of its first side, a bounded number at once."""
    each = max(1, MOST_ELEMENTS // max(1, gone.shape[1]))
    ask = _deleted if removal == "delete" else _masked
    blocks = (torch.from_numpy(gone[start : start + each]) for start in range(0, len(gone), each))
    with still(subject.model):
        return torch.cat([ask(subject, reading, block.to(subject.device)) for block in blocks])


def _masked(subject: Subject, reading: Reading, gone: Tensor) -> Tensor:
    def change(_call: int, vectors: Padded) -> Padded:
        return vectors.with_values(vectors.values.masked_fill(gone[:, :, None], 0))

    with changed_vectors(subject.model, reading.sides[0].stack, change):
        return probabilities(subject, reading, repeated(reading.inputs, len(gone)))


def _deleted(subject: Subject, reading: Reading, gone: Tensor) -> Tensor:
    inputs = reading.inputs
    if not isinstance(inputs, Pair):
        return probabilities(subject, reading, _shorter(inputs, ~gone))
    targets = repeated(inputs.target, len(gone))
    return probabilities(subject, reading, Pair(_shorter(inputs.source, ~gone), targets))


def _shorter(read: Any, kept: Tensor) -> Any:
    """One row of what a stack reads, once for each row of `kept` [N,T], with these elements alone."""
    if isinstance(read, Spelled):
        letters = _packed(read.letters[0], kept)
        return Spelled(_shorter(read.words, kept), letters)
    return Padded.of(_packed(read.values[0], kept), kept.sum(dim=1))


def _packed(row: Tensor, kept: Tensor) -> Tensor:
    """[N,T',...] the kept elements of a row [T,...], moved to the front, zeros behind them; one column at least."""
    longest = max(1, int(kept.sum(dim=1).max()))
    order = (~kept).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
    moved = row[order]
    real = torch.arange(order.shape[1], device=row.device) < kept.sum(dim=1)[:, None]
    return moved * real.view(*real.shape, *(1,) * (moved.ndim - 2)).to(moved.dtype)
