"""How similar the two texts of a pair are, as a number."""

from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Columns
from seqloom.data.kinds.targets.numbers import NumbersTarget
from seqloom.data.kinds.targets.related import together

if TYPE_CHECKING:
    from torch import Tensor


class SimilarityTarget(NumbersTarget):
    """Column "target": the number. In a batch: [B]; the inputs are Both."""

    name = "similarity"
    task = "embed"
    usual = ("score", "similarity", "rating")
    apart = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The texts, each by itself, and how similar they are."""
        from torch import from_numpy

        from seqloom.data.kinds import tensors

        return together(columns), from_numpy(tensors.even(columns["target"], "scores")[:, 0].astype(np.float32))

    def units(self, numbers: np.ndarray) -> tuple[tuple[float, float], ...]:
        """The least, and the range."""
        return ((float(numbers.min()), float(np.ptp(numbers)) or 1.0),)
