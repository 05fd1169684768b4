"""Drafts: answers that are being written, the texts that end them, and what of a text may be shown already.

The text of an answer is what it adds to the text of its prompt: so a word that follows another one has its space. A
stop string may begin in one symbol and end in another. It is looked for in the text of the last symbols, and only where
it is found there is the whole text made. A symbol may change how the one before it is written, no earlier one: a hyphen
joins two words when the second is known.

What a symbol and a whole answer are worth.

repetition    a score of a symbol that was said is divided by r where it is positive, multiplied by r where it is
              negative                                                                      Keskar et al. 2019
length        log P(y) / ((5 + |y|) / 6)^alpha, where |y| counts END                        Wu et al. 2016
coverage      + beta sum_i log(min(sum_j a_ij, 1)) for each element i of the source         Wu et al. 2016

Reading on: what every way of writing needs of a model, and nothing more.

A model that is written with gives scores of the next symbol and a state. The state is a value with the batch on axis
0, so rows are left out, repeated or put in another order without the model's knowing: an LSTM and a Transformer, a
language model that goes on with a prompt and a decoder that looks at a source, are all the same here.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.config.stacks import StackConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.types import Padded, merge_rows, select_rows
from seqloom.text.special_tokens import BEGIN, COUNT, END

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
        # How many characters two texts have in common at their beginnings
        places = enumerate(zip(text, earlier, strict=False))
        agreed = next((place for place, (a, b) in places if a != b), min(len(text), len(earlier)))
        whole = min(len(text) if half is None else half.start(), agreed)
        longest = max(map(len, self.stops), default=1) - 1
        for start in range(max(0, whole - longest), whole):
            if any(stop.startswith(text[start:whole]) for stop in self.stops):
                return start
        return whole


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


LEAST_LOOK = 1e-9  # the logarithm of an element that was never looked at would be infinite


def log_probabilities(scores: Tensor, said: Tensor | None, repetition: float, never: Sequence[int]) -> Tensor:
    """[B,V] the logarithm of the probability of each symbol; minus infinity for those that are never said.

    `said` [B,V] is true for symbols that a row has said; None where nothing is made of it.
    """
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if said is not None:
        scores = torch.where(said, torch.where(scores > 0, scores / repetition, scores * repetition), scores)
    logs = scores.log_softmax(dim=-1)
    logs[:, list(never)] = -torch.inf
    return logs


def length_penalty(length: int, alpha: float) -> float:
    """What the log-probability of so many symbols is divided by.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0), length_penalty(50, 0.0)
    (1.0, 2.0, 1.0)
    """
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(covered: Tensor, beta: float) -> Tensor:
    """[B] what it costs that elements of the source were too little looked at; `covered` [B,S] sums all looks."""
    return beta * covered.clamp(LEAST_LOOK, 1.0).log().sum(dim=-1)


NEVER = tuple(symbol for symbol in range(COUNT) if symbol != END)  # special symbols that no text holds
BLOCK = 128  # symbols of a prompt that are read at once: scores of every one of them would not fit in memory

Looked = Callable[[], Tensor]  # [B,T,S] where the model looked in its latest step; 1 in the padding of the source
Looking = Callable[[], AbstractContextManager[Looked]]  # inside the `with`, the model is watched


class SteppedRows(Protocol):
    """A model that scores the next symbol: `LanguageModel`, `EncoderDecoder`."""

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        """The scores at further symbols of each row, [B,T,V], and the state after them."""


class Heard(NamedTuple):
    """What a model says after the last symbol of each row."""

    scores: Tensor  # [B,V] of the next symbol
    looks: tuple[Tensor, ...] = ()  # [B,S] where it looked for them, if it is watched

    def select(self, rows: Tensor) -> "Heard":
        """The chosen rows, in the order asked for."""
        return select_rows(self, rows)


def begins(rows: int, device: torch.device) -> Padded:
    """What a decoder reads first: BEGIN in every row."""
    return Padded.of(torch.full((rows, 1), BEGIN, device=device))


def positions_of(stack: StackConfig) -> int | None:
    """How many symbols a stack can read in one row; None where there is no limit."""
    return stack.max_length if stack.position == "learned" else None


def room(prompt: Padded, most: Tensor, limit: int | None) -> Tensor:
    """[B] how many symbols each row may say after its prompt: `most` [B], or as many as there are positions for.

    The last symbol that is said is not read. Raises DataError for a prompt that is too long by itself.
    """
    if limit is None:
        return most
    if (longest := int(prompt.lengths.max())) > limit:
        raise DataError(
            f"a prompt of {longest:,} symbols, with the one that begins it, and the model has {limit:,} positions",
            fix=f"give its last {limit - 1:,} symbols at most, or a model without learned positions",
        )
    return most.clamp(max=limit + 1 - prompt.lengths)


def read(model: SteppedRows, x: Padded, state: Any, looked: Looked | None = None) -> tuple[Heard, Any]:
    """What a model says after further symbols of each row, at least one of each, and the state after them."""
    heard: Heard | None = None
    for start in range(0, x.values.shape[1], BLOCK):
        block = x.cut(start, start + BLOCK)
        scores, state = model.step(block, state)
        looks = () if looked is None else (block.with_values(looked()).last(),)
        latest = Heard(scores.last(), looks)
        heard = latest if heard is None else merge_rows(block.lengths > 0, latest, heard)
    assert heard is not None, "a prompt has at least one symbol"
    return heard, state


def read_symbols(model: SteppedRows, symbols: Tensor, state: Any, looked: Looked | None = None) -> tuple[Heard, Any]:
    """The same after one more symbol of each row, [B]."""
    return read(model, Padded(symbols[:, None], torch.ones_like(symbols), full=True), state, looked)
