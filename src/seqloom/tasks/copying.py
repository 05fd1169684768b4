"""Words that a vocabulary lacks, copied from the source: unknown replacement (Luong et al. 2015).

    source      Ms Quark sleeps          the model may say UNKNOWN; where it does, the word of the source that it
    says        Frau <unknown> schläft   looked at most is put there: names and numbers are the same in both languages
    answer      Frau Quark schläft

It needs a model that looks at its source, and tokenisers of one kind on both sides, which leave something unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from seqloom.decoding.alignment import alignment, looking
from seqloom.errors import ConfigError
from seqloom.models import EncoderDecoder
from seqloom.tasks.contract import Meaning
from seqloom.tasks.predictions import Translation
from seqloom.text.symbols import BEGIN, UNKNOWN
from seqloom.text.tokenizer import Tokenizer
from seqloom.types import Padded


@dataclass(frozen=True)
class Copying:
    """What is needed to fill the gaps of an answer once its source text is known."""

    symbols: tuple[int, ...]
    looked: tuple[int, ...]  # for each UNKNOWN among them: the element of the source
    source: Tokenizer
    target: Tokenizer

    def text(self, given: str) -> str:
        """The answer to this source text, its gaps filled."""
        spans = self.source.encode_with_offsets(given).spans.tolist()
        return self.target.decode_copying(self.symbols, [given[slice(*spans[place])] for place in self.looked])


@dataclass(frozen=True)
class Gapped(Translation):
    """A text with gaps, which the words of its source fill."""

    copying: Copying | None = None

    def located(self, given: Any) -> Translation:
        """The text with the words of this source in its gaps."""
        assert self.copying is not None
        others = tuple(cast(Translation, other.located(given)) for other in self.others)
        return Translation(self.copying.text(given), self.score, others)


def require_copying(meaning: Meaning, model: nn.Module) -> None:
    """Raise ConfigError where no word can be copied, with the reason."""
    source, target = meaning.tokenizer, meaning.target_tokenizer
    if meaning.schema.input != "text" or source is None or target is None:
        raise ConfigError(
            f"unknown replacement copies words of a text, and the model reads {meaning.schema.input}",
            fix="leave it out",
        )
    kinds = source.config.kind(), target.config.kind()
    if not target.has_unknown:
        raise ConfigError(f"a tokeniser of {kinds[1]} can write every text, so nothing is unknown", fix="leave it out")
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"unknown replacement copies what the source is cut into, {kinds[0]}, and answers are cut into {kinds[1]}",
            fix="leave it out, or train with one tokeniser for both sides",
        )
    if looking(cast(EncoderDecoder, model)) is None:
        raise ConfigError("unknown replacement needs a model that looks at its source", fix="train seq2seq-dot")


def copying(meaning: Meaning, model: nn.Module, source: Padded, symbols: Sequence[int]) -> Copying:
    """What fills the gaps of an answer to one source, a batch of one row."""
    assert meaning.tokenizer is not None and meaning.target_tokenizer is not None
    gaps = [place for place, symbol in enumerate(symbols) if symbol == UNKNOWN]
    looked: list[int] = []
    if gaps:
        read = torch.tensor([[BEGIN, *symbols[:-1]]], device=source.values.device)
        weights = alignment(cast(EncoderDecoder, model), source, Padded.of(read))
        assert weights is not None, "`require_copying` was asked"
        looked = weights[gaps, : int(source.lengths[0])].argmax(dim=-1).tolist()
    return Copying(tuple(symbols), tuple(looked), meaning.tokenizer, meaning.target_tokenizer)
