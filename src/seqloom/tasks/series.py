"""Series: one number or several for each word of a sentence or each step of a sequence of vectors.

    mse, rmse, mae    over all numbers of all steps, in the units of the data
    r2                how much of the spread of all true numbers is explained; of several the mean of each
    spearman          the order inside a sequence: the mean over sequences of two or more steps

Numbers are learned in units of the training part, as those of whole sequences are (`regress.py`).
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.data.kinds.inputs.text import cut_short
from seqloom.metrics.correlation import KINDS, explained, explained_statistics, spearman, spreads
from seqloom.metrics.ratios import ratio
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Batch
from seqloom.tasks.predictions import SeriesPrediction, series_shown
from seqloom.tasks.regress import OF_ERRORS, SAME_NUMBERS, NumberTask
from seqloom.tasks.sequences import ElementTask
from seqloom.tasks.task import LOSS, Judged, Meaning, Metric


class RegressSteps(NumberTask, ElementTask):
    """Numbers for each element."""

    each = "step"
    metrics = (*OF_ERRORS, Metric("r2"), Metric("spearman"), LOSS)

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        # sizes of errors, their squares; correlation, whether there is one; of `explained`; loss, weight
        self.statistics = 4 + KINDS * meaning.numbers + 2

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged; none of them is right or wrong."""
        answers, targets = self._answers(model, batch.inputs), batch.targets.cpu().double().numpy()
        rows = zip(batch.ids, answers, targets, strict=True)
        return [self._judged(id_, said, true[: len(said)]) for id_, said, true in rows], None

    def _judged(self, id_: str, said: np.ndarray, true: np.ndarray) -> Judged:
        errors, ordered = said - true, len(true) > 1
        order = np.mean([spearman(*pair) for pair in zip(said.T, true.T, strict=True)]) if ordered else 0.0
        loss = ((errors / self.units.deviations) ** 2).sum()
        of_spread = explained_statistics(said, true, self.units.means).sum(axis=0)
        sums = [np.abs(errors).sum(), (errors**2).sum(), order, ordered, *of_spread, loss, true.size]
        shown = cut_short(series_shown(said)), cut_short(series_shown(true))
        return Judged(id_, *shown, None, np.array(sums, np.float64))

    def _answers(self, model: nn.Module, inputs: Any) -> list[np.ndarray]:
        """[T,K] of each row, in the units of the data."""
        x = cast(ElementModel, model)(inputs)
        return [row[:length] for row, length in zip(self.units.told(x.values), x.lengths.tolist(), strict=True)]

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        sizes, squares, order, ordered, loss, count = (sums[..., place] for place in (0, 1, 2, 3, -2, -1))
        mse = ratio(squares, count)
        return {
            "mse": mse,
            "rmse": np.sqrt(mse),
            "mae": ratio(sizes, count),
            "r2": explained(sums[..., 4:-2], count / self.meaning.numbers),
            "spearman": ratio(order, ordered),
            "loss": ratio(loss, count),
        }

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """`r2`, where a true number never changes."""
        sums = self.summed(statistics)
        changes = spreads(sums[4:-2], sums[-1] / self.meaning.numbers)
        return {} if changes.all() else {"r2": SAME_NUMBERS}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[SeriesPrediction]:
        with torch.no_grad():
            rows = self._answers(model, inputs)
        return [SeriesPrediction(tuple(map(tuple, row.tolist()))) for row in rows]
