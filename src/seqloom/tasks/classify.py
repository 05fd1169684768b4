"""Classify: the label of a text, a pair of texts, a sequence of vectors or a picture; or several labels.

    accuracy             the share of examples whose likeliest label is the true one; the micro F1 is the same number
    macro_f1             the mean of the F1 of each label that was said or is true
    calibration_error    how far probabilities are from the shares of right answers (15 bins)

A label that training never saw is an error whatever is said: it counts in the accuracy, and all of them together are
one more label in `macro_f1`, whose F1 is 0. The loss leaves it out, for no probability stands for it.

Scores become probabilities through the temperature of the calibration, which is 1 in training and is found on the dev
part when a model is shipped. It changes no answer. The dev part itself is then judged by halves, each read with the
temperature that the other one found (`metrics.calibration`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.data import Part
from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, ScoresHeadConfig, SequenceHead
from seqloom.config.training import AnyFeed
from seqloom.data.loader import Loader, unseen_labels
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Target
from seqloom.errors import ConfigError
from seqloom.metrics import ratio
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
from seqloom.tasks.task import LOSS, Calibrator, HeadSettings, Judged, Meaning, Metric, Prediction

UNSEEN = "(not in the training data)"
MOST_SCORES = 2**22  # of a dev part that a calibration is found on


@dataclass(frozen=True)
class LabelPrediction(Prediction):
    """The likeliest label, and the probability of each."""

    label: str
    scores: dict[str, float]

    def shown(self) -> str:
        return self.label


@dataclass(frozen=True)
class LabelsPrediction(Prediction):
    """The labels that are more likely than not, and the probability of each."""

    labels: tuple[str, ...]
    scores: dict[str, float]

    def shown(self) -> str:
        return ", ".join(self.labels)


class Classify(Calibrator, SequenceTask):
    """One label per example."""

    name = "classify"
    settings = OF_LABEL
    metrics = (Metric("accuracy"), Metric("macro_f1"), LOSS)
    statistics = 5  # the numbers of the said and the true label, the probability of the said one, loss, weight

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        if len(meaning.schema.labels) < 2:
            raise ConfigError(
                f"{len(meaning.schema.labels)} label in the training part, and a choice needs two or more",
                fix="give data with two labels at least",
            )

    def head(self, settings: HeadSettings) -> ClassHeadConfig:
        """A softmax over the labels."""
        return class_head(settings, self.meaning.schema.labels)

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head chooses one of as many labels."""
        count = len(self.meaning.schema.labels)
        if not isinstance(head, ClassHeadConfig | ScoresHeadConfig) or head.num_classes != count:
            raise ConfigError(
                f"the data has {count:,} labels, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind class with num_classes = {count}",
            )

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged: right if its likeliest label is the true one."""
        raw = scores_of(model, batch.inputs)
        log_p = (raw / self.temperatures(batch.ids)).log_softmax(dim=-1)  # [B,K]
        true = batch.targets.cpu()
        said, known = raw.argmax(dim=-1), true >= 0
        confidence = log_p.gather(1, said[:, None])[:, 0].exp()
        losses = -log_p.gather(1, true.clamp(min=0)[:, None])[:, 0].masked_fill(~known, 0)
        columns = (said, true, confidence, losses, known)
        rows = zip(batch.ids, *(column.double().tolist() for column in columns), strict=True)
        return [self._judged(*row) for row in rows], None

    def _judged(self, id_: str, said: float, true: float, *others: float) -> Judged:
        names = (*self.meaning.schema.labels, UNSEEN)
        number = int(true) % len(names)  # -1 is the last
        statistics = np.array([said, number, *others])
        answer, truth = names[int(said)], names[number]
        return Judged(id_, answer, truth, said == true, statistics, (truth, answer))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] how often each label, and any unseen one, was right, said and true; the bins; loss and weight."""
        if times is None:
            return self._sums(statistics, np.ones(len(statistics)))
        return np.apply_along_axis(lambda one: self._sums(statistics, one), -1, np.asarray(times, np.float64))

    def _sums(self, statistics: np.ndarray, times: np.ndarray) -> np.ndarray:
        said, true, confidence = statistics.T[:3]
        counts = counted(said, true, times, len(self.meaning.schema.labels) + 1)
        bins = binned(confidence, said == true, times)
        return np.concatenate([counts, bins.ravel(), times @ statistics[:, -2:]])

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        counts, bins, loss, weight = split_sums(sums)
        return {
            "accuracy": counts.micro.f1,
            "macro_f1": counts.macro_f1,
            "calibration_error": calibration_error(bins),
            "loss": ratio(loss, weight),
        }

    def by_label(self, statistics: np.ndarray) -> dict[str, dict[str, float]]:
        return split_sums(self.summed(statistics))[0].named((*self.meaning.schema.labels, UNSEEN))

    def details(self, judged: Judged) -> dict[str, Any]:
        """The probability of what was said: the figures of a single label say no more than whether it is right."""
        return {"probability": float(judged.statistics[2])}

    def truth(self, judged: Judged, target: Target) -> str:
        """The label, one that training never saw by the name that the data has for it."""
        return target if judged.true == UNSEEN and isinstance(target, str) else judged.true

    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Fitted:
        """The temperature with the least loss."""
        whole = scored(model, batches, MOST_SCORES)

        def fit(rows: np.ndarray) -> Calibration:
            known = whole.targets[rows] >= 0
            scores, targets = whole.scores[rows][known], whole.targets[rows][known]
            return Calibration(
                best_temperature(lambda by: float(F.cross_entropy(scores / by, targets, reduction="sum")))
            )

        return cross_fitted(whole.ids, fit)

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelPrediction]:
        """The likeliest label of each row, with the probability of each label."""
        labels = self.meaning.schema.labels
        with torch.no_grad():
            raw = scores_of(model, inputs)
            likely = (raw / self.meaning.calibration.temperature).softmax(dim=-1)
        rows = zip(raw.argmax(dim=-1).tolist(), likely.tolist(), strict=True)
        return [LabelPrediction(labels[said], dict(zip(labels, row, strict=True))) for said, row in rows]


def scores_of(model: nn.Module, inputs: Any) -> Tensor:
    """[B,K] the scores of a model before any calibration, on the host in float64, so that probabilities add up to 1."""
    return cast(Tensor, model(sequences(inputs))).detach().cpu().double()


class ScoredLabels(NamedTuple):
    """Rows with their scores before any calibration."""

    scores: Tensor  # [N,K]
    targets: Tensor
    ids: tuple[str, ...]


def scored(model: nn.Module, batches: Iterable[Batch[Any, Tensor]], most: int) -> ScoredLabels:
    """The rows of all batches; where they have more scores than `most`, of every second, fourth, ... batch.

    Batches hold inputs of about one length: those that are left out are spread over all lengths.
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
    """Sums [...,3K + 45 + 2] as counts of labels, bins [...,3,15], loss and weight."""
    bins = sums[..., -2 - 3 * BINS : -2].reshape(*sums.shape[:-1], 3, BINS)
    return Counts.of(sums[..., : -2 - 3 * BINS]), bins, sums[..., -2], sums[..., -1]


def class_head(settings: HeadSettings, labels: Sequence[str]) -> ClassHeadConfig:
    """A softmax over labels; ConfigError unless there is no class weight, or one for each label."""
    weights = settings.class_weights
    if weights and len(weights) != len(labels):
        shown = ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "")
        found = f"{len(weights):,} class weights for {len(labels):,} labels"
        raise ConfigError(found, fix=f"give one for each: {shown}")
    return ClassHeadConfig(num_classes=len(labels), smoothing=settings.smoothing, class_weights=weights)


# Several labels: any number of them per example, each with a probability of its own.
#
#     f1                   of all labels of all examples together (micro), beside their precision and recall
#     macro_f1             the mean of the F1 of each label that was said or is true
#     accuracy             the share of examples with exactly the true labels
#     calibration_error    how far probabilities are from the shares of true labels (15 bins over all labels)
#
# A label is said when it is above its threshold. When a model is shipped, the temperature and a threshold for each
# label are found on the dev part: the thresholds that make the largest F1, or each label's own largest F1 where
# `macro_f1` decides. What is told of the dev part is cross-fitted (`metrics.calibration`): each half of its rows is
# judged with what the other half found. So are the looks in training, whose F1 decides which weights are the best: with
# a half as every threshold, rare labels are never said at first and weights would be chosen by a figure that no shipped
# model has. A look asks the model twice for that, and its loss is that of plain scores.

OF_LABELS = ("f1", "precision", "recall", "macro_f1")


class ClassifySeveral(Calibrator, SequenceTask):
    """Any number of labels per example.

    The targets of a dev or test part have one column more than there are labels: how many labels of the example
    training never saw (`data.loader.unseen_labels`). Each is one that was missed.
    """

    name = "classify"
    metrics = (Metric("f1"), Metric("macro_f1"), Metric("accuracy"), LOSS)

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        # examples, exact ones, labels that training never saw; said and true labels; bins; loss, weight
        self.statistics = 3 + 2 * words_of(self.labels) + 3 * BINS + 2

    @property
    def labels(self) -> int:
        """The number of labels."""
        return len(self.meaning.schema.labels)

    def head(self, settings: HeadSettings) -> LabelsHeadConfig:
        """A logistic regression for each label."""
        return LabelsHeadConfig(num_labels=self.labels)

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head has an answer for each label."""
        if not isinstance(head, LabelsHeadConfig) or head.num_labels != self.labels:
            raise ConfigError(
                f"the data has {self.labels:,} labels, any of which may hold, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind labels with num_labels = {self.labels}",
            )

    def fed(self, prepared: Prepared, part: Part, feed: AnyFeed, seed: int) -> Loader[Any, Any]:
        """The steps of a part; all but the training part count labels that training never saw."""
        steps = super().fed(prepared, part, feed, seed)
        rows, columns = prepared.parts[part], prepared.columns

        def with_unseen(chosen: np.ndarray) -> Batch[Any, Tensor]:
            batch = steps.make_batch(chosen)
            unseen = torch.from_numpy(unseen_labels(columns, rows[chosen]).astype(np.float32))
            return cast(Batch[Any, Tensor], batch._replace(targets=torch.cat([batch.targets, unseen[:, None]], dim=1)))

        return steps if part == "train" else Loader(steps.plan, with_unseen)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        return super().loss(model, batch._replace(targets=batch.targets[:, : self.labels]), state)

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged: right if exactly the true labels were said."""
        scores = scores_of(model, batch.inputs) / self.temperatures(batch.ids)
        targets = batch.targets.cpu().double()
        known, unseen = targets[:, : self.labels], targets[:, self.labels :].sum(dim=1)
        losses = F.binary_cross_entropy_with_logits(scores, known, reduction="none").sum(dim=1)
        likely = scores.sigmoid().numpy()
        said = likely > np.stack([self._thresholds(self.reading_of(id_)) for id_ in batch.ids])
        columns = (likely, said, known.numpy() > 0, unseen.tolist(), losses.tolist())
        return [self._judged(*row) for row in zip(batch.ids, *columns, strict=True)], None

    def _thresholds(self, calibration: Calibration) -> np.ndarray:
        """[K] the probability from which on each label is said."""
        return np.array(calibration.thresholds or [HALF] * self.labels)

    def _judged(
        self, id_: str, likely: np.ndarray, said: np.ndarray, known: np.ndarray, unseen: float, loss: float
    ) -> Judged:
        right = bool((said == known).all()) and not unseen
        sets = packed(np.stack([said, known])).ravel()
        bins = binned(likely, known, np.ones(self.labels)).ravel()
        statistics = np.concatenate([[1.0, right, unseen], sets, bins, [loss, self.labels]])
        true = [*self._named(known), *[UNSEEN] * int(unseen)]
        return Judged(id_, ", ".join(self._named(said)), ", ".join(true), right, statistics)

    def _named(self, chosen: np.ndarray) -> tuple[str, ...]:
        return tuple(self.meaning.schema.labels[number] for number in np.flatnonzero(chosen))

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,W] examples and exact ones; how often each label, and any unseen one, was right, said and true; ..."""
        often = np.ones((1, len(statistics))) if times is None else np.atleast_2d(np.asarray(times, np.float64))
        words = words_of(self.labels)
        said, true, others = np.split(statistics[:, 3:], [words, 2 * words], axis=1)
        plain = often @ statistics[:, :3]
        counts = counted_sets(said, true, often, self.labels).reshape(-1, 3, self.labels)
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
        return split_sums(self.summed(statistics)[2:])[0].named((*self.meaning.schema.labels, UNSEEN))

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """All that counts labels, where no row has one and none was said."""
        return {} if self.by_label(statistics) else dict.fromkeys(OF_LABELS, "no labels")

    def truth(self, judged: Judged, target: Target) -> str:
        """The labels, those that training never saw by the names that the data has for them."""
        if not judged.statistics[2] or not isinstance(target, tuple):
            return judged.true
        known = [label for label in self.meaning.schema.labels if label in target]
        return ", ".join(dict.fromkeys([*known, *map(str, target)]))

    def fitted(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Fitted:
        """The temperature with the least loss, and with it the thresholds with the largest F1."""
        whole = scored(model, batches, MOST_SCORES)
        known = whole.targets[:, : self.labels].double()
        return cross_fitted(whole.ids, lambda rows: self._fit(whole.scores[rows], known[rows]))

    def looking(self, model: nn.Module, batches: Iterable[Batch[Any, Tensor]]) -> Self:
        """The same task with the thresholds that the other half of dev asks for, of plain probabilities."""
        rows = self.fitted(model, batches).rows
        return self.calibrated(self.meaning.calibration, {id_: found.untempered for id_, found in rows.items()})

    def _fit(self, scores: Tensor, known: Tensor) -> Calibration:
        def loss(temperature: float) -> float:
            return float(F.binary_cross_entropy_with_logits(scores / temperature, known, reduction="sum"))

        temperature = best_temperature(loss)
        likely, true = (scores / temperature).sigmoid().numpy(), known.numpy()
        if self.metric.name != "macro_f1":
            return Calibration(temperature, best_thresholds(likely, true))
        apart = (best_thresholds(likely[:, [label]], true[:, [label]]) for label in range(self.labels))
        return Calibration(temperature, tuple(threshold for (threshold,) in apart))

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelsPrediction]:
        """The labels of each row that are likely enough, with the probability of each."""
        labels = self.meaning.schema.labels
        with torch.no_grad():
            scores = scores_of(model, inputs) / self.meaning.calibration.temperature
        likely = scores.sigmoid().numpy()
        rows = zip(likely > self._thresholds(self.meaning.calibration), likely.tolist(), strict=True)
        return [LabelsPrediction(self._named(said), dict(zip(labels, row, strict=True))) for said, row in rows]
