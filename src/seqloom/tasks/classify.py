"""Classify: the label of a text, a pair of texts, a sequence of vectors or a picture; or several labels.

    accuracy             the share of examples whose most likely label is correct (equal to micro F1)
    macro_f1             the mean F1 over all labels that are expected or predicted
    calibration_error    expected calibration error (15 bins)

A label that is not in the training data is always an error. It counts in the accuracy, and all such labels together are
one more label in `macro_f1`, with F1 0. The loss leaves these rows out, because the model has no probability for them.

The temperature of the calibration is 1 in training and fitted on the dev set at the end. It changes no prediction. The
metrics of the dev set itself are cross-fitted: each half uses the temperature of the other (`metrics.calibration`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.data import SplitName
from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, ScoresHeadConfig, SequenceHead
from seqloom.config.training import AnyBatching
from seqloom.data.loader import Loader, unseen_labels
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Target
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import ratio
from seqloom.metrics.calibration import (
    BINS,
    Calibration,
    Fitted,
    best_temperature,
    binned,
    calibration_error,
    cross_fitted,
)
from seqloom.metrics.classification import HALF, Counts, best_thresholds, counted, counted_sets, packed, words_of
from seqloom.nn.types import Batch, Loss
from seqloom.tasks.encoders import OF_LABEL, SequenceTask, sequences
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    Calibrator,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    Prediction,
)

UNSEEN = "(not in the training data)"
MOST_SCORES = 2**22  # of the dev set, to fit a calibration


@dataclass(frozen=True, repr=False)
class LabelPrediction(Prediction):
    """The most likely label, and the probability of each label in `scores`."""

    label: str
    scores: dict[str, float]

    def to_text(self) -> str:
        return self.label


@dataclass(frozen=True, repr=False)
class LabelsPrediction(Prediction):
    """The labels above their thresholds, and the probability of each label in `scores`."""

    labels: tuple[str, ...]
    scores: dict[str, float]

    def to_text(self) -> str:
        return ", ".join(self.labels)


class Classify(Calibrator, SequenceTask):
    """One label per example."""

    name = "classify"
    settings = OF_LABEL
    metrics = (Metric("accuracy"), Metric("macro_f1"), LOSS)
    weak = MappingProxyType({"accuracy": 0.5})
    statistics = 5  # predicted label, expected label, probability of the predicted one, loss, weight

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        if len(spec.schema.labels) < 2:
            raise ConfigError(
                f"the training set has {len(spec.schema.labels)} label, but a classifier needs two or more",
                fix="give data with at least two labels",
            )

    def head(self, settings: HeadSettings) -> ClassHeadConfig:
        """A softmax over the labels."""
        return class_head(settings, self.spec.schema.labels)

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head has one output per label."""
        count = len(self.spec.schema.labels)
        if not isinstance(head, ClassHeadConfig | ScoresHeadConfig) or head.num_classes != count:
            raise ConfigError(
                f"the data has {count:,} labels, but the head of the model is {head.to_json()}",
                fix=f"give it a head of kind class with num_classes = {count}",
            )

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated rows: correct if the most likely label is the expected one."""
        raw = scores_of(model, batch.inputs)
        log_p = (raw / self.temperatures(batch.ids)).log_softmax(dim=-1)  # [B,K]
        expected = batch.targets.cpu()
        predicted, known = raw.argmax(dim=-1), expected >= 0
        confidence = log_p.gather(1, predicted[:, None])[:, 0].exp()
        losses = -log_p.gather(1, expected.clamp(min=0)[:, None])[:, 0].masked_fill(~known, 0)
        columns = (predicted, expected, confidence, losses, known)
        rows = zip(batch.ids, *(column.double().tolist() for column in columns), strict=True)
        return [self._evaluated(*row) for row in rows], None

    def _evaluated(self, id_: str, predicted: float, expected: float, *others: float) -> EvaluatedExample:
        names = (*self.spec.schema.labels, UNSEEN)
        number = int(expected) % len(names)  # -1 is the last one, UNSEEN
        statistics = np.array([predicted, number, *others])
        answer, truth = names[int(predicted)], names[number]
        return EvaluatedExample(id_, answer, truth, predicted == expected, statistics, ((truth, answer),))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] correct, predicted and expected rows of each label, and of unseen ones; bins; loss, weight."""
        times = np.ones(len(statistics)) if times is None else np.asarray(times, np.float64)
        predicted, expected, confidence = statistics.T[:3]
        counts = counted(predicted, expected, times, len(self.spec.schema.labels) + 1)
        bins = binned(confidence, predicted == expected, times)
        flat = bins.reshape(*times.shape[:-1], 3 * BINS)
        return np.concatenate([counts, flat, times @ statistics[:, -2:]], axis=-1)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        counts, bins, loss, weight = split_sums(sums)
        return {
            "accuracy": counts.micro.f1,
            "macro_f1": counts.macro_f1,
            "calibration_error": calibration_error(bins),
            "loss": ratio(loss, weight),
        }

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        return split_sums(self.summed(statistics))[0].named((*self.spec.schema.labels, UNSEEN))

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The most frequent label, with the shares of all labels as probabilities."""
        found = torch.cat([batch.targets for batch in train])
        counts = torch.bincount(found[found >= 0], minlength=len(self.spec.schema.labels)).double()
        common = self.spec.schema.labels[int(counts.argmax())]
        return self.constant(f"always predicting '{common}'", ((counts + 1) / (counts + 1).sum()).log(), dev)

    def details(self, evaluated: EvaluatedExample) -> dict[str, Any]:
        """The probability of the predicted label."""
        return {"probability": float(evaluated.statistics[2])}

    def expected_text(self, evaluated: EvaluatedExample, target: Target) -> str:
        """The label; one that is not in the training data by its name in the data."""
        return target if evaluated.expected == UNSEEN and isinstance(target, str) else evaluated.expected

    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Fitted:
        """The temperature with the lowest loss."""
        whole = scored(model, batches, MOST_SCORES)

        def fit(rows: np.ndarray) -> Calibration:
            known = whole.targets[rows] >= 0
            scores, targets = whole.scores[rows][known], whole.targets[rows][known]
            return Calibration(
                best_temperature(lambda by: float(F.cross_entropy(scores / by, targets, reduction="sum")))
            )

        return cross_fitted(whole.ids, fit)

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelPrediction]:
        """The most likely label of each row, with the probability of each label."""
        labels = self.spec.schema.labels
        with torch.no_grad():
            raw = scores_of(model, inputs)
            likely = (raw / self.spec.calibration.temperature).softmax(dim=-1)
        rows = zip(raw.argmax(dim=-1).tolist(), likely.tolist(), strict=True)
        return [LabelPrediction(labels[predicted], dict(zip(labels, row, strict=True))) for predicted, row in rows]


def scores_of(model: nn.Module, inputs: Any) -> Tensor:
    """[B,K] the logits of a model before calibration, on the CPU in float64, so that probabilities add up to 1."""
    return cast(Tensor, model(sequences(inputs))).detach().cpu().double()


class ScoredLabels(NamedTuple):
    """Rows with their logits before calibration."""

    scores: Tensor  # [N,K]
    targets: Tensor
    ids: tuple[str, ...]


def scored(model: nn.Module, batches: Iterable[Batch[Any, Tensor]], most: int) -> ScoredLabels:
    """The rows of all batches; of every second, fourth, ... batch if they have more than `most` scores.

    Batches are grouped by length, so the ones that are left out are spread over all lengths.
    """
    kept, every = list[ScoredLabels](), 1
    for number, batch in enumerate(batches):
        if number % every == 0:
            kept.append(ScoredLabels(scores_of(model, batch.inputs), batch.targets.cpu(), tuple(batch.ids)))
        while len(kept) > 1 and sum(one.scores.numel() for one in kept) > most:
            kept, every = kept[::2], 2 * every
    scores, targets, ids = zip(*kept, strict=True)
    return ScoredLabels(torch.cat(scores), torch.cat(targets), tuple(chain.from_iterable(ids)))


def split_sums(sums: np.ndarray) -> tuple[Counts, np.ndarray, np.ndarray, np.ndarray]:
    """Sums [...,3K + 45 + 2] as label counts, bins [...,3,15], loss and weight."""
    bins = sums[..., -2 - 3 * BINS : -2].reshape(*sums.shape[:-1], 3, BINS)
    return Counts.of(sums[..., : -2 - 3 * BINS]), bins, sums[..., -2], sums[..., -1]


def class_head(settings: HeadSettings, labels: Sequence[str]) -> ClassHeadConfig:
    """A softmax over labels; ConfigError for a wrong number of class weights."""
    weights = settings.class_weights
    if weights and len(weights) != len(labels):
        shown = ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "")
        found = f"{len(weights):,} class weights for {len(labels):,} labels"
        raise ConfigError(found, fix=f"give one for each of: {shown}")
    return ClassHeadConfig(num_classes=len(labels), label_smoothing=settings.label_smoothing, class_weights=weights)


# Several labels: any number of them per example, each with its own probability.
#
#     f1                   micro F1 of all labels, beside micro precision and recall
#     macro_f1             the mean F1 over all labels that are expected or predicted
#     accuracy             the share of examples with exactly the expected labels (subset accuracy)
#     calibration_error    expected calibration error (15 bins over all labels)
#
# A label is predicted when its probability is above its threshold. At the end of training, the temperature and the
# threshold of each label are fitted on the dev set: thresholds with the highest micro F1, or the highest F1 of each
# label if `macro_f1` decides. Metrics of the dev set are cross-fitted (`metrics.calibration`), in validations too: with
# 0.5 as every threshold, rare labels would not be predicted for a long time, and checkpoints would be chosen by an F1
# that the final model does not have. So a validation runs the model twice. Its loss is that of uncalibrated scores.

OF_LABELS = ("f1", "precision", "recall", "macro_f1")


class ClassifySeveral(Calibrator, SequenceTask):
    """Any number of labels per example.

    The targets of a dev or test set have one more column than there are labels: how many labels of the example are not
    in the training data (`data.loader.unseen_labels`). Each counts as missed.
    """

    name = "classify"
    metrics = (Metric("f1"), Metric("macro_f1"), Metric("accuracy"), LOSS)
    weak = MappingProxyType({"f1": 0.5})

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        # examples, exact ones, unseen labels; predicted and expected labels; bins; loss, weight
        self.statistics = 3 + 2 * words_of(self.labels) + 3 * BINS + 2

    @property
    def labels(self) -> int:
        """The number of labels."""
        return len(self.spec.schema.labels)

    def head(self, settings: HeadSettings) -> LabelsHeadConfig:
        """A logistic regression for each label."""
        return LabelsHeadConfig(num_labels=self.labels)

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head has one output per label."""
        if not isinstance(head, LabelsHeadConfig) or head.num_labels != self.labels:
            raise ConfigError(
                f"the data has {self.labels:,} labels, several per row, but the head of the model is {head.to_json()}",
                fix=f"give it a head of kind labels with num_labels = {self.labels}",
            )

    def make_loader(self, prepared: Prepared, split: SplitName, batching: AnyBatching, seed: int) -> Loader[Any, Any]:
        """The batches of a split; dev and test sets also count labels that are not in the training data."""
        steps = super().make_loader(prepared, split, batching, seed)
        rows, columns = prepared.splits[split], prepared.columns

        def with_unseen(chosen: np.ndarray) -> Batch[Any, Tensor]:
            batch = steps.make_batch(chosen)
            unseen = torch.from_numpy(unseen_labels(columns, rows[chosen]).astype(np.float32))
            return cast(Batch[Any, Tensor], batch._replace(targets=torch.cat([batch.targets, unseen[:, None]], dim=1)))

        return steps if split == "train" else Loader(steps.plan, with_unseen)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        return super().loss(model, batch._replace(targets=batch.targets[:, : self.labels]), state)

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated rows: correct if exactly the expected labels are predicted."""
        scores = scores_of(model, batch.inputs) / self.temperatures(batch.ids)
        targets = batch.targets.cpu().double()
        known, unseen = targets[:, : self.labels], targets[:, self.labels :].sum(dim=1)
        losses = F.binary_cross_entropy_with_logits(scores, known, reduction="none").sum(dim=1)
        likely = scores.sigmoid().numpy()
        predicted = likely > np.stack([self._thresholds(self.reading_of(id_)) for id_ in batch.ids])
        columns = (likely, predicted, known.numpy() > 0, unseen.tolist(), losses.tolist())
        return [self._evaluated(*row) for row in zip(batch.ids, *columns, strict=True)], None

    def _thresholds(self, calibration: Calibration) -> np.ndarray:
        """[K] the threshold of each label."""
        return np.array(calibration.thresholds or [HALF] * self.labels)

    def _evaluated(
        self, id_: str, likely: np.ndarray, predicted: np.ndarray, known: np.ndarray, unseen: float, loss: float
    ) -> EvaluatedExample:
        correct = bool((predicted == known).all()) and not unseen
        sets = packed(np.stack([predicted, known])).ravel()
        bins = binned(likely, known, np.ones(self.labels)).ravel()
        statistics = np.concatenate([[1.0, correct, unseen], sets, bins, [loss, self.labels]])
        expected = [*self._named(known), *[UNSEEN] * int(unseen)]
        return EvaluatedExample(id_, ", ".join(self._named(predicted)), ", ".join(expected), correct, statistics)

    def _named(self, chosen: np.ndarray) -> tuple[str, ...]:
        return tuple(self.spec.schema.labels[number] for number in np.flatnonzero(chosen))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] examples, exact ones; counts of correct, predicted and expected labels, with unseen ones; ..."""
        often = np.ones((1, len(statistics))) if times is None else np.atleast_2d(np.asarray(times, np.float64))
        words = words_of(self.labels)
        predicted, expected, others = np.split(statistics[:, 3:], [words, 2 * words], axis=1)
        plain = often @ statistics[:, :3]
        counts = counted_sets(predicted, expected, often, self.labels).reshape(-1, 3, self.labels)
        missed = np.stack([np.zeros(len(often)), np.zeros(len(often)), plain[:, 2]], axis=1)
        whole = np.concatenate([counts, missed[:, :, None]], axis=2).reshape(len(often), -1)
        sums = np.concatenate([plain[:, :2], whole, often @ others], axis=1)
        return sums if times is not None and times.ndim > 1 else sums[0]

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        counts, bins, loss, weight = split_sums(sums[..., 2:])
        return counts.figures | {
            "accuracy": ratio(sums[..., 1], sums[..., 0]),
            "calibration_error": calibration_error(bins),
            "loss": ratio(loss, weight),
        }

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        return split_sums(self.summed(statistics)[2:])[0].named((*self.spec.schema.labels, UNSEEN))

    def constant_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """The labels that more than half of the rows have, with the shares of all labels as probabilities.

        If F1 decides, as many of the most frequent labels as give the highest F1. With k labels for each of n rows it
        is 2 x their count / (k n + the count of all).
        """
        known = torch.cat([batch.targets[:, : self.labels] for batch in train]).double()
        shares = (known.sum(dim=0) + 0.5) / (len(known) + 1)
        if self.metric.name != "f1":
            return self.constant("always predicting the labels that most rows have", shares.logit(), dev)
        counts, order = known.sum(dim=0), shares.argsort(descending=True, stable=True)
        numbers = torch.arange(1, self.labels + 1)
        best = int((2 * counts[order].cumsum(dim=0) / (numbers * len(known) + counts.sum())).argmax()) + 1
        thresholds = torch.ones(self.labels, dtype=torch.float64)
        thresholds[order[:best]] = 0.0
        named = f"always predicting the most frequent {best:,} of {self.labels:,} labels"
        chosen = self.calibrated(Calibration(thresholds=tuple(thresholds.tolist())))
        return chosen.constant(named, shares.logit(), dev)

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """Precision, recall and F1, if no row has a label and none is predicted."""
        return {} if self.by_label(statistics) else dict.fromkeys(OF_LABELS, "no labels")

    def expected_text(self, evaluated: EvaluatedExample, target: Target) -> str:
        """The labels; those that are not in the training data by their names in the data."""
        if not evaluated.statistics[2] or not isinstance(target, tuple):
            return evaluated.expected
        known = [label for label in self.spec.schema.labels if label in target]
        return ", ".join(dict.fromkeys([*known, *map(str, target)]))

    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Fitted:
        """The temperature with the lowest loss, and the thresholds with the highest F1."""
        whole = scored(model, batches, MOST_SCORES)
        known = whole.targets[:, : self.labels].double()
        return cross_fitted(whole.ids, lambda rows: self._fit(whole.scores[rows], known[rows]))

    def for_validation(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Self:
        """The same task with cross-fitted thresholds, for uncalibrated probabilities."""
        rows = self.fitted(model, batches).rows
        return self.calibrated(self.spec.calibration, {id_: found.untempered for id_, found in rows.items()})

    def _fit(self, scores: Tensor, known: Tensor) -> Calibration:
        def loss(temperature: float) -> float:
            return float(F.binary_cross_entropy_with_logits(scores / temperature, known, reduction="sum"))

        temperature = best_temperature(loss)
        likely, expected = (scores / temperature).sigmoid().numpy(), known.numpy()
        if self.metric.name != "macro_f1":
            return Calibration(temperature, best_thresholds(likely, expected))
        apart = (best_thresholds(likely[:, [label]], expected[:, [label]]) for label in range(self.labels))
        return Calibration(temperature, tuple(threshold for (threshold,) in apart))

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelsPrediction]:
        """The labels of each row above their thresholds, with the probability of each."""
        labels = self.spec.schema.labels
        with torch.no_grad():
            scores = scores_of(model, inputs) / self.spec.calibration.temperature
        likely = scores.sigmoid().numpy()
        rows = zip(likely > self._thresholds(self.spec.calibration), likely.tolist(), strict=True)
        return [
            LabelsPrediction(self._named(predicted), dict(zip(labels, row, strict=True))) for predicted, row in rows
        ]
