"""Regress: one number or several for a text, a pair of texts, a sequence of vectors or a picture.

    mse         the mean of squared errors, over all numbers of all examples
    rmse        its root, which has the unit of the data
    mae         the mean of the sizes of errors
    r2          how much of the spread of the true numbers is explained; of several numbers the mean of each
    spearman    whether the answers put the examples into the right order; of several numbers the mean of each

Errors are in the units of the data. A model learns in others: each number less its mean, divided by its deviation in
the training part (`Meaning.units`). So prices in thousands are learned as well as shares below one, and of several
numbers none drowns the rest. `loss` is the mean of squared errors in these units, in training as on dev: 1 is what the
mean of the training part as the answer to everything has.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import ElementHead, NumberHeadConfig, SequenceHead
from seqloom.data.kinds.text import cut_short
from seqloom.errors import ConfigError
from seqloom.metrics import ratio
from seqloom.metrics.correlation import KINDS, explained, explained_statistics, spearman, spreads
from seqloom.nn.models import ElementModel, SequenceModel
from seqloom.nn.types import Batch, Loss
from seqloom.tasks.encoders import ElementTask, SequenceTask, sequences
from seqloom.tasks.task import LOSS, HeadSettings, Judged, Meaning, Metric, Prediction, Task, numbers_shown

OF_ERRORS = tuple(Metric(name, higher_is_better=False) for name in ("mse", "rmse", "mae"))
SAME_NUMBERS = "the true numbers are all the same"


class NumberUnits(NamedTuple):
    """The mean and the deviation of each number in the training part, [K] each."""

    means: np.ndarray
    deviations: np.ndarray

    @classmethod
    def of(cls, meaning: Meaning) -> "NumberUnits":
        """The units of a model's numbers; those of the data for a model that was trained without any."""
        means, deviations = zip(*(meaning.units or ((0.0, 1.0),) * meaning.numbers), strict=True)
        return cls(np.array(means), np.array(deviations))

    def learned(self, targets: Tensor) -> Tensor:
        """Targets [...,K] as they are learned."""
        means, deviations = (torch.from_numpy(column).to(targets, non_blocking=True) for column in self)
        return (targets - means) / deviations

    def told(self, answers: Tensor) -> np.ndarray:
        """Answers [...,K] of a model in the units of the data, on the host."""
        return np.asarray(answers.detach().cpu().double().numpy() * self.deviations + self.means)


@dataclass(frozen=True)
class NumbersPrediction(Prediction):
    """One number or several."""

    numbers: tuple[float, ...]

    def shown(self) -> str:
        return numbers_shown(self.numbers)


@dataclass(frozen=True)
class SeriesPrediction(Prediction):
    """One number or several for each word or step."""

    series: tuple[tuple[float, ...], ...]

    def shown(self) -> str:
        return series_shown(self.series)


def series_shown(series: Iterable[Iterable[float]]) -> str:
    """The numbers of steps for people.

    >>> series_shown(((0.5, 2.0), (1.0, 3.0)))
    '0.5, 2; 1, 3'
    """
    return "; ".join(numbers_shown(tuple(step)) for step in series)


class NumberTask(Task):
    """Numbers that are learned in units of the training part: for each example, or for each of its elements."""

    name = "regress"
    each: ClassVar[str]  # what has numbers

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        self.units = NumberUnits.of(meaning)

    def head(self, settings: HeadSettings) -> NumberHeadConfig:
        """A linear map to the numbers."""
        return NumberHeadConfig(size=self.meaning.numbers)

    def require_head(self, head: SequenceHead | ElementHead) -> None:
        count = self.meaning.numbers
        if not isinstance(head, NumberHeadConfig) or head.size != count:
            raise ConfigError(
                f"the data has {count:,} numbers for each {self.each}, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind number with size = {count}",
            )

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed squared errors in the units of the model; nothing is carried."""
        return super().loss(model, batch._replace(targets=self.units.learned(batch.targets)), state)


class Regress(NumberTask, SequenceTask):
    """Numbers for each example."""

    each = "example"
    metrics = (*OF_ERRORS, Metric("r2"), LOSS)

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        # sizes of errors, their squares; the numbers that were said, and the true ones; loss, weight
        self.statistics = 4 + 2 * meaning.numbers

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged; none of them is right or wrong."""
        said, true = self._answers(model, batch.inputs), batch.targets.cpu().double().numpy()
        errors = said - true
        sums = [np.abs(errors).sum(axis=1), (errors**2).sum(axis=1)]
        losses = [((errors / self.units.deviations) ** 2).sum(axis=1), np.full(len(true), true.shape[1])]
        statistics = np.stack([*sums, *said.T, *true.T, *losses], axis=1)
        rows = zip(batch.ids, said.tolist(), true.tolist(), statistics, strict=True)
        return [Judged(id_, numbers_shown(one), numbers_shown(other), None, row) for id_, one, other, row in rows], None

    def _answers(self, model: nn.Module, inputs: Any) -> np.ndarray:
        """[B,K] in the units of the data."""
        return self.units.told(cast(SequenceModel, model)(sequences(inputs)))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] sizes of errors, their squares; what `explained` takes of each number; loss, weight."""
        said, true = np.split(statistics[:, 2:-2], 2, axis=1)
        of_spread = explained_statistics(said, true, self.units.means)
        return super().summed(np.concatenate([statistics[:, :2], of_spread, statistics[:, -2:]], axis=1), times)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`mse`, `rmse` and `mae` in the units of the data, `r2`, and `loss` in the units of the model."""
        sizes, squares, loss, count = (sums[..., place] for place in (0, 1, -2, -1))
        mse, examples = ratio(squares, count), count / self.meaning.numbers
        errors = {"mse": mse, "rmse": np.sqrt(mse), "mae": ratio(sizes, count)}
        return errors | {"r2": explained(sums[..., 2:-2], examples), "loss": ratio(loss, count)}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """`r2`, where a true number never changes."""
        true = np.split(statistics[:, 2:-2], 2, axis=1)[1]
        return {} if np.ptp(true, axis=0).all() else {"r2": SAME_NUMBERS}

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        said, true = np.split(statistics[:, 2:-2].T, 2)
        return {"spearman": float(np.mean([spearman(one, other) for one, other in zip(said, true, strict=True)]))}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[NumbersPrediction]:
        with torch.no_grad():
            numbers = self._answers(model, inputs).tolist()
        return [NumbersPrediction(tuple(row)) for row in numbers]


# Series: one number or several for each word of a sentence or each step of a sequence of vectors.
#
#     mse, rmse, mae    over all numbers of all steps, in the units of the data
#     r2                how much of the spread of all true numbers is explained; of several the mean of each
#     spearman          the order inside a sequence: the mean over sequences of two or more steps
#
# Numbers are learned in units of the training part, as those of whole sequences are (`regress.py`).


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
