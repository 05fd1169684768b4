"""How a text was cut: pieces with their symbols, the characters and bytes they stand for, and what was left out.

    text   "Don't  stop"     piece  Don | ' | t | ␣␣stop       special symbols stand for nothing of the text,
    characters 0..3, 3..4 ...       UNKNOWN for what the vocabulary lacks, hatched pieces were cut off

Every other view names its rows by these pieces. Several pieces of one character (the bytes of an emoji) share its
place. Of byte-pair pieces the merges are told, in the order in which they happen.
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
from seqloom.text.subwords import BpeCutter
from seqloom.text.tokenizer import Tokenizer

SPACES = {" ": "␣", "\t": "⇥", "\n": "↵", "\r": "␍", "\u00a0": "⍽"}
NAMED = 12  # unknown pieces in a sentence
FIRST = 64  # pieces of a long text that are drawn
HEADS = ("number", "text", "piece", "symbol", "characters", "bytes", "", "merges")


class Piece(NamedTuple):
    """One symbol and what it stands for."""

    text: str  # of what was given, space made visible; the name of a special symbol
    piece: str  # as the vocabulary has it
    symbol: int
    start: int  # characters start..stop of what was given
    stop: int
    first_byte: int  # the same in bytes of UTF-8
    last_byte: int  # the first one behind it
    special: bool
    unknown: bool
    cut_off: bool  # the model never reads it
    merges: tuple[tuple[str, ...], ...] = ()  # of a byte-pair piece: its bytes, then what they are after each merge


@dataclass(frozen=True, kw_only=True)
class CuttingView(View):
    """The pieces of one text."""

    kind: ClassVar[str] = "cutting"
    given: str
    pieces: tuple[Piece, ...]
    tokeniser: str  # its kind
    vocabulary: int

    @property
    def read(self) -> tuple[Piece, ...]:
        """The pieces that the model reads."""
        return tuple(piece for piece in self.pieces if not piece.cut_off)

    def figures(self) -> tuple[Figure, ...]:
        if len(self.pieces) <= MEDIUM:
            return (self._strip(self.title, self.pieces),)
        sizes = np.array([piece.stop - piece.start for piece in self.pieces], dtype=float)
        curve = blocks_line(sizes, title=self.title, x_label="piece", y_label="characters that a piece stands for")
        return (curve, self._strip(f"The first {FIRST} pieces", self.pieces[:FIRST]))

    def _sentences(self) -> tuple[str, ...]:
        left_out = len(self.pieces) - len(self.read)
        size = f"{len(self.given):,} characters, {len(self.given.encode()):,} bytes, {len(self.pieces):,} pieces"
        kind = f"by {self.tokeniser} with {self.vocabulary:,} symbols"
        cut = (f"{left_out:,} pieces are cut off: the model reads the first {len(self.read):,}.",) if left_out else ()
        unknown = [f"“{piece.text}” ({number})" for number, piece in enumerate(self.pieces) if piece.unknown]
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        lacking = (f"Unknown to the vocabulary: {', '.join(unknown[:NAMED])}{more}.",) if unknown else ()
        return (f"{size} {kind}.", *cut, *lacking)

    def _blocks(self) -> Sequence[DocumentBlock]:
        """The strip, and below it a row for each piece, of a long text for the first of them."""
        few = self.pieces if len(self.pieces) <= MEDIUM else self.pieces[:FIRST]
        rows = []
        for number, piece in enumerate(few):
            characters, places = f"{piece.start}..{piece.stop}", f"{piece.first_byte}..{piece.last_byte}"
            marks = {"special": piece.special, "unknown": piece.unknown, "cut off": piece.cut_off}
            marked = ", ".join(name for name, is_so in marks.items() if is_so)
            merges = " → ".join(" + ".join(map(_seen, step)) for step in piece.merges)
            rows.append((str(number), piece.text, piece.piece, str(piece.symbol), characters, places, marked, merges))
        columns = [column for column in zip(HEADS, *rows, strict=True) if any(column[1:])]  # few pieces have marks
        heads, *shown = zip(*columns, strict=True)
        return [*super()._blocks(), TableBlock(heads, shown)]

    def _strip(self, title: str, pieces: Sequence[Piece]) -> Figure:
        gone = any(piece.cut_off for piece in pieces)
        return Strip(
            title=title,
            tokens=[piece.text for piece in pieces],
            values=[None if piece.cut_off else float(piece.stop - piece.start) for piece in pieces],
            value_label="characters that a piece stands for" + ("; without a value: cut off" if gone else ""),
        )


def cutting(subject: Subject, reading: Reading, *, side: str | None = None) -> CuttingView:
    """How the text of one side was cut."""
    chosen = reading.side(side)
    is_target = len(reading.sides) > 1 and chosen.stack == "decoder"
    tokenizer = subject.task.asked.target_tokenizer if is_target else subject.task.asked.tokenizer
    if tokenizer is None or any(token.symbol is None for token in chosen.tokens):
        raise ConfigError(
            f"the side '{chosen.name}' is no text: nothing of it was cut", fix="choose a model that reads text"
        )
    whole = None if is_target else reading.given  # what was given for the side
    if isinstance(reading.given, TextPair):
        whole = reading.given[reading.sides.index(chosen)] if len(reading.sides) > 1 else None
    given = whole if whole is None or isinstance(whole, str) else Words.join(list(whole)).text
    if given is None:  # what a model wrote has no text that was cut: its pieces are what there is
        given = tokenizer.decode([token.symbol for token in chosen.tokens if token.symbol is not None])
    every = (*chosen.tokens, *([] if whole is None else cut_off(subject, whole, chosen.tokens)))
    bytes_before = np.concatenate([[0], np.cumsum([len(letter.encode()) for letter in given])]).astype(int)
    return CuttingView(
        title="How the text was cut",
        given=given,
        pieces=tuple(
            _piece(tokenizer, token, bytes_before, cut_off=number >= len(chosen.tokens))
            for number, token in enumerate(every)
        ),
        tokeniser=tokenizer.config.kind(),
        vocabulary=tokenizer.vocab_size,
    )


def _piece(tokenizer: Tokenizer, token: Token, bytes_before: np.ndarray, *, cut_off: bool) -> Piece:
    assert token.symbol is not None, "the tokens of a text are symbols"
    start, stop = min(token.start, len(bytes_before) - 1), min(token.stop, len(bytes_before) - 1)
    cutter, plain = tokenizer.cutter, not token.is_special and token.symbol != UNKNOWN
    merges = cutter.history(token.symbol) if isinstance(cutter, BpeCutter) and plain else []
    return Piece(
        text=_seen(token.text),
        piece=_seen(tokenizer.piece(token.symbol)),
        symbol=token.symbol,
        start=start,
        stop=stop,
        first_byte=int(bytes_before[start]),
        last_byte=int(bytes_before[stop]),
        special=token.is_special,
        unknown=token.symbol == UNKNOWN,
        cut_off=cut_off,
        merges=tuple(tuple(step) for step in merges),
    )


def _seen(text: str) -> str:
    """The text with its space made visible.

    >>> _seen(" a\\tb")
    '␣a⇥b'
    """
    return "".join(SPACES.get(letter, letter) for letter in text)
