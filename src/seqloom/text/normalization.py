"""Normalising: unicode forms and lower case, with the way back to the original text.

Most text is ASCII, where every form leaves it alone and lower case changes no length. For the rest the rules, and the
record of which character came from where, are those of the `tokenizers` library. Lower case can undo a form (the
decomposed capital of `ǰ` has no composed one), so the form is applied before and after it.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers

from seqloom.config.tokenizers import TokenizerConfig, UnicodeForm

FORMS: dict[UnicodeForm, list[type[normalizers.Normalizer]]] = {
    "as-is": [],
    "nfc": [normalizers.NFC],
    "nfd": [normalizers.NFD],
    "nfkc": [normalizers.NFKC],
    "nfkd": [normalizers.NFKD],
}


class Normalised(NamedTuple):
    """A normalised text; its character i stands for original[starts[i]:stops[i]]."""

    text: str
    starts: np.ndarray  # [characters] int64, never falling
    stops: np.ndarray  # [characters] int64, never falling

    def original(self, spans: np.ndarray) -> np.ndarray:
        """[n, 2] spans of the original for spans of this text; an empty span stays empty."""
        starts = np.append(self.starts, self.stops[-1:] if len(self.stops) else 0)[spans[:, 0]]
        stops = np.append(0, self.stops)[spans[:, 1]]
        return np.stack([starts, np.where(spans[:, 0] < spans[:, 1], stops, starts)], axis=1)


class Normaliser:
    """Turns texts into the form that a tokeniser was asked to cut."""

    def __init__(self, config: TokenizerConfig) -> None:
        self._lower = config.lower
        self._changes = config.lower or config.unicode != "as-is"
        self._aligner = _aligner(config.unicode, config.lower)

    def apply(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts, normalised."""
        return [self._one(text) for text in texts] if self._changes else texts

    def _one(self, text: str) -> str:
        if text.isascii() or not self._changes:
            return text.lower() if self._lower else text
        normalizer = self._aligner.normalizer
        assert normalizer is not None
        return str(normalizer.normalize_str(text))

    def apply_with_offsets(self, text: str) -> Normalised:
        """The text, normalised, with the way back."""
        if text.isascii() or not self._changes:
            places = np.arange(len(text))
            return Normalised(self._one(text), places, places + 1)
        offsets = self._aligner.encode(text).offsets
        spans = np.array(offsets, np.int64).reshape(-1, 2)
        return Normalised(self._one(text), *_without_gaps(spans, len(text)))


def _without_gaps(spans: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops that cover the whole original: an accent that was composed belongs to the letter before it."""
    starts = np.maximum.accumulate(spans[:, 0])
    starts[0] = 0
    stops = np.maximum.accumulate(np.maximum(spans[:, 1], np.append(starts[1:], length)))
    return starts, stops


@cache
def _aligner(form: UnicodeForm, lower: bool) -> Library:
    """A tokeniser that gives one unknown symbol for each normalised character, and so the place it came from."""
    aligner = Library(models.BPE(vocab={"unknown": 0}, merges=[], unk_token="unknown", fuse_unk=False))
    steps = [*FORMS[form], normalizers.Lowercase, *FORMS[form]] if lower else FORMS[form]
    aligner.normalizer = normalizers.Sequence([step() for step in steps])
    return aligner
