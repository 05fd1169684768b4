"""Classify: the label of a text, a pair of texts, a sequence of vectors or a picture; or several labels.

    one label         accuracy     the share of examples whose likeliest label is the true one
    several labels    f1           of all labels of all examples together (micro), beside the share that is exact

A label that training never saw is an error whatever is said: it counts in the accuracy, and as a label missed. The loss
leaves it out, for no probability stands for it.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom.config.heads import ClassHeadConfig, LabelsHeadConfig, ScoresHeadConfig, SequenceHead
from seqloom.config.training import AnyFeed
from seqloom.data.batches import collate, unseen_labels
from seqloom.data.loader import Loader
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Part
from seqloom.errors import ConfigError
from seqloom.metrics.figures import Retrieved, ratio
from seqloom.models import SequenceModel
from seqloom.tasks.contract import HeadSettings, Judged, Meaning, Metric
from seqloom.tasks.predictions import LabelPrediction, LabelsPrediction
from seqloom.tasks.reading import sequences
from seqloom.tasks.sequences import SequenceTask
from seqloom.types import Batch, Loss

UNSEEN = "(not in the training data)"


class Classify(SequenceTask):
    """One label per example."""

    name = "classify"
    metric = Metric("accuracy")
    statistics = 4  # examples, right answers, loss, weight
    can_balance = True

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        if len(meaning.schema.labels) < 2:
            raise ConfigError(
                f"{len(meaning.schema.labels)} label in the training part, and a choice needs two or more",
                fix="give data with two labels at least",
            )

    def classes(self) -> int:
        """The number of labels."""
        return len(self.meaning.schema.labels)

    def head(self, made: SequenceHead, settings: HeadSettings) -> SequenceHead:
        """A softmax over the labels."""
        require_weights(settings, self.meaning.schema.labels)
        wanted = {"smoothing": settings.smoothing, "class_weights": settings.class_weights}
        if isinstance(made, ScoresHeadConfig) and made.num_classes == self.classes():
            return msgspec.structs.replace(made, **wanted)
        return ClassHeadConfig(num_classes=self.classes(), **wanted)  # type: ignore[arg-type]  # each its own kind

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head chooses one of as many labels."""
        count = self.classes()
        if not isinstance(head, ClassHeadConfig | ScoresHeadConfig) or head.num_classes != count:
            raise ConfigError(
                f"the data has {count:,} labels, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind class with num_classes = {count}",
            )

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss; nothing is carried."""
        return cast(SequenceModel, model).loss(batch._replace(inputs=sequences(batch.inputs))), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each row judged: right if its likeliest label is the true one."""
        answering = cast(SequenceModel, model)
        x = answering.features(sequences(batch.inputs))
        losses = answering.head.losses(x, batch.targets[:, None])
        said = answering.head.predict(x)[:, 0]
        columns = (said, batch.targets, *losses.of_rows())
        rows = zip(batch.ids, *(column.tolist() for column in columns), strict=True)
        return [self._judged(*row) for row in rows]

    def _judged(self, id_: str, said: int, true: int, loss: float, weight: float) -> Judged:
        labels, right = self.meaning.schema.labels, said == true
        statistics = np.array([1.0, right, loss, weight])
        return Judged(id_, labels[said], labels[true] if true >= 0 else UNSEEN, right, statistics)

    def confused(self, judged: Judged) -> tuple[tuple[str, str], ...]:
        """The true label and the one that was said."""
        return ((judged.true, judged.said),)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`accuracy` and `loss`."""
        examples, right, loss, weight = np.moveaxis(sums, -1, 0)
        return {"accuracy": ratio(right, examples), "loss": ratio(loss, weight)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelPrediction]:
        """The likeliest label of each row, with the probability of each label."""
        labels = self.meaning.schema.labels
        with torch.no_grad():
            likely = cast(SequenceModel, model)(sequences(inputs)).float().softmax(dim=-1).tolist()
        scored = [dict(zip(labels, row, strict=True)) for row in likely]
        return [LabelPrediction(max(scores, key=scores.__getitem__), scores) for scores in scored]


class ClassifySeveral(SequenceTask):
    """Any number of labels per example.

    The targets of a dev or test part have one column more than there are labels: how many labels of the example
    training never saw (`data.batches.unseen_labels`). Each is one that was missed.
    """

    name = "classify"
    metric = Metric("f1")
    statistics = 7  # examples, exact ones; labels right, said, true; loss, weight
    linear = False

    def head(self, made: SequenceHead, settings: HeadSettings) -> SequenceHead:
        """A logistic regression for each label."""
        self.refuse_settings(settings)
        return LabelsHeadConfig(num_labels=len(self.meaning.schema.labels))

    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError unless the head has an answer for each label."""
        count = len(self.meaning.schema.labels)
        if not isinstance(head, LabelsHeadConfig) or head.num_labels != count:
            raise ConfigError(
                f"the data has {count:,} labels, any of which may hold, and the model ends in {head.to_json()}",
                fix=f"give it a head of kind labels with num_labels = {count}",
            )

    def loader(self, prepared: Prepared, part: Part, feed: AnyFeed, *, seed: int, **how: Any) -> Loader[Any, Any]:
        """The steps of a part; all but the training part count labels that training never saw."""
        loader = super().loader(prepared, part, feed, seed=seed, **how)
        if part != "train":
            rows = prepared.parts[part]
            loader.make_batch = lambda chosen: _with_unseen(prepared, rows[chosen])
        return loader

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        """The summed loss; nothing is carried."""
        known = batch.targets[:, : len(self.meaning.schema.labels)]
        return cast(SequenceModel, model).loss(Batch(sequences(batch.inputs), known, batch.ids)), None

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each row judged: right if exactly the true labels were said."""
        answering, count = cast(SequenceModel, model), len(self.meaning.schema.labels)
        x = answering.features(sequences(batch.inputs))
        known, unseen = batch.targets[:, :count], batch.targets[:, count:].sum(dim=1)
        losses = answering.head.losses(x, known[:, None])
        said = answering.head.predict(x)[:, 0]
        columns = (said, known > 0, unseen, *losses.of_rows())
        rows = zip(batch.ids, *(column.tolist() for column in columns), strict=True)
        return [self._judged(*row) for row in rows]

    def _judged(
        self, id_: str, said: list[bool], known: list[bool], unseen: float, loss: float, weight: float
    ) -> Judged:
        right = said == known and not unseen
        both = sum(one and other for one, other in zip(said, known, strict=True))
        statistics = np.array([1.0, right, both, sum(said), sum(known) + unseen, loss, weight])
        true = [*self._named(known), *[UNSEEN] * int(unseen)]
        return Judged(id_, ", ".join(self._named(said)), ", ".join(true), right, statistics)

    def _named(self, chosen: Sequence[bool]) -> tuple[str, ...]:
        return tuple(label for label, yes in zip(self.meaning.schema.labels, chosen, strict=True) if yes)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`f1`, `precision` and `recall` of all labels together, `accuracy` of whole examples, and `loss`."""
        examples, exact, right, said, true, loss, weight = np.moveaxis(sums, -1, 0)
        found = Retrieved(right, said, true)
        return {
            "f1": found.f1,
            "precision": found.precision,
            "recall": found.recall,
            "accuracy": ratio(exact, examples),
            "loss": ratio(loss, weight),
        }

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[LabelsPrediction]:
        """The labels of each row that are more likely than not, with the probability of each."""
        labels = self.meaning.schema.labels
        with torch.no_grad():
            scores = cast(SequenceModel, model)(sequences(inputs)).float()
        rows = zip((scores > 0).tolist(), scores.sigmoid().tolist(), strict=True)
        return [LabelsPrediction(self._named(said), dict(zip(labels, likely, strict=True))) for said, likely in rows]


def _with_unseen(prepared: Prepared, rows: np.ndarray) -> Batch[Any, Tensor]:
    batch = collate(prepared.schema, prepared.columns, rows)
    unseen = torch.from_numpy(unseen_labels(prepared.columns, rows).astype(np.float32))
    return batch._replace(targets=torch.cat([batch.targets, unseen[:, None]], dim=1))


def require_weights(settings: HeadSettings, labels: Sequence[str]) -> None:
    """Raise ConfigError unless there is no class weight, or one for each label."""
    if settings.class_weights and len(settings.class_weights) != len(labels):
        shown = ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "")
        raise ConfigError(
            f"{len(settings.class_weights):,} class weights for {len(labels):,} labels",
            fix=f"give one for each: {shown}",
        )
