"""Examples in one line of text, for samples, reports and the terminal."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from seqloom.data.preparing import Prepared
from seqloom.tasks.contract import Meaning
from seqloom.text.symbols import NAMES, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

LONGEST = 200  # characters
SHOWN_STEPS = 4  # vectors


def input_shown(meaning: Meaning, prepared: Prepared, row: int) -> str:
    """The input of a row of prepared data in one line, as the model reads it."""
    column = prepared.columns["input"]
    if meaning.schema.input == "picture":
        return " x ".join(map(str, (int(column.lengths[row]), *column.values.shape[1:])))
    values = column.row(row)
    if meaning.schema.input == "vectors":
        steps = [
            ", ".join(f"{number:.3g}" for number in step) for step in values[:SHOWN_STEPS].reshape(-1, meaning.sizes[0])
        ]
        more = f" ... {len(values)} steps" if len(values) > SHOWN_STEPS else ""
        return cut_short("; ".join(f"({step})" for step in steps) + more)
    assert meaning.tokenizer is not None, "a schema with text has a tokeniser"
    if meaning.schema.input == "words":
        starts = prepared.columns["firsts"].row(row)
        return cut_short(" ".join(text_shown(meaning.tokenizer, word) for word in np.split(values, starts[1:])))
    return text_shown(meaning.tokenizer, values)


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
