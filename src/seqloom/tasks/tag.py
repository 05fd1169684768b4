"""Tag: a tag for each word of a sentence or each step of a sequence.

    f1          of spans, where tags form a scheme: borders and type right, counted as conlleval does (and seqeval)
    accuracy    of tags; what decides where tags mark no spans (parts of speech)

A tag that training never saw is an error whatever is said. Neighbours of that kind are read as one span of a type that
nobody can say, so it counts as missed. The default is `bilstm`: a tag depends on both sides, and sentences are few.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig
from seqloom.config.models import AnyModel, ElementModelConfig
from seqloom.data.tags import form_fault
from seqloom.errors import ConfigError
from seqloom.metrics.figures import Retrieved, ratio
from seqloom.metrics.spans import count_spans
from seqloom.models import ElementModel
from seqloom.recipes import Size
from seqloom.tasks.classify import require_weights
from seqloom.tasks.contract import HeadSettings, Judged, Meaning, Metric, Task
from seqloom.tasks.predictions import TagsPrediction
from seqloom.tasks.reading import require_input, stepped_input_of, wrong_shape
from seqloom.tasks.showing import cut_short
from seqloom.types import Batch

DEFAULT = "bilstm"
UNSEEN = "I-?"  # neighbours of it are one span; no label is called so, for training would have seen it


class Tag(Task):
    """A tag for each element."""

    name = "tag"
    statistics = 7  # elements, right ones; spans right, said, true; loss, weight

    def __init__(self, meaning: Meaning) -> None:
        super().__init__(meaning)
        if len(meaning.schema.labels) < 2:
            raise ConfigError(
                f"{len(meaning.schema.labels)} tag in the training part, and a choice needs two or more",
                fix="give data with two tags at least",
            )
        self.in_scheme = all(form_fault(label) is None for label in meaning.schema.labels)
        self.metric = Metric("f1" if self.in_scheme else "accuracy")

    def recipes(self) -> list[str]:
        """The recipes that make a tagger."""
        return [DEFAULT, *(name for name in recipes.names("tagger") if name != DEFAULT)]

    def model(self, recipe: str, size: Size, head: HeadSettings) -> ElementModelConfig:
        """The model that a recipe makes."""
        labels, inputs = self.meaning.schema.labels, stepped_input_of(self.meaning)
        require_weights(head, labels)
        model = recipes.tagger(recipe, inputs=inputs, num_tags=len(labels), size=size)
        settings = {"smoothing": head.smoothing, "class_weights": head.class_weights}
        return msgspec.structs.replace(model, head=msgspec.structs.replace(model.head, **settings))

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same model with a head for these tags."""
        if not isinstance(model, ElementModelConfig):
            raise wrong_shape(self.name, ElementModelConfig.kind(), model)
        require_input(self.meaning, model.encoder.input)
        return msgspec.structs.replace(model, head=ClassHeadConfig(num_classes=len(self.meaning.schema.labels)))

    def require(self, model: AnyModel) -> None:
        """Raise ConfigError for another shape of model or input, or other tags."""
        if not isinstance(model, ElementModelConfig):
            raise wrong_shape(self.name, ElementModelConfig.kind(), model)
        require_input(self.meaning, model.encoder.input)
        labels, head = self.meaning.schema.labels, model.head
        one_each = isinstance(head, ClassHeadConfig) and head.num_classes == len(labels)
        if not one_each and not (isinstance(head, CrfHeadConfig) and head.labels == labels):
            raise ConfigError(
                f"the data has {len(labels):,} tags, and the model ends in another head: {head.kind()}",
                fix=f"give it a head of kind class with num_classes = {len(labels)}, or crf with these tags in order",
            )

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor]) -> list[Judged]:
        """Each row judged: right if all of its tags are."""
        answering = cast(ElementModel, model)
        x = answering.features(batch.inputs)
        losses = answering.head.losses(x, batch.targets)
        columns = (x.lengths, answering.head.predict(x), batch.targets, *losses.of_rows())
        rows = zip(batch.ids, *(column.tolist() for column in columns), strict=True)
        return [self._judged(id_, said[:length], true[:length], *sums) for id_, length, said, true, *sums in rows]

    def _judged(self, id_: str, said: list[int], true: list[int], loss: float, weight: float) -> Judged:
        said_tags, true_tags = self._named(said), self._named(true)
        right = sum(one == other for one, other in zip(said, true, strict=True))
        found = count_spans(said_tags, true_tags) if self.in_scheme else (0, 0, 0)
        statistics = np.array([len(true), right, *found, loss, weight])
        shown = cut_short(" ".join(said_tags)), cut_short(" ".join(true_tags))
        return Judged(id_, *shown, right == len(true), statistics)

    def _named(self, tags: list[int]) -> tuple[str, ...]:
        labels = self.meaning.schema.labels
        return tuple(labels[tag] if tag >= 0 else UNSEEN for tag in tags)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """`f1`, `precision` and `recall` of spans where there are any, `accuracy` of tags, and `loss`."""
        elements, right, spans_right, spans_said, spans_true, loss, weight = np.moveaxis(sums, -1, 0)
        found = Retrieved(spans_right, spans_said, spans_true)
        of_spans = {"f1": found.f1, "precision": found.precision, "recall": found.recall} if self.in_scheme else {}
        return of_spans | {"accuracy": ratio(right, elements), "loss": ratio(loss, weight)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[TagsPrediction]:
        """The tags of each row; `located` adds the text."""
        answering = cast(ElementModel, model)
        with torch.no_grad():
            x = answering.features(inputs)
            rows = zip(x.lengths.tolist(), answering.head.predict(x).tolist(), strict=True)
        return [TagsPrediction.of(self._named(tags[:length]), in_scheme=self.in_scheme) for length, tags in rows]
