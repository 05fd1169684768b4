"""Texts: one text, a pair that is classified together, or a triple for learning embeddings."""

from collections.abc import Sequence
from functools import reduce
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from seqloom.config.inputs import AnyInput, SpelledConfig, TokensConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.kinds.kind import Columns, InputKind, filled, tensor, tokens
from seqloom.data.values import Read, ReadMany, Remarks, text_of, texts_of
from seqloom.text.characters import letters_of
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import closed
from seqloom.text.special_tokens import NAMES, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles
    from seqloom.nn.types import Padded, Spelled


TEXTS = ("text", "sentence", "review", "question", "content", "comment", "message", "tweet", "utterance", "document")
SOURCES = ("source", "src", "input")
LONGEST = 200  # characters of a text that is shown
LETTERS = "letters"  # the column with the letters of each word


class TextInput(InputKind):
    """Columns "input": its tokens; LETTERS: the letters of each, if the tokenizer keeps them.

    In a batch: Padded tokens [B,T]; with letters Spelled, words [B,T] and letters [B,T,L].
    """

    name = "text"
    noun = "one text"
    column_names = tuple((name,) for name in (*TEXTS, *SOURCES))
    reads_tokens = True
    is_text = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the text of a row."""
        (column,) = roles.input
        return lambda values: text_of(values[column], column)

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        (column,) = roles.input
        return self.reader(roles, remarks), lambda columns: texts_of(list(columns[column]))

    def matches(self, value: Any) -> bool:
        return isinstance(value, str)

    def texts(self, value: Any) -> tuple[str, ...]:
        return (value,)

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        found = fitted(tokenizer).encode(values)
        if not keeps_letters(fitted(tokenizer).config):
            return {"input": found}
        words = chain.from_iterable(fitted(tokenizer).split(values))
        return {"input": found, LETTERS: Ragged(letters_of(list(words)), found.starts)}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        short = super().cut(columns, most, framed=framed)
        return short | ({LETTERS: columns[LETTERS].shorten(short["input"].lengths)} if LETTERS in columns else {})

    def collate(self, columns: Columns) -> Any:
        read = tokens(columns["input"])
        return spelled(read, columns[LETTERS]) if LETTERS in columns else read

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        """Vectors of tokens, or of words and their letters."""
        if keeps_letters(fitted(tokenizer).config):
            return SpelledConfig(vocab_size=fitted(tokenizer).vocab_size)
        return TokensConfig(vocab_size=fitted(tokenizer).vocab_size)

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        return text_shown(fitted(tokenizer), columns["input"].row(row))


def fitted(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, which must be there."""
    assert tokenizer is not None, "a schema with text has a tokenizer"
    return tokenizer


def keeps_letters(tokenizer: object) -> bool:
    """Whether a tokenizer's configuration keeps the letters of words."""
    return isinstance(tokenizer, WordsConfig) and tokenizer.keep_characters


def spelled(words: "Padded", letters: Ragged) -> "Spelled":
    """Words and their letters, up to the longest word."""
    from seqloom.nn.types import Spelled

    used = np.flatnonzero(letters.values.any(axis=0))
    longest = int(used[-1]) + 1 if len(used) else 1
    return Spelled(words, tensor(filled(Ragged(letters.values[:, :longest], letters.starts), np.uint8)))


def text_shown(tokenizer: Tokenizer, tokens: Sequence[int] | np.ndarray) -> str:
    """The text of tokens in one short line; unknown tokens and separators are shown by their names."""
    visible = (UNKNOWN, SEPARATOR)
    runs = groupby((int(token) for token in tokens), key=lambda token: token if token in visible else None)
    parts = [tokenizer.decode(list(run)) if mark is None else NAMES[mark] for mark, run in runs]
    return cut_short(" ".join(parts))


def cut_short(text: str, most: int = LONGEST) -> str:
    """The text in one line of at most `most` characters.

    >>> cut_short("one\\ttwo three", 9)
    'one two…'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


class TextPair(NamedTuple):
    """Two texts with one target: premise and hypothesis, two questions."""

    first: str
    second: str


class PairInput(TextInput):
    """Column "input": the tokens of both, SEPARATOR between. In a batch: Padded tokens [B,T]."""

    name = "pair"
    noun = "two texts"
    column_names: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("premise", "hypothesis"),
        ("sentence1", "sentence2"),
        ("sentence_1", "sentence_2"),
        ("sentence_a", "sentence_b"),
        ("text1", "text2"),
        ("text_a", "text_b"),
        ("question1", "question2"),
    )
    num_columns = 2
    is_text = False
    value: ClassVar[Any] = TextPair

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the texts of a row."""
        columns = roles.input
        return lambda values: self.value(*(text_of(values[column], column) for column in columns))

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        def read(columns: Sequence[Sequence[Any]]) -> list[Any] | None:
            sides = [texts_of(list(columns[column])) for column in roles.input]
            return None if None in sides else list(map(self.value, *sides))  # type: ignore[arg-type]

        return self.reader(roles, remarks), read

    def matches(self, value: Any) -> bool:
        """A tuple of two texts."""
        return (
            isinstance(value, tuple)
            and len(value) == self.num_columns == 2
            and all(isinstance(one, str) for one in value)
        )

    def cells(self, value: Any) -> tuple[Any, ...]:
        """The texts; with another number of texts, the first cell is no text, so that the row is rejected."""
        if isinstance(value, list | tuple) and len(value) == self.num_columns:
            return tuple(value)
        return (value if value is None else [value], *[""] * (self.num_columns - 1))

    def texts(self, value: Any) -> tuple[str, ...]:
        return tuple(value)

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        """The tokens of all texts in one row."""
        sides = [fitted(tokenizer).encode([value[side] for value in values]) for side in range(self.num_columns)]
        return {"input": reduce(lambda first, second: paired(first, second, SEPARATOR), sides)}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        """The longer text is truncated first."""
        short = cut_pairs(columns["input"], most)
        return {**columns, "input": closed(short) if framed else short}


def paired(first: Ragged, second: Ragged, between: int) -> Ragged:
    """Join the rows of both with a token between.

    >>> paired(Ragged.of([[1], [2, 3]], np.int32), Ragged.of([[4, 5], []], np.int32), 9).values.tolist()
    [1, 9, 4, 5, 2, 3, 9]
    """
    starts = first.starts + second.starts + np.arange(first.rows + 1)
    values = np.full(starts[-1], between, first.values.dtype)
    of_row = np.repeat(np.arange(first.rows), first.lengths)
    values[np.arange(len(first.values)) + (starts[:-1] - first.starts[:-1])[of_row]] = first.values
    of_row = np.repeat(np.arange(second.rows), second.lengths)
    values[np.arange(len(second.values)) + (starts[1:] - second.starts[1:])[of_row]] = second.values
    return Ragged(values, starts)


def cut_pairs(pairs: Ragged, most: int) -> Ragged:
    """Truncate rows to `most` tokens: the longer text first, then both; SEPARATOR stays.

    >>> pair = paired(Ragged.of([[7, 7, 7, 7]], np.int32), Ragged.of([[8, 8]], np.int32), SEPARATOR)
    >>> cut_pairs(pair, 5).values.tolist() == [7, 7, SEPARATOR, 8, 8]
    True
    """
    between = np.flatnonzero(pairs.values == SEPARATOR)  # exactly one per row
    first, second = between - pairs.starts[:-1], pairs.starts[1:] - between - 1
    room = most - 1
    kept_first = np.minimum(first, np.maximum(room - second, room - room // 2))
    kept_second = np.minimum(second, room - kept_first)
    offset = np.arange(len(pairs.values)) - np.repeat(between, pairs.lengths)  # negative in the first text
    begins = np.repeat(first, pairs.lengths) + offset < np.repeat(kept_first, pairs.lengths)
    kept = np.where(offset < 0, begins, offset <= np.repeat(kept_second, pairs.lengths))
    starts = np.concatenate([[0], np.cumsum(kept_first + 1 + kept_second)])
    return Ragged(pairs.values[kept], starts)


class TextTriple(NamedTuple):
    """An anchor text, a text that belongs to it, and one that does not."""

    anchor: str
    positive: str
    negative: str


class TripleInput(PairInput):
    """Column "input": the tokens of all three, SEPARATORs between. In a batch: Padded tokens [B,T]."""

    name = "triple"
    noun = "three texts"
    column_names = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
    num_columns = 3
    value = TextTriple
