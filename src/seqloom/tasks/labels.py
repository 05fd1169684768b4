"""Several labels: any number of them per example, each with a probability of its own.

    f1                   of all labels of all examples together (micro), beside their precision and recall
    macro_f1             the mean of the F1 of each label that was said or is true
    accuracy             the share of examples with exactly the true labels
    calibration_error    how far probabilities are from the shares of true labels (15 bins over all labels)

A label is said when it is above its threshold. When a model is shipped, the temperature and a threshold for each label
are found on the dev part: the thresholds that make the largest F1, or each label's own largest F1 where `macro_f1`
decides. What is told of the dev part is cross-fitted (`metrics.calibration`): each half of its rows is judged with what
the other half found. So are the looks in training, whose F1 decides which weights are the best: with a half as every
threshold, rare labels are never said at first and weights would be chosen by a figure that no shipped model has. A look
asks the model twice for that, and its loss is that of plain scores.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.data import Part
from seqloom.config.heads import LabelsHeadConfig, SequenceHead
from seqloom.config.training import AnyFeed
from seqloom.data.batches import collate, unseen_labels
from seqloom.data.loader import Loader
from seqloom.data.prepared import Prepared
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
from seqloom.metrics.classification import HALF, best_thresholds, counted_sets, packed, words_of
from seqloom.metrics.ratios import ratio
from seqloom.nn.types import Batch, Loss
from seqloom.tasks.classify import MOST_SCORES, UNSEEN, CalibratedTask, scored, scores_of, split_sums
from seqloom.tasks.predictions import LabelsPrediction
from seqloom.tasks.task import LOSS, HeadSettings, Judged, Meaning, Metric

OF_LABELS = ("f1", "precision", "recall", "macro_f1")


class ClassifySeveral(CalibratedTask):
    """Any number of labels per example.

    The targets of a dev or test part have one column more than there are labels: how many labels of the example
    training never saw (`data.batches.unseen_labels`). Each is one that was missed.
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

    def loader(self, prepared: Prepared, part: Part, feed: AnyFeed, *, seed: int, **how: Any) -> Loader[Any, Any]:
        """The steps of a part; all but the training part count labels that training never saw."""
        loader = super().loader(prepared, part, feed, seed=seed, **how)
        if part != "train":
            rows = prepared.parts[part]
            loader.make_batch = lambda chosen: _with_unseen(prepared, rows[chosen])
        return loader

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
        found = counts.micro
        return {
            "f1": found.f1,
            "precision": found.precision,
            "recall": found.recall,
            "macro_f1": counts.macro_f1,
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


def _with_unseen(prepared: Prepared, rows: np.ndarray) -> Batch[Any, Tensor]:
    batch = collate(prepared.schema, prepared.columns, rows)
    unseen = torch.from_numpy(unseen_labels(prepared.columns, rows).astype(np.float32))
    return batch._replace(targets=torch.cat([batch.targets, unseen[:, None]], dim=1))
