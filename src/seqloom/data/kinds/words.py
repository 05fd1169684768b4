"""A text that is already split into words, as a tagger needs it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.tokenizers import AnyTokenizer
from seqloom.data.kinds.kind import Columns, InputKind, tokens
from seqloom.data.kinds.text import LETTERS, TEXTS, TextInput, cut_short, fitted, keeps_letters, spelled, text_shown
from seqloom.data.problems import EMPTY_FIX
from seqloom.data.values import BadValue, Content, Read, ReadMany, Remarks, kind_name, shown
from seqloom.text.characters import letters_of
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import closed
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.word_splitter import WordSplitter

if TYPE_CHECKING:
    from seqloom.data.roles import Roles


class Words(NamedTuple):
    """A text and the spans of its words: word i is text[start:stop]. Tags belong to words, not to subwords."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def join(cls, words: Sequence[str], spaces: Sequence[bool] | None = None) -> "Words":
        """Join words into a text, with spaces between them, or only where `spaces` is true.

        >>> Words.join(["No", "way", "!"], [True, False, False])
        Words(text='No way!', spans=((0, 2), (3, 6), (6, 7)))
        """
        pieces, spans, at = [], [], 0
        for number, word in enumerate(words):
            spans.append((at, at + len(word)))
            gap = " " if number + 1 < len(words) and (spaces is None or spaces[number]) else ""
            pieces.append(word + gap)
            at += len(word) + len(gap)
        return cls("".join(pieces), tuple(spans))

    @classmethod
    def cut(cls, text: str) -> "Words":
        """Split a text at its spaces.

        >>> Words.cut(" No  way !").spans
        ((1, 3), (5, 8), (9, 10))
        """
        return cls(text, tuple(found.span() for found in re.finditer("[^ ]+", text)))

    def words(self) -> list[str]:
        return [self.text[start:stop] for start, stop in self.spans]


class WordsInput(TextInput):
    """Columns "input": the subwords of all words; "firsts": the first subword of each; LETTERS: the letters of each.

    In a batch: Subwords, pieces [B,T] and firsts [B,W]; with letters Spelled, words [B,T] and letters [B,T,L].
    """

    name = "words"
    noun = "words"
    column_names = (("tokens",), ("words",))
    is_text = False
    in_words = True
    has_steps = True

    def readable(self) -> tuple[tuple[str, ...], ...]:
        """Also a text, which is split at its spaces."""
        return (*self.column_names, *((name,) for name in TEXTS))

    def holds(self, name: str, content: Content) -> bool:
        return content == "texts"

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the words of a row: a list, or a cell with spaces between them."""
        (column,) = roles.input

        def read(values: tuple[Any, ...]) -> Words:
            words = values[column]
            whole = self.split(words) if isinstance(words, str) else None
            if whole is not None:
                words = whole.words()
            if not isinstance(words, list | tuple):
                raise BadValue(column, "type.tokens", f"expected a list of words, found {kind_name(words)}")
            if not words:
                raise BadValue(column, "row.empty_text", "there are no words", EMPTY_FIX)
            for word in words:
                if type(word) is not str or not word:
                    raise BadValue(column, "type.tokens", f"expected a word, found {shown(word)}")
            if roles.spaces is not None:
                return Words.join(words, _spaces(values[roles.spaces], words, roles.spaces))
            return whole or Words.join(words)

        return read

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        return InputKind.readers(self, roles, remarks)

    def line(self, text: str) -> Any:
        """The words of a JSON list, alone or as the only value of an object; any other line is a text.

        >>> WordsInput().line('["No", "way!"]'), WordsInput().line('{"tokens": ["Hi"]}'), WordsInput().line("[1] No")
        (['No', 'way!'], ['Hi'], '[1] No')
        """
        try:
            found = msgspec.json.decode(text) if text.lstrip()[:1] in ("[", "{") else text
        except (msgspec.DecodeError, RecursionError):
            return text
        if isinstance(found, dict) and len(found) == 1:
            (found,) = found.values()
        return found if self.matches(found) else text

    def split(self, text: str) -> Words:
        """The words of a cell, which are separated by spaces."""
        return Words.cut(text)

    def matches(self, value: Any) -> bool:
        """A list of texts, or a tuple of texts that is not a pair."""
        several = isinstance(value, list) or (isinstance(value, tuple) and len(value) != 2)
        return several and bool(value) and all(isinstance(one, str) for one in value)

    def plain(self, value: Any) -> Any:
        return value.words()

    def typed(self, texts: list[str]) -> Any:
        return " ".join(texts).split()

    def texts(self, value: Any) -> tuple[str, ...]:
        """The text of the words."""
        return (value.text,)

    def steps(self, value: Any) -> int:
        return len(value.spans)

    def fitting_texts(self, value: Any, tokenizer: AnyTokenizer) -> tuple[str, ...]:
        """The words, separated by spaces, if each word is one token; else the text."""
        return (" ".join(value.words()),) if keeps_letters(tokenizer) else (value.text,)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return super().measure(values) | {"words per input": np.array(list(map(self.steps, values)), np.int32)}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        """The subwords, and the first subword of each word."""
        sentences, tokenizer = [value.words() for value in values], fitted(tokenizer)
        pieces, firsts = tokenizer.encode_words(sentences)
        if not keeps_letters(tokenizer.config):
            return {"input": pieces, "firsts": firsts}
        letters = Ragged(letters_of([word for words in sentences for word in words]), firsts.starts)
        return {**whole_words(pieces, firsts), LETTERS: letters}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        cut_by = cut_framed_words if framed else cut_words
        pieces, firsts = cut_by(columns["input"], columns["firsts"], most)
        short = {**columns, "input": pieces, "firsts": firsts}
        return short | ({LETTERS: columns[LETTERS].shorten(firsts.lengths)} if LETTERS in columns else {})

    def collate(self, columns: Columns) -> Any:
        """Subwords and the first subword of each word; or words and their letters, up to the longest word."""
        from seqloom.nn.types import Subwords

        pieces = tokens(columns["input"])
        if LETTERS not in columns:
            return Subwords(pieces, tokens(columns["firsts"]))
        return spelled(pieces, columns[LETTERS])

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        words = np.split(columns["input"].row(row), columns["firsts"].row(row)[1:])
        return cut_short(" ".join(text_shown(fitted(tokenizer), word) for word in words))


@dataclass(frozen=True, repr=False)
class RawWords(WordsInput):
    """The same for prediction: a raw text is split into words as the training data was."""

    splitter: WordSplitter = field(compare=False)

    def split(self, text: str) -> Words:
        return Words(text, tuple(self.splitter.spans(text)))

    def typed(self, texts: list[str]) -> Any:
        return self.split(" ".join(texts)).words()

    def in_columns(self) -> InputKind:
        """The cells of such a table are split into words already."""
        return WordsInput()


def _spaces(value: Any, words: Sequence[str], column: int) -> Sequence[bool]:
    """Whether a space follows each word."""
    if not isinstance(value, list | tuple) or len(value) != len(words) or not {bool}.issuperset(map(type, value)):
        text = f"expected true or false for each of {len(words)} words, found {shown(value)}"
        raise BadValue(column, "type.tokens", text, "rename the column 'spaces' if it means something else")
    return value


def cut_words(pieces: Ragged, firsts: Ragged, most: int) -> tuple[Ragged, Ragged]:
    """Truncate rows to `most` subwords between words, or inside the first word if it is too long.

    >>> pieces, firsts = Ragged.of([[6, 7, 8, 9]], np.int32), Ragged.of([[0, 2]], np.int32)
    >>> [column.values.tolist() for column in cut_words(pieces, firsts, 3)]
    [[6, 7], [0]]
    """
    of_row = np.repeat(np.arange(firsts.rows), firsts.lengths)
    last = np.arange(len(firsts.values)) == firsts.starts[1:][of_row] - 1
    ends = np.where(last, pieces.lengths[of_row], np.roll(firsts.values, -1))
    words = np.maximum(np.bincount(of_row[ends <= most], minlength=firsts.rows), np.minimum(firsts.lengths, 1))
    kept = np.zeros(firsts.rows, np.int64)
    some = words > 0
    kept[some] = np.minimum(ends[firsts.starts[:-1][some] + words[some] - 1], most)
    return pieces.shorten(kept), firsts.shorten(words)


def cut_framed_words(pieces: Ragged, firsts: Ragged, most: int) -> tuple[Ragged, Ragged]:
    """The same for rows between BEGIN and END, which are kept.

    >>> pieces, firsts = Ragged.of([[2, 6, 7, 8, 3]], np.int32), Ragged.of([[1, 2]], np.int32)
    >>> [column.values.tolist() for column in cut_framed_words(pieces, firsts, 4)]
    [[2, 6, 3], [1]]
    """
    inner, kept = cut_words(pieces.shorten(pieces.lengths - 1), firsts, most - 1)
    return closed(pieces.shorten(np.maximum(inner.lengths, 1) + 1)), kept


def whole_words(pieces: Ragged, firsts: Ragged) -> dict[str, Ragged]:
    """The columns of words as one token each: the first token of a word that has several.

    >>> columns = whole_words(Ragged.of([[6, 7, 8], [9]], np.int32), Ragged.of([[0, 2], [0]], np.int32))
    >>> columns["input"].values.tolist(), columns["firsts"].values.tolist()
    ([6, 8, 9], [0, 1, 0])
    """
    places = np.repeat(pieces.starts[:-1], firsts.lengths) + firsts.values
    counted = np.arange(len(places)) - np.repeat(firsts.starts[:-1], firsts.lengths)
    tokens = Ragged(pieces.values[places], firsts.starts)
    return {"input": tokens, "firsts": Ragged(counted.astype(np.int32), firsts.starts)}
