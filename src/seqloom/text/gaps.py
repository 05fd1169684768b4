"""A tokeniser that reads gaps: wherever a text says [MASK], the symbol MASK stands.

Texts that are learnt from are never read like this: there "[MASK]" is text like any other. It is for questions to a
model that fills gaps.
"""

from collections.abc import Sequence

import numpy as np

from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import MASK
from seqloom.text.tokenizer import Tokenizer

GAP = "[MASK]"


class GapTokenizer(Tokenizer):
    """The tokeniser of a model, for texts with gaps.

    >>> from seqloom.config.tokenizers import WordsConfig
    >>> plain = WordsConfig().fit(["the cat sat"])
    >>> GapTokenizer(plain).encode(["the [MASK] sat"]).values.tolist() == [*plain.encode(["the"]).values, MASK, 7]
    True
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer.config, tokenizer.cutter, tokenizer.dropped)
        # subwords begin with the space before them, so the space before a gap belongs to what is missing
        self._joined = tokenizer.config.kind() in ("bpe", "unigram")

    def encode_inner(self, texts: Sequence[str]) -> Ragged:
        """The symbols of each text without a frame, MASK where it has a gap."""
        split = [self._parts(text) for text in texts]
        encoded = super().encode_inner([part for parts in split for part in parts])
        rows, first = [], 0
        for parts in split:
            pieces = [encoded.row(number) for number in range(first, first + len(parts))]
            rows.append(np.concatenate([pieces[0], *(half for one in pieces[1:] for half in ([MASK], one))]))
            first += len(parts)
        return Ragged.of(rows, np.int32)

    def _parts(self, text: str) -> list[str]:
        *before, last = text.split(GAP)
        return [*(part.removesuffix(" ") if self._joined else part for part in before), last]
