"""Regress: one number or several for a text, a sequence of vectors or a picture.

    mse    the mean of squared errors, over all numbers of all examples: what training makes small
    mae    the mean of their sizes

Numbers are learned as they are: data whose numbers are far from one in size is better scaled before it is read.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import NumberHeadConfig, SequenceHead
from seqloom.errors import ConfigError
from seqloom.metrics.figures import ratio
from seqloom.models import SequenceModel
from seqloom.tasks.contract import Graded, HeadSettings, Judged, Metric
from seqloom.tasks.predictions import NumbersPrediction, numbers_shown
from seqloom.tasks.reading import sequences
from seqloom.tasks.sequences import SequenceTask
from seqloom.types import Batch, Loss


class Regress(Graded, SequenceTask):
    """Numbers for each example."""

    name = "regress"
    metric = Metric("mse", higher_is_better=False)
    statistics = 3  # sizes of errors, loss (their squares), weight (how many numbers)
    linear = False

    def head(self, made: SequenceHead, settings: HeadSettings) -> SequenceHead:
        """A linear map to the numbers."""
        self.refuse_settings(settings)
        return NumberHeadConfig(size=self.meaning.numbers)

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head gives as many numbers."""
        count = self.meaning.numbers
        if not isinstance(head, NumberHeadConfig) or head.size != count:
            raise ConfigError(
                f"the data has {count:,} numbers for each example, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind number with size = {count}",
            )

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed squared errors; nothing is carried."""
        return cast(SequenceModel, model).loss(batch._replace(inputs=sequences(batch.inputs))), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each row judged; right is decided when all are known."""
        said = cast(SequenceModel, model)(sequences(batch.inputs)).cpu().double().numpy()
        true = batch.targets.cpu().double().numpy()
        errors = np.abs(said - true)
        statistics = np.stack([errors.sum(axis=1), (errors**2).sum(axis=1), np.full(len(true), true.shape[1])], axis=1)
        rows = zip(batch.ids, said.tolist(), true.tolist(), statistics, strict=True)
        return [Judged(id_, numbers_shown(one), numbers_shown(other), False, row) for id_, one, other, row in rows]

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`mse`, `mae`, and `loss`, which is the first again."""
        sizes, squares, count = np.moveaxis(sums, -1, 0)
        return {"mse": ratio(squares, count), "mae": ratio(sizes, count), "loss": ratio(squares, count)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[NumbersPrediction]:
        """The numbers for each row."""
        with torch.no_grad():
            numbers = cast(SequenceModel, model)(sequences(inputs)).tolist()
        return [NumbersPrediction(tuple(row)) for row in numbers]
