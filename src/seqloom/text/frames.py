"""Frames: some encoders read every text between two symbols, BEGIN and END (Devlin et al. 2019: [CLS] and [SEP]).

    BEGIN  the  cat  sat  END                   a text
    BEGIN  the  cat  END                        the same, cut to four: END stays
    BEGIN  the  END  SEPARATOR  BEGIN  a  END   two texts

A tokeniser whose configuration is `framed` gives every text so; no other symbol of it is special.
"""

import numpy as np

from seqloom.text.cutter import Pieces
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END, SEPARATOR


def framed(rows: Ragged) -> Ragged:
    """Each row between BEGIN and END.

    >>> framed(Ragged.of([[7, 8], []], np.int32)).values.tolist() == [BEGIN, 7, 8, END, BEGIN, END]
    True
    """
    starts = rows.starts - rows.starts[0] + 2 * np.arange(rows.rows + 1)
    values = np.empty(starts[-1], rows.values.dtype)
    values[starts[:-1]], values[starts[1:] - 1] = BEGIN, END
    inner = np.ones(len(values), bool)
    inner[starts[:-1]] = inner[starts[1:] - 1] = False
    values[inner] = rows.values[rows.starts[0] : rows.starts[-1]]
    return Ragged(values, starts)


def framed_pieces(pieces: Pieces, length: int) -> Pieces:
    """The same of one text of so many characters; BEGIN and END stand for none of them."""
    symbols = np.concatenate([[BEGIN], pieces.symbols, [END]]).astype(pieces.symbols.dtype)
    return Pieces(symbols, np.concatenate([[[0, 0]], pieces.spans, [[length, length]]]))


def closed(rows: Ragged) -> Ragged:
    """Framed rows, some of them cut, whose every text ends with END again: it takes the place of the last symbol left.

    >>> closed(Ragged.of([[BEGIN, 7, 8], [BEGIN, 7, SEPARATOR, BEGIN, END]], np.int32)).values.tolist()
    [2, 7, 3, 2, 3, 5, 2, 3]
    """
    values = rows.values.copy()
    last = np.zeros(len(values), bool)
    last[rows.starts[1:][rows.lengths > 0] - 1] = True
    last[np.maximum(np.flatnonzero(values == SEPARATOR) - 1, 0)] = True
    values[last & (values != SEPARATOR)] = END
    return Ragged(values, rows.starts)
