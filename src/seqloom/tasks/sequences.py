"""What the tasks with one answer per sequence share: the recipes, and what a model of one's own must be.

The default is `cnn` for text: it needs little data, trains in seconds on a processor, and order matters to it only
where it should. Vectors are measured over time, so a memory reads them (`gru`); pictures have filters (`conv2d`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig, MappedHead, SequenceHead
from seqloom.config.inputs import FiltersConfig, InputConfig, PictureConfig, VectorsConfig
from seqloom.config.models import AnyModel, ElementModelConfig, EmbedderConfig, SequenceModelConfig
from seqloom.config.training import AnyFeed
from seqloom.errors import ConfigError
from seqloom.nn.models import SequenceModel
from seqloom.recipes.bodies import Size
from seqloom.tasks.inputs import input_of, require_input, sequences, wrong_shape
from seqloom.tasks.task import HeadSettings, Task

DEFAULTS: dict[type[InputConfig], str] = {VectorsConfig: "gru", FiltersConfig: "conv2d"}


class SequenceTask(Task):
    """One answer per sequence of symbols or vectors, or per picture."""

    def recipes(self) -> list[str]:
        """The recipes that make a classifier of this kind of input."""
        kind, layer = self.meaning.schema.input, input_of(self.meaning)
        names = recipes.names("picture-classifier" if isinstance(layer, PictureConfig) else "classifier")
        default = DEFAULTS.get(type(layer), "cnn")
        possible = [name for name in names if name != "linear" or kind.reads_tokens]  # it counts symbols
        return [default, *(name for name in possible if name != default)]

    def model(self, recipe: str, size: Size, head: HeadSettings) -> SequenceModelConfig:
        """The model that a recipe makes."""
        answer = self.head(head)
        inputs = input_of(self.meaning)
        if not isinstance(inputs, PictureConfig):
            return recipes.sequence_model(recipe, inputs=inputs, head=answer, size=size)
        height, width, channels = self.meaning.sizes
        made = recipes.picture_classifier(
            recipe, height=height, width=width, channels=channels, num_classes=2, size=size
        )
        return msgspec.structs.replace(made, head=answer)

    def adapted(self, model: AnyModel) -> SequenceModelConfig:
        """The same model with the head that this task needs; of one that answers for elements or by vectors
        the encoder.
        """
        if isinstance(model, EmbedderConfig):
            head = ClassHeadConfig(num_classes=2)
            model = SequenceModelConfig(encoder=model.encoder, pooling=model.pooling, dropout=model.dropout, head=head)
        if isinstance(model, ElementModelConfig):
            model = SequenceModelConfig(encoder=model.encoder, head=ClassHeadConfig(num_classes=2))
        if not isinstance(model, SequenceModelConfig):
            raise wrong_shape(self.name, SequenceModelConfig.kind(), model)
        require_input(self.meaning, model.encoder.input)
        return msgspec.structs.replace(model, head=self._adapted_head(model.head))

    def _adapted_head(self, before: SequenceHead) -> SequenceHead:
        """The head that answers; where the vector was the scores of as many answers, it still is."""
        head = self.head(HeadSettings())
        ready = head.unmapped()
        return ready if isinstance(before, type(ready)) and before.answers == ready.answers else head

    def require(self, model: AnyModel) -> None:
        """Raise ConfigError for another shape of model, input or answer."""
        if not isinstance(model, SequenceModelConfig):
            raise wrong_shape(self.name, SequenceModelConfig.kind(), model)
        require_input(self.meaning, model.encoder.input)
        self.require_head(model.head)

    def has_one_shape(self, feed: AnyFeed) -> bool:
        """Whether all full batches have one shape: pictures do, and full rows."""
        return self.meaning.schema.input.fixed_size or super().has_one_shape(feed)

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] what the head reads of each input, of length one."""
        pooled = cast(SequenceModel, model).features(sequences(inputs)).values[:, 0]
        return F.normalize(pooled, dim=-1)

    def vector_size(self, model: AnyModel) -> int:
        """How many numbers the head reads."""
        assert isinstance(model, SequenceModelConfig), "require has seen it"
        return model.widths()[-1]

    @abstractmethod
    def head(self, settings: HeadSettings) -> MappedHead:
        """The head that answers."""

    @abstractmethod
    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError if a head cannot answer."""

    def temperatures(self, ids: Sequence[str]) -> Tensor:
        """[B,1] what the scores of examples are divided by."""
        return torch.tensor([[self.reading_of(id_).temperature] for id_ in ids], dtype=torch.float64)

    def refuse_settings(self, settings: HeadSettings) -> None:
        """Raise ConfigError for settings that are about one class of several, where there is none."""
        if settings.smoothing:
            raise ConfigError(
                f"smoothing is for one label of several, and {self.name} has none here", fix="leave it out"
            )
        if settings.class_weights:
            raise ConfigError(
                f"class weights are for one label of several, not for {self.meaning.schema.target}",
                fix="leave them out",
            )
