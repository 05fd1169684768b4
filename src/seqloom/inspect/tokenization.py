"""How the tokenizer split a text: each token with its id, its characters and its bytes.

    text   "Don't  stop"     token  Don | ' | t | ␣␣stop       special tokens cover no characters,
    characters 0..3, 3..4 ...       UNKNOWN replaces what the vocabulary lacks, truncated tokens are hatched

Every other view labels its rows with these tokens. Several tokens of one character (the bytes of an emoji) share its
position. For byte-pair encoding the view lists the merges, in the order in which they happen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.errors import ConfigError
from seqloom.inspect.readings import cut_off
from seqloom.inspect.subject import Reading, Subject, Token
from seqloom.inspect.view import MEDIUM, View, blocks_line
from seqloom.report.document import DocumentBlock, TableBlock
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.strip import Strip
from seqloom.text.special_tokens import UNKNOWN
from seqloom.text.subwords import BpeSegmenter
from seqloom.text.tokenizer import Tokenizer

SPACES = {" ": "␣", "\t": "⇥", "\n": "↵", "\r": "␍", "\u00a0": "⍽"}
NAMED = 12  # unknown tokens in a sentence
FIRST = 64  # tokens of a long text that are drawn
HEADS = ("number", "text", "token", "id", "characters", "bytes", "", "merges")


class TokenSpan(NamedTuple):
    """One token and the part of the text that it covers."""

    text: str  # as in the input, with visible spaces; the name of a special token
    token: str  # as stored in the vocabulary
    id: int
    start: int  # characters start..stop of the input
    stop: int
    first_byte: int  # the same in bytes of UTF-8
    last_byte: int  # exclusive
    special: bool
    unknown: bool
    truncated: bool  # the model never reads it
    merges: tuple[tuple[str, ...], ...] = ()  # of byte-pair encoding: the bytes, then the parts after each merge


@dataclass(frozen=True, kw_only=True)
class TokenizationView(View):
    """The tokens of one text."""

    kind: ClassVar[str] = "tokenization"
    input: str
    tokens: tuple[TokenSpan, ...]
    tokenizer: str  # its kind: bpe, words, ...
    vocab_size: int

    @property
    def read_tokens(self) -> tuple[TokenSpan, ...]:
        """The tokens that the model reads: all that were not truncated."""
        return tuple(token for token in self.tokens if not token.truncated)

    def figures(self) -> tuple[Figure, ...]:
        if len(self.tokens) <= MEDIUM:
            return (self._strip(self.title, self.tokens),)
        sizes = np.array([token.stop - token.start for token in self.tokens], dtype=float)
        curve = blocks_line(sizes, title=self.title, x_label="token", y_label="characters per token")
        return (curve, self._strip(f"The first {FIRST} tokens", self.tokens[:FIRST]))

    def _sentences(self) -> tuple[str, ...]:
        left_out = len(self.tokens) - len(self.read_tokens)
        size = f"{len(self.input):,} characters, {len(self.input.encode()):,} bytes, {len(self.tokens):,} tokens"
        kind = f"({self.tokenizer} tokenizer, vocabulary of {self.vocab_size:,})"
        read = f"{left_out:,} tokens are truncated: the model reads the first {len(self.read_tokens):,}."
        unknown = [f"“{token.text}” ({number})" for number, token in enumerate(self.tokens) if token.unknown]
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        lacking = (f"Not in the vocabulary: {', '.join(unknown[:NAMED])}{more}.",) if unknown else ()
        return (f"{size} {kind}.", *([read] if left_out else []), *lacking)

    def _blocks(self) -> Sequence[DocumentBlock]:
        """The strip, and below it a table with a row for each token; of a long text the first ones."""
        few = self.tokens if len(self.tokens) <= MEDIUM else self.tokens[:FIRST]
        rows = []
        for number, token in enumerate(few):
            characters, places = f"{token.start}..{token.stop}", f"{token.first_byte}..{token.last_byte}"
            marks = {"special": token.special, "unknown": token.unknown, "truncated": token.truncated}
            marked = ", ".join(name for name, is_so in marks.items() if is_so)
            merges = " → ".join(" + ".join(map(_visible, step)) for step in token.merges)
            rows.append((str(number), token.text, token.token, str(token.id), characters, places, marked, merges))
        columns = [column for column in zip(HEADS, *rows, strict=True) if any(column[1:])]  # few tokens have marks
        heads, *shown = zip(*columns, strict=True)
        return [*super()._blocks(), TableBlock(heads, shown)]

    def _strip(self, title: str, tokens: Sequence[TokenSpan]) -> Figure:
        truncated = any(token.truncated for token in tokens)
        return Strip(
            title=title,
            tokens=[token.text for token in tokens],
            values=[None if token.truncated else float(token.stop - token.start) for token in tokens],
            value_label="characters per token" + ("; no value: truncated" if truncated else ""),
        )


def tokenization(subject: Subject, reading: Reading, *, side: str | None = None) -> TokenizationView:
    """How the tokenizer split the text of one side, the first one if none is named."""
    chosen = reading.side(side)
    is_target = len(reading.sides) > 1 and chosen.stack == "decoder"
    tokenizer = subject.task.input_spec.target_tokenizer if is_target else subject.task.input_spec.tokenizer
    if tokenizer is None or any(token.id is None for token in chosen.tokens):
        raise ConfigError(
            f"the side '{chosen.name}' is not a text: it has no tokens", fix="choose a model that reads text"
        )
    whole = None if is_target else reading.given  # the input of the side
    if isinstance(reading.given, TextPair):
        whole = reading.given[reading.sides.index(chosen)] if len(reading.sides) > 1 else None
    given = whole if whole is None or isinstance(whole, str) else Words.join(list(whole)).text
    if given is None:  # the model generated it: the tokens are decoded
        given = tokenizer.decode([token.id for token in chosen.tokens if token.id is not None])
    every = (*chosen.tokens, *([] if whole is None else cut_off(subject, whole, chosen.tokens)))
    bytes_before = np.concatenate([[0], np.cumsum([len(letter.encode()) for letter in given])]).astype(int)
    return TokenizationView(
        title="How the text was tokenized",
        input=given,
        tokens=tuple(
            _span(tokenizer, token, bytes_before, truncated=number >= len(chosen.tokens))
            for number, token in enumerate(every)
        ),
        tokenizer=tokenizer.config.kind(),
        vocab_size=tokenizer.vocab_size,
    )


def _span(tokenizer: Tokenizer, token: Token, bytes_before: np.ndarray, *, truncated: bool) -> TokenSpan:
    assert token.id is not None, "tokens of a text have ids"
    start, stop = min(token.start, len(bytes_before) - 1), min(token.stop, len(bytes_before) - 1)
    segmenter, plain = tokenizer.segmenter, not token.is_special and token.id != UNKNOWN
    merges = segmenter.history(token.id) if isinstance(segmenter, BpeSegmenter) and plain else []
    return TokenSpan(
        text=_visible(token.text),
        token=_visible(tokenizer.piece(token.id)),
        id=token.id,
        start=start,
        stop=stop,
        first_byte=int(bytes_before[start]),
        last_byte=int(bytes_before[stop]),
        special=token.is_special,
        unknown=token.id == UNKNOWN,
        truncated=truncated,
        merges=tuple(tuple(step) for step in merges),
    )


def _visible(text: str) -> str:
    """The text with visible spaces.

    >>> _visible(" a\\tb")
    '␣a⇥b'
    """
    return "".join(SPACES.get(letter, letter) for letter in text)
