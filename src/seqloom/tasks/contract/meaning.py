"""What the numbers that a model reads and writes mean."""

from typing import NamedTuple

import numpy as np

from seqloom.data.preparing import Prepared
from seqloom.data.schema import Schema
from seqloom.metrics.calibration import Calibration
from seqloom.text.tokenizer import Tokenizer


class Meaning(NamedTuple):
    """What the numbers that a model reads and writes mean; stored beside its weights."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    sizes: tuple[int, ...] = ()  # of inputs that are no text: (D,) of vectors, (H, W, C) of pictures
    numbers: int = 0  # of a target of numbers: how many
    longest: int = 0  # symbols or steps of the longest input of the training part; 0: not known
    # Mean and deviation of each number of a target in the training part; of a similarity the least, and the range.
    units: tuple[tuple[float, float], ...] = ()
    calibration: Calibration = Calibration()

    @classmethod
    def of(cls, prepared: Prepared) -> "Meaning":
        """What the numbers of prepared data mean."""
        columns, schema = prepared.columns, prepared.schema
        element = tuple(columns["input"].values.shape[1:])
        height = (int(columns["input"].lengths[0]),) if schema.input == "picture" else ()
        numbers = _numbers(prepared)
        longest = int(columns["input"].lengths[prepared.parts["train"]].max(initial=0))
        tokenizers = prepared.tokenizer, prepared.target_tokenizer
        return cls(schema, *tokenizers, (*height, *element), numbers, longest, _units(prepared, numbers))


def _numbers(prepared: Prepared) -> int:
    """How many numbers a target has, or each step of one; 0 where targets are no numbers."""
    kind = prepared.schema.target
    if kind not in ("numbers", "series", "similarity"):
        return 0
    target = prepared.columns["target"]
    return int(target.values.shape[1]) if kind == "series" else int(target.lengths[0])


def _units(prepared: Prepared, numbers: int) -> tuple[tuple[float, float], ...]:
    """The mean and the deviation of each number of the targets of the training part; 1 for one that never changes."""
    if not numbers:
        return ()
    chosen = prepared.columns["target"].select(prepared.parts["train"]).values.reshape(-1, numbers).astype(np.float64)
    if not len(chosen):
        return ((0.0, 1.0),) * numbers
    if prepared.schema.target == "similarity":
        return ((float(chosen.min()), float(np.ptp(chosen)) or 1.0),)
    deviations = np.where(np.ptp(chosen, axis=0) > 0, chosen.std(axis=0), 1.0)
    return tuple(zip(chosen.mean(axis=0).tolist(), deviations.tolist(), strict=True))
