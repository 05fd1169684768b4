"""Series: one number or several for each word of a sentence or each step of a sequence of vectors.

    mse, rmse, mae    over all numbers of all steps, in the units of the data
    r2                how much of the spread of all true numbers is explained; of several the mean of each
    spearman          the order inside a sequence: the mean over sequences of two or more steps

Numbers are learned in units of the training part, as those of whole sequences are (`regress.py`). The default is
`bilstm`: what a step means depends on both sides of it.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import NumberHeadConfig
from seqloom.config.models import AnyModel, ElementModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.data.kinds.inputs.text import cut_short
from seqloom.errors import ConfigError
from seqloom.metrics.correlation import KINDS, explained, explained_statistics, spearman, spreads
from seqloom.metrics.ratios import ratio
from seqloom.nn.models import ElementModel
from seqloom.nn.types import Batch, Loss
from seqloom.recipes.bodies import Size
from seqloom.tasks.inputs import encoder_in, require_input, stepped_input_of, wrong_shape
from seqloom.tasks.predictions import SeriesPrediction, series_shown
from seqloom.tasks.regress import SAME_NUMBERS, NumberUnits
from seqloom.tasks.task import Graded, HeadSettings, Judged, Meaning, Metric

DEFAULT = "bilstm"


class RegressSteps(Graded):
    """Numbers for each element."""

    name = "regress"
    metric = Metric("mse", higher_is_better=False)
    others = (
        Metric("rmse", higher_is_better=False),
        Metric("mae", higher_is_better=False),
        Metric("r2"),
        Metric("spearman"),
        Metric("loss", higher_is_better=False),
    )

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        self.units = NumberUnits.of(meaning)
        # sizes of errors, their squares; correlation, whether there is one; of `explained`; loss, weight
        self.statistics = 4 + KINDS * meaning.numbers + 2

    def recipes(self) -> list[str]:
        """The recipes that answer for each element."""
        return [DEFAULT, *(name for name in recipes.names("tagger") if name != DEFAULT)]

    def model(self, recipe: str, size: Size, head: HeadSettings) -> ElementModelConfig:
        """The model that a recipe makes."""
        if head.smoothing or head.class_weights:
            raise ConfigError(
                f"smoothing and class weights are for one label of several, not for {self.meaning.schema.target}",
                fix="leave them out",
            )
        made = recipes.tagger(recipe, inputs=stepped_input_of(self.meaning), num_tags=2, size=size)
        return self._with_head(made.encoder)

    def _with_head(self, encoder: EncoderConfig) -> ElementModelConfig:
        return ElementModelConfig(encoder=encoder, head=NumberHeadConfig(size=self.meaning.numbers))

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same encoder with a head for these numbers."""
        encoder = encoder_in(model, self.name, ElementModelConfig.kind())
        require_input(self.meaning, encoder.input)
        return self._with_head(encoder)

    def require(self, model: AnyModel) -> None:
        """Raise ConfigError for another shape of model or input, or another number of numbers."""
        if not isinstance(model, ElementModelConfig):
            raise wrong_shape(self.name, ElementModelConfig.kind(), model)
        require_input(self.meaning, model.encoder.input)
        count, head = self.meaning.numbers, model.head
        if not isinstance(head, NumberHeadConfig) or head.size != count:
            raise ConfigError(
                f"the data has {count:,} numbers for each step, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind number with size = {count}",
            )

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed squared errors in the units of the model; nothing is carried."""
        learned = batch._replace(targets=self.units.learned(batch.targets))
        return cast(ElementModel, model).loss(learned), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each row judged; none of them is right or wrong."""
        answers, targets = self._answers(model, batch.inputs), batch.targets.cpu().double().numpy()
        rows = zip(batch.ids, answers, targets, strict=True)
        return [self._judged(id_, said, true[: len(said)]) for id_, said, true in rows]

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
        """`mse`, `rmse`, `mae`, `r2` and `spearman` of the data, and `loss` in the units of the model."""
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
        """The numbers of each step of each row."""
        with torch.no_grad():
            rows = self._answers(model, inputs)
        return [SeriesPrediction(tuple(map(tuple, row.tolist()))) for row in rows]
