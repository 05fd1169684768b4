"""Rows of symbols that are joined, and cut so that what holds them together stays: separators, words, BEGIN and END."""

import numpy as np

from seqloom.text.frames import closed
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import SEPARATOR


def paired(first: Ragged, second: Ragged, between: int) -> Ragged:
    """Each row of the first, a symbol, and the same row of the second.

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
    """Rows of at most so many symbols: the longer text is cut first, then both, and SEPARATOR stays.

    >>> pair = paired(Ragged.of([[7, 7, 7, 7]], np.int32), Ragged.of([[8, 8]], np.int32), SEPARATOR)
    >>> cut_pairs(pair, 5).values.tolist() == [7, 7, SEPARATOR, 8, 8]
    True
    """
    between = np.flatnonzero(pairs.values == SEPARATOR)  # of each row one: no text has it
    first, second = between - pairs.starts[:-1], pairs.starts[1:] - between - 1
    room = most - 1
    kept_first = np.minimum(first, np.maximum(room - second, room - room // 2))
    kept_second = np.minimum(second, room - kept_first)
    offset = np.arange(len(pairs.values)) - np.repeat(between, pairs.lengths)  # negative in the first text
    begins = np.repeat(first, pairs.lengths) + offset < np.repeat(kept_first, pairs.lengths)
    kept = np.where(offset < 0, begins, offset <= np.repeat(kept_second, pairs.lengths))
    starts = np.concatenate([[0], np.cumsum(kept_first + 1 + kept_second)])
    return Ragged(pairs.values[kept], starts)


def _offsets_in_texts(joined: Ragged) -> np.ndarray:
    """[symbols] how many symbols of its own text stand before each, where SEPARATORs end texts, and rows do."""
    begins = np.zeros(len(joined.values), np.int64)
    begins[joined.starts[:-1][joined.lengths > 0]] = joined.starts[:-1][joined.lengths > 0]
    borders = np.flatnonzero(joined.values[:-1] == SEPARATOR) + 1
    begins[borders] = borders
    return np.arange(len(begins)) - np.maximum.accumulate(begins)


def longest_texts(joined: Ragged) -> np.ndarray:
    """[rows] the symbols of the longest of the texts that SEPARATORs keep apart.

    >>> longest_texts(Ragged.of([[7, 7, SEPARATOR, 8], [SEPARATOR]], np.int32)).tolist()
    [2, 0]
    """
    sizes = np.where(joined.values == SEPARATOR, 0, _offsets_in_texts(joined) + 1)
    longest = np.zeros(joined.rows, np.int64)
    np.maximum.at(longest, np.repeat(np.arange(joined.rows), joined.lengths), sizes)
    return longest


def cut_texts(joined: Ragged, most: int) -> Ragged:
    """Rows whose texts, which SEPARATORs keep apart, have at most so many symbols each.

    >>> cut_texts(Ragged.of([[7, 7, 7, SEPARATOR, 8]], np.int32), 2).values.tolist() == [7, 7, SEPARATOR, 8]
    True
    """
    kept = (joined.values == SEPARATOR) | (_offsets_in_texts(joined) < most)
    return Ragged(joined.values[kept], np.concatenate([[0], np.cumsum(kept)])[joined.starts])


def cut_words(pieces: Ragged, firsts: Ragged, most: int) -> tuple[Ragged, Ragged]:
    """Rows of at most so many pieces, and where their words begin: cut between words, or inside a first one too long.

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
    """The same of pieces between BEGIN and END, which stay.

    >>> pieces, firsts = Ragged.of([[2, 6, 7, 8, 3]], np.int32), Ragged.of([[1, 2]], np.int32)
    >>> [column.values.tolist() for column in cut_framed_words(pieces, firsts, 4)]
    [[2, 6, 3], [1]]
    """
    inner, kept = cut_words(pieces.shorten(pieces.lengths - 1), firsts, most - 1)
    return closed(pieces.shorten(np.maximum(inner.lengths, 1) + 1)), kept


def whole_words(pieces: Ragged, firsts: Ragged) -> dict[str, Ragged]:
    """The columns of words that are one symbol each: the first of a word that has several, such as one with a space.

    >>> columns = whole_words(Ragged.of([[6, 7, 8], [9]], np.int32), Ragged.of([[0, 2], [0]], np.int32))
    >>> columns["input"].values.tolist(), columns["firsts"].values.tolist()
    ([6, 8, 9], [0, 1, 0])
    """
    places = np.repeat(pieces.starts[:-1], firsts.lengths) + firsts.values
    counted = np.arange(len(places)) - np.repeat(firsts.starts[:-1], firsts.lengths)
    symbols = Ragged(pieces.values[places], firsts.starts)
    return {"input": symbols, "firsts": Ragged(counted.astype(np.int32), firsts.starts)}
