"""What the tests of text share: one small fitted tokenizer of every kind, with and without normalizing."""

from functools import cache
from typing import Any

import numpy as np

from seqloom.config.tokenizers import BpeConfig, BytesConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.text.tokenizer import Tokenizer, fit

KINDS: dict[str, Any] = {
    "words": WordsConfig,
    "characters": CharactersConfig,
    "bytes": BytesConfig,
    "bpe": BpeConfig,
    "unigram": UnigramConfig,
}
FORMS = ("as-is", "nfc", "nfd", "nfkc", "nfkd")


@cache
def sentences(count: int = 300, words: int = 400, seed: int = 0) -> tuple[str, ...]:
    """Word-like texts: syllables, words of falling frequency, some marks, numbers and accents."""
    draw = np.random.default_rng(seed)
    syllables = ["ba", "ke", "lo", "mi", "nu", "ra", "st", "en", "ing", "ed", "é", "ß", "北"]
    known = ["".join(draw.choice(syllables, draw.integers(1, 5))) for _ in range(words)]
    picks = (draw.random((count, 12)) ** 3 * words).astype(int)
    ends = draw.choice([".", "!", " 123", " <x>"], count)
    return tuple(" ".join(known[pick] for pick in row) + end for row, end in zip(picks, ends, strict=True))


@cache
def fitted(kind: str, form: str = "as-is", lowercase: bool = False) -> Tokenizer:
    """A tokenizer of this kind, fitted on a few hundred sentences."""
    limit = {} if kind == "bytes" else {"vocab_size": 600}
    return fit(KINDS[kind](normalize=form, lowercase=lowercase, **limit), sentences())
