"""Drafts: answers that are being written, the texts that end them, and what of a text may be shown already.

The text of an answer is what it adds to the text of its prompt: so a word that follows another one has its space. A
stop string may begin in one symbol and end in another. It is looked for in the text of the last symbols, and only where
it is found there is the whole text made. A symbol may change how the one before it is written, no earlier one: a hyphen
joins two words when the second is known.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from seqloom.errors import ConfigError
from seqloom.text.symbols import END

Decode = Callable[[list[int]], str]
Ended = Literal["end", "stop", "longest"]

BYTES = 4  # symbols that a character may have: those of a tokeniser of bytes
# What a tokeniser writes for the last bytes of a text that make no character, or not yet.
HALF = re.compile(r"(?:\\x[0-9a-f]{2}){1,3}\Z")


class Written(NamedTuple):
    """One answer: its symbols, without END or what a stop string begins in, and why it ended."""

    symbols: list[int]
    score: float  # log P of the symbols and END, as the model gives it; of a beam with its penalties
    ended: Ended
    text: str = ""  # what it adds to its prompt, where a tokeniser is given


class Stops:
    """The texts that end an answer."""

    def __init__(self, stops: Sequence[str], decode: Decode | None) -> None:
        if stops and decode is None:
            raise ConfigError(
                "stop strings end a text, and symbols are written", fix="give `decode`, or leave them out"
            )
        self.stops, self.decode = tuple(stops), decode
        self.reach = BYTES * (max(map(len, stops), default=0) + 1)  # symbols that a stop string may lie in
        self.dense = [stop.replace(" ", "") for stop in stops]

    def text(self, before: Sequence[int], symbols: Sequence[int]) -> str:
        """What the symbols add to the text of those before them; "" without a tokeniser."""
        if self.decode is None:
            return ""
        prompt, whole = self.decode(list(before)), self.decode([*before, *symbols])
        # A symbol may change how the prompt ends, which is said already: then it is written by itself.
        return whole[len(prompt) :] if whole.startswith(prompt) else self.decode(list(symbols))

    def reached(self, before: Sequence[int], symbols: Sequence[int]) -> bool:
        """Whether a stop string stands in the text."""
        if not self.stops or self.decode is None:
            return False
        tail = self.decode([*before[-self.reach :], *symbols][-self.reach :]).replace(" ", "")  # spaces may differ
        return any(stop in tail for stop in self.dense) and self.place(self.text(before, symbols)) is not None

    def place(self, text: str) -> int | None:
        """Where the first stop string begins; None where there is none."""
        return min((text.find(stop) for stop in self.stops if stop in text), default=None)

    def settled(self, text: str, earlier: str) -> int:
        """How many characters of a text that goes on can be shown: no half character, no beginning of a stop string.

        `earlier` is the text without its last symbol; what differs from it may still change.

        >>> Stops(["END."], str).settled("the END", "the EN"), Stops([], str).settled("caf\\\\xc3", "caf")
        (4, 3)
        """
        half = HALF.search(text)
        whole = min(len(text) if half is None else half.start(), _agreed(text, earlier))
        longest = max(map(len, self.stops), default=1) - 1
        for start in range(max(0, whole - longest), whole):
            if any(stop.startswith(text[start:whole]) for stop in self.stops):
                return start
        return whole


def _agreed(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginnings."""
    places = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in places if a != b), min(len(one), len(other)))


class Draft:
    """An answer that is being written after the symbols of its prompt."""

    def __init__(self, before: list[int], most: int, stops: Stops) -> None:
        self.before, self.most, self.stops = before, most, stops
        self.symbols: list[int] = []
        self.score = 0.0
        self.ended: Ended | None = None if most > 0 else "longest"

    def add(self, symbol: int, log: float) -> None:
        """Say one more symbol, whose log-probability is given."""
        self.score += log
        if symbol != END:
            self.symbols.append(symbol)
        self.ended = ended(symbol, self.before, self.symbols, self.most, self.stops)

    def written(self) -> Written:
        """The answer as it is now."""
        return written(self.before, self.symbols, self.score, self.ended or "longest", self.stops)


def ended(symbol: int, before: list[int], symbols: list[int], most: int, stops: Stops) -> Ended | None:
    """Why an answer is at its end with this symbol; None where it goes on."""
    if symbol == END:
        return "end"
    if stops.reached(before, symbols):
        return "stop"
    return "longest" if len(symbols) >= most else None


def written(before: list[int], symbols: list[int], score: float, why: Ended, stops: Stops) -> Written:
    """The answer of these symbols; a stop string, and all behind it, is left out of the text and the symbols."""
    text = stops.text(before, symbols)
    place = stops.place(text) if why == "stop" else None
    if place is None:
        return Written(symbols, score, why, text)
    kept = len(symbols)
    while kept and len(stops.text(before, symbols[:kept])) > place:
        kept -= 1
    return Written(symbols[:kept], score, why, text[:place])
