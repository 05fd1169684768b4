"""What an attribution gives to one side of an input: its tokens, or words, or pixels, and the sentences they make."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.inspection.attribution.ground import Place
from seqloom.inspection.attribution.stretches import beginning, merged, stretches
from seqloom.inspection.tokens import Token


class Stretch(NamedTuple):
    """A sentence and what its tokens come to."""

    start: int
    stop: int
    beginning: str
    total: float


class Part(NamedTuple):
    """The elements of one side, with what each was given."""

    name: str
    tokens: tuple[Token, ...]
    values: np.ndarray  # [E], NaN where nothing was measured
    stretches: tuple[Stretch, ...]
    shape: tuple[int, int] | None = None  # of a picture, whose pixels the elements are

    @property
    def texts(self) -> tuple[str, ...]:
        """The tokens as they are shown."""
        return tuple(token.text for token in self.tokens)

    @property
    def numbers(self) -> list[float | None]:
        """The values as figures take them."""
        return [None if np.isnan(value) else float(value) for value in self.values]

    def strongest(self, count: int) -> list[int]:
        """The numbers of the elements with the largest values of either sign, the largest first."""
        sizes = np.abs(np.nan_to_num(self.values))
        return [int(at) for at in np.argsort(-sizes, kind="stable")[:count] if sizes[at] > 0]


def part_of(place: Place, values: np.ndarray, *, words: bool) -> Part:
    """The elements of a place, or the words that they are pieces of: what pieces were given is added up."""
    tokens: Sequence[Token] = place.tokens
    if words and place.shape is None:
        tokens, starts = merged(place.tokens)
        missing = np.logical_and.reduceat(np.isnan(values), starts)
        values = np.where(missing, np.nan, np.add.reduceat(np.nan_to_num(values), starts))
    ends = stretches(tokens, place.text) if place.shape is None else ()
    found = tuple(Stretch(a, b, beginning(tokens[a:b], place.text), float(np.nansum(values[a:b]))) for a, b in ends)
    return Part(place.side.name, tuple(tokens), values, found, place.shape)
