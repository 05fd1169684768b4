"""Regress: one number or several for a text, a pair of texts, a sequence of vectors or a picture.

    mse         mean squared error, over all numbers of all examples
    rmse        its square root, in the unit of the data
    mae         mean absolute error
    r2          coefficient of determination; for several numbers the mean over them
    spearman    rank correlation; for several numbers the mean over them

Errors are in the units of the data. The model is trained on standardized targets: each number minus its mean, divided
by its standard deviation in the training set (`ModelSpec.units`). So prices in thousands are learned as well as shares
below one, and no number dominates the others. `loss` is the mean squared error of standardized targets: a model that
always predicts the mean of the training set has a loss of 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import ElementHead, NumberHeadConfig, SequenceHead
from seqloom.data.kinds.text import cut_short
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import ratio
from seqloom.metrics.correlation import KINDS, explained, explained_statistics, spearman, spreads
from seqloom.nn.models import ElementModel, SequenceModel
from seqloom.nn.types import Batch, Loss
from seqloom.tasks.encoders import ElementTask, SequenceTask, elements, sequences
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    Prediction,
    Streamer,
    Task,
    numbers_shown,
)

OF_ERRORS = tuple(Metric(name, higher_is_better=False) for name in ("mse", "rmse", "mae"))
SAME_NUMBERS = "the expected numbers are all the same"
ALWAYS_MEAN, ALWAYS_MEDIAN = "always predicting the mean", "always predicting the median"


class NumberUnits(NamedTuple):
    """The mean and the standard deviation of each number in the training set, [K] each."""

    means: np.ndarray
    deviations: np.ndarray

    @classmethod
    def of(cls, spec: ModelSpec) -> "NumberUnits":
        """The units of a model; (0, 1) for a model that was trained without standardization."""
        means, deviations = zip(*(spec.units or ((0.0, 1.0),) * spec.numbers), strict=True)
        return cls(np.array(means), np.array(deviations))

    def learned(self, targets: Tensor) -> Tensor:
        """Standardized targets [...,K]."""
        means, deviations = (torch.from_numpy(column).to(targets, non_blocking=True) for column in self)
        return (targets - means) / deviations

    def restored(self, answers: Tensor) -> np.ndarray:
        """Outputs [...,K] of a model in the units of the data, on the CPU."""
        return np.asarray(answers.detach().cpu().double().numpy() * self.deviations + self.means)


@dataclass(frozen=True, repr=False)
class NumbersPrediction(Prediction):
    """One number or several."""

    numbers: tuple[float, ...]

    def to_text(self) -> str:
        return numbers_shown(self.numbers)


@dataclass(frozen=True, repr=False)
class SeriesPrediction(Prediction):
    """One number or several for each word or step."""

    series: tuple[tuple[float, ...], ...]

    def to_text(self) -> str:
        return series_shown(self.series)


def series_shown(series: Iterable[Iterable[float]]) -> str:
    """The numbers of steps as text.

    >>> series_shown(((0.5, 2.0), (1.0, 3.0)))
    '0.5, 2; 1, 3'
    """
    return "; ".join(numbers_shown(tuple(step)) for step in series)


class NumberTask(Task):
    """Standardized numbers, for each example or for each of its steps."""

    name = "regress"
    each: ClassVar[str]  # example or step

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.units = NumberUnits.of(spec)

    def head(self, settings: HeadSettings) -> NumberHeadConfig:
        """A linear map to the numbers."""
        return NumberHeadConfig(size=self.spec.numbers)

    def require_head(self, head: SequenceHead | ElementHead) -> None:
        count = self.spec.numbers
        if not isinstance(head, NumberHeadConfig) or head.size != count:
            raise ConfigError(
                f"the data has {count:,} numbers for each {self.each}, but the head of the model is {head.to_json()}",
                fix=f"give it a head of kind number with size = {count}",
            )

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed squared errors of standardized targets."""
        return super().loss(model, batch._replace(targets=self.units.learned(batch.targets)), state)


class Regress(NumberTask, SequenceTask):
    """Numbers for each example."""

    each = "example"
    metrics = (*OF_ERRORS, Metric("r2"), LOSS)

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        # absolute errors, squared errors; predicted and expected numbers; loss, weight
        self.statistics = 4 + 2 * spec.numbers

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """Return the evaluated rows; they are neither correct nor wrong."""
        predicted, expected = self._answers(model, batch.inputs), batch.targets.cpu().double().numpy()
        errors = predicted - expected
        sums = [np.abs(errors).sum(axis=1), (errors**2).sum(axis=1)]
        losses = [((errors / self.units.deviations) ** 2).sum(axis=1), np.full(len(expected), expected.shape[1])]
        statistics = np.stack([*sums, *predicted.T, *expected.T, *losses], axis=1)
        rows = zip(batch.ids, predicted.tolist(), expected.tolist(), statistics, strict=True)
        return [
            EvaluatedExample(id_, numbers_shown(one), numbers_shown(other), None, row) for id_, one, other, row in rows
        ], None

    def _answers(self, model: nn.Module, inputs: Any) -> np.ndarray:
        """[B,K] in the units of the data."""
        return self.units.restored(cast(SequenceModel, model)(sequences(inputs)))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] absolute errors, squared errors; the sums for `explained`; loss, weight."""
        predicted, expected = np.split(statistics[:, 2:-2], 2, axis=1)
        of_spread = explained_statistics(predicted, expected, self.units.means)
        return super().summed(np.concatenate([statistics[:, :2], of_spread, statistics[:, -2:]], axis=1), times)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`mse`, `rmse` and `mae` in the units of the data, `r2`, and the standardized `loss`."""
        sizes, squares, loss, count = (sums[..., place] for place in (0, 1, -2, -1))
        mse, examples = ratio(squares, count), count / self.spec.numbers
        errors = {"mse": mse, "rmse": np.sqrt(mse), "mae": ratio(sizes, count)}
        return errors | {"r2": explained(sums[..., 2:-2], examples), "loss": ratio(loss, count)}

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The mean of the training set, which is 0 in standardized units; the median if the absolute error decides."""
        if self.metric.name != "mae":
            return self.constant(ALWAYS_MEAN, torch.zeros(self.spec.numbers), dev)
        median = np.median(torch.cat([batch.targets for batch in train]).double().numpy(), axis=0)
        return self.constant(ALWAYS_MEDIAN, self.units.learned(torch.from_numpy(median)), dev)

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """`r2`, if an expected number never changes."""
        expected = np.split(statistics[:, 2:-2], 2, axis=1)[1]
        return {} if np.ptp(expected, axis=0).all() else {"r2": SAME_NUMBERS}

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        predicted, expected = np.split(statistics[:, 2:-2].T, 2)
        return {
            "spearman": float(np.mean([spearman(one, other) for one, other in zip(predicted, expected, strict=True)]))
        }

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[NumbersPrediction]:
        with torch.no_grad():
            numbers = self._answers(model, inputs).tolist()
        return [NumbersPrediction(tuple(row)) for row in numbers]


# Series: one number or several for each word of a sentence or each step of a sequence of vectors.
#
#     mse, rmse, mae    over all numbers of all steps, in the units of the data
#     r2                over all steps; for several numbers the mean over them
#     spearman          the rank correlation inside a sequence: the mean over sequences of two or more steps
#
# Targets are standardized in the same way as above.


class RegressSteps(NumberTask, Streamer, ElementTask):
    """Numbers for each word or step."""

    each = "step"
    metrics = (*OF_ERRORS, Metric("r2"), Metric("spearman"), LOSS)

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        # absolute errors, squared errors; correlation, whether there is one; sums for `explained`; loss, weight
        self.statistics = 4 + KINDS * spec.numbers + 2

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """Return the evaluated rows; they are neither correct nor wrong."""
        answers, targets = self._answers(model, batch.inputs), batch.targets.cpu().double().numpy()
        rows = zip(batch.ids, answers, targets, strict=True)
        return [self._evaluated(id_, predicted, expected[: len(predicted)]) for id_, predicted, expected in rows], None

    def _evaluated(self, id_: str, predicted: np.ndarray, expected: np.ndarray) -> EvaluatedExample:
        errors, ordered = predicted - expected, len(expected) > 1
        order = np.mean([spearman(*pair) for pair in zip(predicted.T, expected.T, strict=True)]) if ordered else 0.0
        loss = ((errors / self.units.deviations) ** 2).sum()
        of_spread = explained_statistics(predicted, expected, self.units.means).sum(axis=0)
        sums = [np.abs(errors).sum(), (errors**2).sum(), order, ordered, *of_spread, loss, expected.size]
        shown = cut_short(series_shown(predicted)), cut_short(series_shown(expected))
        return EvaluatedExample(id_, *shown, None, np.array(sums, np.float64))

    def _answers(self, model: nn.Module, inputs: Any) -> list[np.ndarray]:
        """[T,K] of each row, in the units of the data."""
        x = cast(ElementModel, model)(inputs)
        return [row[:length] for row, length in zip(self.units.restored(x.values), x.lengths.tolist(), strict=True)]

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        sizes, squares, order, ordered, loss, count = (sums[..., place] for place in (0, 1, 2, 3, -2, -1))
        mse = ratio(squares, count)
        return {
            "mse": mse,
            "rmse": np.sqrt(mse),
            "mae": ratio(sizes, count),
            "r2": explained(sums[..., 4:-2], count / self.spec.numbers),
            "spearman": ratio(order, ordered),
            "loss": ratio(loss, count),
        }

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The mean of the training set at every step; the median if the absolute error decides."""
        answer, center = ALWAYS_MEAN, self.units.means
        if self.metric.name == "mae":
            learned = np.concatenate([expected for batch in train for _, expected in _steps(batch)])
            answer, center = ALWAYS_MEDIAN, np.median(learned, axis=0)
        found = [
            self._evaluated(id_, np.broadcast_to(center, expected.shape), expected).statistics
            for batch in dev
            for id_, expected in _steps(batch)
        ]
        return Baseline(answer, np.stack(found))

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """`r2`, if an expected number never changes."""
        sums = self.summed(statistics)
        changes = spreads(sums[4:-2], sums[-1] / self.spec.numbers)
        return {} if changes.all() else {"r2": SAME_NUMBERS}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[SeriesPrediction]:
        with torch.no_grad():
            rows = self._answers(model, inputs)
        return [SeriesPrediction(tuple(map(tuple, row.tolist()))) for row in rows]

    def answers_so_far(
        self, model: nn.Module, tokens: np.ndarray, scores: Tensor, memory: Any
    ) -> tuple[Sequence[NumbersPrediction], Any]:
        """The predicted numbers of each step."""
        return [NumbersPrediction(tuple(row)) for row in self.units.restored(scores).tolist()], None


def _steps(batch: Batch[Any, Tensor]) -> Iterator[tuple[str, np.ndarray]]:
    """The id of each row, and the expected numbers [T,K] of its steps."""
    rows = zip(batch.ids, elements(batch.inputs).lengths.tolist(), batch.targets.cpu().double().numpy(), strict=True)
    return ((id_, expected[:length]) for id_, length, expected in rows)
