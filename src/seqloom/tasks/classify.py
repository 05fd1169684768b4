"""Classify: the label of a text, a pair of texts, a sequence of vectors or a picture; `labels.py` has several.

    accuracy             the share of examples whose likeliest label is the true one; the micro F1 is the same number
    macro_f1             the mean of the F1 of each label that was said or is true
    calibration_error    how far probabilities are from the shares of right answers (15 bins)

A label that training never saw is an error whatever is said: it counts in the accuracy, and all of them together are
one more label in `macro_f1`, whose F1 is 0. The loss leaves it out, for no probability stands for it.

Scores become probabilities through the temperature of the calibration, which is 1 in training and is found on the dev
part when a model is shipped. It changes no answer. The dev part itself is then judged by halves, each read with the
temperature that the other one found (`metrics.calibration`).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.heads import ClassHeadConfig, ScoresHeadConfig, SequenceHead
from seqloom.data.schema import Target
from seqloom.errors import ConfigError
from seqloom.metrics.calibration import (
    BINS,
    Calibration,
    Fitted,
    best_temperature,
    binned,
    calibration_error,
    cross_fitted,
)
from seqloom.metrics.classification import Counts, counted
from seqloom.metrics.ratios import ratio
from seqloom.nn.types import Batch
from seqloom.tasks.abilities import Calibrator
from seqloom.tasks.inputs import sequences
from seqloom.tasks.predictions import LabelPrediction
from seqloom.tasks.sequences import OF_LABEL, SequenceTask
from seqloom.tasks.task import LOSS, HeadSettings, Judged, Meaning, Metric

UNSEEN = "(not in the training data)"
MOST_SCORES = 2**22  # of a dev part that a calibration is found on


class CalibratedTask(Calibrator, SequenceTask):
    """A task whose scores become probabilities through a temperature."""

    def temperatures(self, ids: Sequence[str]) -> Tensor:
        """[B,1] what the scores of examples are divided by."""
        return torch.tensor([[self.reading_of(id_).temperature] for id_ in ids], dtype=torch.float64)


class Classify(CalibratedTask):
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
            scores, targets = whole.scores[rows], whole.targets[rows]
            known = targets >= 0
            return Calibration(best_temperature(_cross_entropy(scores[known], targets[known])))

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


def _cross_entropy(scores: Tensor, targets: Tensor) -> Callable[[float], float]:
    """The summed loss of scores [N,K] at a temperature."""
    return lambda temperature: float(F.cross_entropy(scores / temperature, targets, reduction="sum"))


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
