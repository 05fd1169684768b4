"""One text, of any length."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, TokensConfig
from seqloom.data.kinds.kind import Columns, InputKind
from seqloom.data.values import Read, Remarks, text_of
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import NAMES, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles

TEXTS = ("text", "sentence", "review", "question", "content", "comment", "message", "tweet", "utterance", "document")
SOURCES = ("source", "src", "input")
LONGEST = 200  # characters of a text that is shown


class TextInput(InputKind):
    """Column "input": its tokens. In a batch: Padded tokens [B,T]."""

    name = "text"
    wanted = "one text"
    usual = tuple((name,) for name in (*TEXTS, *SOURCES))
    reads_tokens = True
    is_text = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the text of a row."""
        (column,) = roles.input
        return lambda values: text_of(values[column], column)

    def matches(self, value: Any) -> bool:
        """A text."""
        return isinstance(value, str)

    def texts(self, value: Any) -> tuple[str, ...]:
        """The text."""
        return (value,)

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        """The tokens."""
        return {"input": fitted(tokenizer).encode(values)}

    def collate(self, columns: Columns) -> Any:
        """Padded tokens."""
        from seqloom.data.kinds import tensors

        return tensors.tokens(columns["input"])

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        """Vectors of tokens."""
        return TokensConfig(vocab_size=fitted(tokenizer).vocab_size)

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        """The text of the tokens."""
        return text_shown(fitted(tokenizer), columns["input"].row(row))


def fitted(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, which is there wherever tokens are read."""
    assert tokenizer is not None, "a schema with text has a tokeniser"
    return tokenizer


def text_shown(tokenizer: Tokenizer, symbols: Sequence[int] | np.ndarray) -> str:
    """The text of symbols in one line, cut short; what the vocabulary lacks, and borders of pairs, can be seen."""
    visible = (UNKNOWN, SEPARATOR)
    runs = groupby((int(symbol) for symbol in symbols), key=lambda symbol: symbol if symbol in visible else None)
    parts = [tokenizer.decode(list(run)) if mark is None else NAMES[mark] for mark, run in runs]
    return cut_short(" ".join(parts))


def cut_short(text: str, most: int = LONGEST) -> str:
    """The text in one line of so many characters at most.

    >>> cut_short("one\\ttwo three", 9)
    'one two…'
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
