"""From columns to tensors: what the kinds need to collate a batch. The one module of kinds that imports torch."""

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.nn.types import Padded
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END


def filled(column: Ragged, dtype: type[np.generic]) -> np.ndarray:
    """[B,T,...] rows side by side, zeros behind the short ones."""
    lengths = column.lengths
    matrix = np.zeros((len(lengths), int(lengths.max()), *column.values.shape[1:]), dtype)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = column.values
    return matrix


def padded(matrix: np.ndarray, lengths: np.ndarray) -> Padded:
    """The rows of a matrix as far as their lengths go."""
    full = bool((lengths == matrix.shape[1]).all())
    return Padded(torch.from_numpy(matrix), torch.from_numpy(np.asarray(lengths, np.int64)), None, full)


def tokens(column: Ragged) -> Padded:
    """[B,T] the tokens of each row."""
    return padded(filled(column, np.int64), column.lengths)


def shifted(read: Padded) -> tuple[Padded, Tensor]:
    """What is read, BEGIN and the tokens, and what is to be said there, the tokens and END."""
    batch, lengths = len(read.lengths), read.lengths
    before = torch.cat([torch.full((batch, 1), BEGIN), read.values], dim=1)
    said = torch.cat([read.values, torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    said[torch.arange(batch), lengths] = END
    return Padded(before, lengths + 1, None, read.full), said


def even(column: Ragged, what: str) -> np.ndarray:
    """[B,T,...] rows that must have one length."""
    lengths = column.lengths
    if int(lengths.min()) != int(lengths.max()):
        raise DataError(
            f"{what} of one size were expected, found {int(lengths.min())} and {int(lengths.max())}",
            fix="bring all examples to one size",
        )
    return column.values.reshape(len(lengths), int(lengths[0]), *column.values.shape[1:])
