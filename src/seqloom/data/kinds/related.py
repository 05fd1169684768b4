"""Targets for learning embeddings: texts of one row belong together, or have a similarity score."""

from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Columns, TargetKind, even, tensor, tokens
from seqloom.data.kinds.numbers import NumbersTarget
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import SEPARATOR

if TYPE_CHECKING:
    from torch import Tensor


RELATED = (("anchor", "positive"), ("query", "positive"), ("query", "answer"), ("question", "answer"))


class RelatedTarget(TargetKind):
    """No column. In a batch: [B,0]; the inputs are Padded, Both or Triple, text by text."""

    name = "related"
    task = "embed"
    separate_texts = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        import torch

        return together(columns), torch.empty(columns["input"].rows, 0)


def together(columns: Columns) -> Any:
    """The texts of a batch, encoded one by one."""
    from seqloom.nn.types import Both, Triple

    texts = [tokens(text) for text in cut_apart(columns["input"])]
    return texts[0] if len(texts) == 1 else Both(*texts) if len(texts) == 2 else Triple(*texts)


def cut_apart(joined: Ragged) -> list[Ragged]:
    """Split rows at SEPARATORs into texts, as many as the first row has.

    >>> [text.values.tolist() for text in cut_apart(Ragged.of([[7, SEPARATOR, 8, 9], [SEPARATOR, 8]], np.int32))]
    [[7], [8, 9, 8]]
    """
    borders = joined.values == SEPARATOR
    count = int(borders[: joined.starts[1]].sum()) + 1
    passed = np.concatenate([[0], np.cumsum(borders)])
    number = passed[:-1] - np.repeat(passed[joined.starts[:-1]], joined.lengths)  # of the text of each token
    chosen = [(number == text) & ~borders for text in range(count)]
    return [Ragged(joined.values[mine], np.concatenate([[0], np.cumsum(mine)])[joined.starts]) for mine in chosen]


def _offsets_in_texts(joined: Ragged) -> np.ndarray:
    """[tokens] the position of each token in its own text; texts end at SEPARATORs and at row ends."""
    begins = np.zeros(len(joined.values), np.int64)
    begins[joined.starts[:-1][joined.lengths > 0]] = joined.starts[:-1][joined.lengths > 0]
    borders = np.flatnonzero(joined.values[:-1] == SEPARATOR) + 1
    begins[borders] = borders
    return np.arange(len(begins)) - np.maximum.accumulate(begins)


def longest_texts(joined: Ragged) -> np.ndarray:
    """[rows] the length of the longest text of each row.

    >>> longest_texts(Ragged.of([[7, 7, SEPARATOR, 8], [SEPARATOR]], np.int32)).tolist()
    [2, 0]
    """
    sizes = np.where(joined.values == SEPARATOR, 0, _offsets_in_texts(joined) + 1)
    longest = np.zeros(joined.rows, np.int64)
    np.maximum.at(longest, np.repeat(np.arange(joined.rows), joined.lengths), sizes)
    return longest


def cut_texts(joined: Ragged, most: int) -> Ragged:
    """Truncate each text of each row to `most` tokens.

    >>> cut_texts(Ragged.of([[7, 7, 7, SEPARATOR, 8]], np.int32), 2).values.tolist() == [7, 7, SEPARATOR, 8]
    True
    """
    kept = (joined.values == SEPARATOR) | (_offsets_in_texts(joined) < most)
    return Ragged(joined.values[kept], np.concatenate([[0], np.cumsum(kept)])[joined.starts])


class SimilarityTarget(NumbersTarget):
    """Column "target": the number. In a batch: [B]; the inputs are Both."""

    name = "similarity"
    task = "embed"
    column_names = ("score", "similarity", "rating")
    separate_texts = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The texts, encoded one by one, and their similarity."""
        return together(columns), tensor(even(columns["target"], "scores")[:, 0].astype(np.float32))

    def units(self, numbers: np.ndarray) -> tuple[tuple[float, float], ...]:
        return ((float(numbers.min()), float(np.ptp(numbers)) or 1.0),)  # minimum and range
