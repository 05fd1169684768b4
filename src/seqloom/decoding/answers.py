"""Drafts (outputs in progress), stop strings, scores and penalties, and the interface of models.

The text of an output is what it adds to the text of its prompt, so it keeps the space before its first word. It depends
only on the `context` of the prompt: its last tokens, and quotes that it opens. A stop
string may start in one token and end in another. It is searched in the text of the last tokens, and the whole text is
decoded only if it is found there. A token may change how the previous one is written, but no earlier one: a hyphen
joins two words when the second is known.

Penalties:

repetition    the score of a token that was generated before is divided by r if it is positive, and multiplied by r if
              it is negative                                                                Keskar et al. 2019
length        log P(y) / ((5 + |y|) / 6)^alpha, where |y| counts END                        Wu et al. 2016
coverage      + beta sum_i log(min(sum_j a_ij, 1)) for each element i of the source         Wu et al. 2016

The interface of models:

A model returns scores of the next token and a state. The state has the batch on axis 0, so rows can be dropped,
repeated or reordered. LSTM and Transformer, language model and encoder-decoder are all the same here.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.config.stacks import StackConfig
from seqloom.decoding.pauses import pause
from seqloom.errors import ConfigError, DataError
from seqloom.nn.types import Padded, merge_rows, select_rows
from seqloom.text.special_tokens import BEGIN, COUNT, END

Decode = Callable[[list[int]], str]
Context = Callable[[Sequence[int]], list[int]]  # a few of these tokens: what follows is written as after all
FinishReason = Literal["end", "stop", "length"]

WINDOW = 48  # tokens of a growing text that are decoded again and again, before the first ones are settled
OVERLAP = 16  # tokens of them that are kept
BYTES = 4  # most tokens of a character, with a byte tokenizer
# How a tokenizer writes bytes at the end of a text that are not a complete character yet.
HALF = re.compile(r"(?:\\x[0-9a-f]{2}){1,3}\Z")


class GeneratedText(NamedTuple):
    """One output: its tokens without END and stop strings, its score, and its finish reason."""

    tokens: list[int]
    score: float  # log-probability of the tokens and END; for a beam with its penalties
    finish_reason: FinishReason
    text: str = ""  # what follows the prompt, if there is a tokenizer


class Stops:
    """The stop strings."""

    def __init__(self, stops: Sequence[str], decode: Decode | None, context: Context = list) -> None:
        if stops and decode is None:
            raise ConfigError(
                "stop strings need a tokenizer, but there is none", fix="give `decode`, or leave out `stop`"
            )
        self.stops, self.decode, self.context = tuple(stops), decode, context
        self.reach = BYTES * (max(map(len, stops), default=0) + 1)  # tokens that a stop string may cover
        self.dense = [stop.replace(" ", "") for stop in stops]

    def text(self, before: Sequence[int], tokens: Sequence[int]) -> str:
        """The text that tokens add to the tokens before them; "" without a tokenizer."""
        if self.decode is None:
            return ""
        prompt, whole = self.decode(list(before)), self.decode([*before, *tokens])
        # If a token changes the end of the prompt, which is already fixed, it is decoded separately.
        return whole[len(prompt) :] if whole.startswith(prompt) else self.decode(list(tokens))

    def is_one_text(self, before: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether tokens are written as one text with those before them, and not separately."""
        return self.decode is not None and self.decode([*before, *tokens]).startswith(self.decode(list(before)))

    def reached(self, before: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether the text contains a stop string."""
        if not self.stops or self.decode is None:
            return False
        tail = self.decode([*before[-self.reach :], *tokens][-self.reach :]).replace(" ", "")  # spaces may differ
        return any(stop in tail for stop in self.dense) and self.place(self.text(before, tokens)) is not None

    def place(self, text: str) -> int | None:
        """Where the first stop string starts; None if there is none."""
        return min((text.find(stop) for stop in self.stops if stop in text), default=None)

    def settled(self, text: str, earlier: str) -> int:
        """How many characters of an unfinished text can be shown: no half character, no start of a stop string.

        `earlier` is the text without its last token; where they differ, the text may still change.

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
    """An output in progress, after the tokens of its prompt."""

    def __init__(self, before: list[int], most: int, stops: Stops) -> None:
        self.before, self.most, self.stops = before, most, stops
        self.context = stops.context(before)  # what is needed of the prompt to write what follows
        self.tokens: list[int] = []
        self.score = 0.0
        self.finish_reason: FinishReason | None = None if most > 0 else "length"

    def add(self, token: int, log: float) -> None:
        """Add a token with its log-probability."""
        self.score += log
        if token != END:
            self.tokens.append(token)
        self.finish_reason = finish_reason(token, self.context, self.tokens, self.most, self.stops)

    def written(self) -> GeneratedText:
        """The output so far."""
        return written(self.context, self.tokens, self.score, self.finish_reason or "length", self.stops)


class GrowingText:
    """The text of a draft, in parts that never change: no half character, no possible start of a stop string.

    Only the text of the last tokens is decoded again for each token.
    """

    def __init__(self) -> None:
        self.shown = 0
        self.tail = ""  # the text since `kept`
        self.kept, self.start = 0, 0  # characters and tokens before the last ones
        self.context: list[int] | None = None  # of the last ones; None: they are all there are
        self.beginning = ""  # the text of the context

    def further(self, draft: Draft) -> str:
        """The text that is settled since the last call; call it after each token."""
        if draft.finish_reason:
            return draft.written().text[self.shown :]
        earlier, self.tail = self.tail, self._tail(draft)
        start, settled = self.shown, self.kept + draft.stops.settled(self.tail, earlier)
        self.shown = max(start, settled)
        further = self.tail[start - self.kept : settled - self.kept]
        if len(draft.tokens) - self.start > WINDOW:
            self._shorten(draft)
        return further

    def _tail(self, draft: Draft) -> str:
        """The text of the last tokens."""
        stops, tokens = draft.stops, draft.tokens[self.start :]
        if self.context is None or stops.decode is None:
            return stops.text(draft.context, tokens)
        return stops.decode([*self.context, *tokens])[len(self.beginning) :]

    def _shorten(self, draft: Draft) -> None:
        """Begin the last tokens later, where all before is shown."""
        decode, start = draft.stops.decode, len(draft.tokens) - OVERLAP
        if decode is None:
            return
        before = self.context
        if before is None:
            before = draft.context if draft.stops.is_one_text(draft.context, draft.tokens) else []
        context = draft.stops.context([*before, *draft.tokens[self.start : start]])
        beginning, whole = decode(context), decode([*context, *draft.tokens[start:]])
        rest = whole[len(beginning) :]
        place = len(self.tail) - len(rest)
        if self.kept + place <= self.shown and whole.startswith(beginning) and self.tail.endswith(rest):
            self.kept, self.tail = self.kept + place, rest
            self.context, self.start, self.beginning = context, start, beginning


def finish_reason(token: int, before: list[int], tokens: list[int], most: int, stops: Stops) -> FinishReason | None:
    """The finish reason of an output with this last token; None if it is not finished."""
    if token == END:
        return "end"
    if stops.reached(before, tokens):
        return "stop"
    return "length" if len(tokens) >= most else None


def written(before: list[int], tokens: list[int], score: float, why: FinishReason, stops: Stops) -> GeneratedText:
    """The output of these tokens, without a stop string and everything after it."""
    text = stops.text(before, tokens)
    place = stops.place(text) if why == "stop" else None
    if place is None:
        return GeneratedText(tokens, score, why, text)
    kept = len(tokens)
    while kept and len(stops.text(before, tokens[:kept])) > place:
        kept -= 1
    return GeneratedText(tokens[:kept], score, why, text[:place])


LEAST_ATTENTION = 1e-9  # avoids the logarithm of zero


def log_probabilities(
    scores: Tensor, generated: Tensor | None, repetition: float, never: Sequence[int] | Tensor
) -> Tensor:
    """[B,V] the log-probability of each token; minus infinity for tokens in `never`.

    `generated` [B,V] is true for tokens that a row has generated; None without a repetition penalty. A loop gives
    `never` as a tensor on the device, so that it does not wait for a copy at each token.
    """
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if generated is not None:
        scores = torch.where(generated, torch.where(scores > 0, scores / repetition, scores * repetition), scores)
    logs = scores.log_softmax(dim=-1)
    return logs.index_fill_(1, torch.as_tensor(never, dtype=torch.int64, device=logs.device), -torch.inf)


def length_penalty(length: int, alpha: float) -> float:
    """The divisor of the log-probability of `length` tokens.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0), length_penalty(50, 0.0)
    (1.0, 2.0, 1.0)
    """
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(covered: Tensor, beta: float) -> Tensor:
    """[B] the penalty for source elements with little attention; `covered` [B,S] is the summed attention."""
    return beta * covered.clamp(LEAST_ATTENTION, 1.0).log().sum(dim=-1)


NEVER = tuple(token for token in range(COUNT) if token != END)  # special tokens that no text contains
BLOCK = 128  # prompt tokens read at a time: the scores of all would not fit in memory

AttentionOf = Callable[[], Tensor]  # [B,T,S] the attention of the latest step; 1 in the padding of the source
WatchAttention = Callable[[], AbstractContextManager[AttentionOf]]  # inside the `with`, attention is recorded


class SteppedRows(Protocol):
    """A model that scores the next token: `LanguageModel`, `EncoderDecoder`."""

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        """The scores at further tokens of each row, [B,T,V], and the state after them."""


class StepOutput(NamedTuple):
    """The output of a model after the last token of each row."""

    scores: Tensor  # [B,V] of the next token
    attention: tuple[Tensor, ...] = ()  # [B,S] its attention to the source, if it is recorded

    def select(self, rows: Tensor) -> "StepOutput":
        """The given rows, in this order."""
        return select_rows(self, rows)


def begins(rows: int, device: torch.device) -> Padded:
    """The first input of a decoder: BEGIN in every row."""
    return Padded.of(torch.full((rows, 1), BEGIN, device=device))


def positions_of(stack: StackConfig) -> int | None:
    """The most tokens of a row that a stack can read; None: no limit."""
    return stack.max_length if stack.position == "learned" else None


def room(prompt: Padded, most: Tensor, limit: int | None) -> Tensor:
    """[B] how many tokens each row may generate: `most` [B], or as many as there are positions for.

    The last generated token is not read. Raises DataError for a prompt that is too long.
    """
    if limit is None:
        return most
    if (longest := int(prompt.lengths.max())) > limit:
        raise DataError(
            f"a prompt has {longest:,} tokens (with BEGIN), but the model has only {limit:,} positions",
            fix=f"give at most its last {limit - 1:,} tokens, or choose a model without learned positions",
        )
    return most.clamp(max=limit + 1 - prompt.lengths)


def read(model: SteppedRows, x: Padded, state: Any, attention_of: AttentionOf | None = None) -> tuple[StepOutput, Any]:
    """The output of a model after further tokens of each row, at least one each, and the new state."""
    (last,) = deque(read_in_blocks(model, x, state, attention_of), maxlen=1)  # a prompt has at least one token
    return last


def read_in_blocks(
    model: SteppedRows, x: Padded, state: Any, attention_of: AttentionOf | None = None
) -> Iterator[tuple[StepOutput, Any]]:
    """Yield the same after each block of tokens; the last is that of the whole."""
    output: StepOutput | None = None
    for start in range(0, x.values.shape[1], BLOCK):
        block = x.cut(start, start + BLOCK)
        pause()
        scores, state = model.step(block, state)
        attention = () if attention_of is None else (block.with_values(attention_of()).last(),)
        latest = StepOutput(scores.last(), attention)
        output = latest if output is None else merge_rows(block.lengths > 0, latest, output)
        yield output, state


def read_tokens(
    model: SteppedRows, tokens: Tensor, state: Any, attention_of: AttentionOf | None = None
) -> tuple[StepOutput, Any]:
    """The same after one more token of each row, [B]."""
    return read(model, Padded(tokens[:, None], torch.ones_like(tokens), full=True), state, attention_of)
