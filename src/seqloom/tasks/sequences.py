"""What tasks share whose models are an encoder and a head: one answer per sequence, or one per element of it.

The default for whole sequences is `cnn` for text: it needs little data, trains in seconds on a processor, and order
matters to it only where it should. Vectors are measured over time, so a memory reads them (`gru`); pictures have
filters (`conv2d`). For elements it is `bilstm`: what one means depends on both sides of it, and sentences are few.
"""

from abc import abstractmethod
from typing import Any, cast

import msgspec
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig, ElementHead, MappedHead, SequenceHead
from seqloom.config.inputs import FiltersConfig, InputConfig, PictureConfig, VectorsConfig
from seqloom.config.models import AnyModel, ElementModelConfig, EmbedderConfig, SequenceModelConfig
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch, Loss
from seqloom.recipes.families import Size
from seqloom.tasks.abilities import Vectorizer
from seqloom.tasks.inputs import encoder_in, input_of, require_shape, sequences, stepped_input_of
from seqloom.tasks.task import HeadSettings, Setting, Task

DEFAULTS: dict[type[InputConfig], str] = {VectorsConfig: "gru", FiltersConfig: "conv2d"}
OF_NUMBERS: frozenset[Setting] = frozenset({"vectors"})
OF_LABEL: frozenset[Setting] = frozenset({"smoothing", "class_weights", "vectors"})


class SequenceTask(Vectorizer):
    """One answer per sequence of symbols or vectors, or per picture."""

    settings = OF_NUMBERS

    def recipes(self) -> list[str]:
        """The recipes that make a classifier of this kind of input."""
        layer, tokens = input_of(self.meaning), self.meaning.schema.input.reads_tokens
        shape: recipes.Shape = "picture-classifier" if isinstance(layer, PictureConfig) else "classifier"
        names = recipes.names(shape, DEFAULTS.get(type(layer), "cnn"))
        return [name for name in names if name != "linear" or tokens]  # it counts symbols

    def model(self, recipe: str, size: Size, head: HeadSettings) -> SequenceModelConfig:
        self.require_settings(head)
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
        any_head = ClassHeadConfig(num_classes=2)
        if isinstance(model, EmbedderConfig):
            pooling, dropout = model.pooling, model.dropout
            model = SequenceModelConfig(encoder=model.encoder, pooling=pooling, dropout=dropout, head=any_head)
        if isinstance(model, ElementModelConfig):
            model = SequenceModelConfig(encoder=model.encoder, head=any_head)
        model = require_shape(self, SequenceModelConfig, model)
        head = self.head(HeadSettings())
        ready = head.unmapped()  # where the vector was the scores of as many answers, it still is
        same = isinstance(model.head, type(ready)) and model.head.answers == ready.answers
        return msgspec.structs.replace(model, head=ready if same else head)

    def require(self, model: AnyModel) -> None:
        self.require_head(require_shape(self, SequenceModelConfig, model).head)

    @abstractmethod
    def head(self, settings: HeadSettings) -> MappedHead:
        """The head that answers."""

    @abstractmethod
    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError if a head cannot answer."""

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        return cast(SequenceModel, model).loss(batch._replace(inputs=sequences(batch.inputs))), None

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] what the head reads of each input, of length one."""
        pooled = cast(SequenceModel, model).features(sequences(inputs)).values[:, 0]
        return F.normalize(pooled, dim=-1)

    def vector_size(self, model: AnyModel) -> int:
        """How many numbers the head reads."""
        assert isinstance(model, SequenceModelConfig), "require has seen it"
        return model.widths()[-1]


class ElementTask(Task):
    """One answer per word or step."""

    settings = OF_NUMBERS
    made_by = "tagger", "bilstm"

    def model(self, recipe: str, size: Size, head: HeadSettings) -> ElementModelConfig:
        self.require_settings(head)
        made = recipes.tagger(recipe, inputs=stepped_input_of(self.meaning), num_tags=2, size=size)
        return msgspec.structs.replace(made, head=self.head(head))

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same encoder with the head that this task needs, of the kind that the model has."""
        encoder = encoder_in(self, ElementModelConfig, model)
        head = HeadSettings(kind="crf" if isinstance(model.head, CrfHeadConfig) else "class")
        return ElementModelConfig(encoder=encoder, head=self.head(head))

    def require(self, model: AnyModel) -> None:
        self.require_head(require_shape(self, ElementModelConfig, model).head)

    @abstractmethod
    def head(self, settings: HeadSettings) -> ElementHead:
        """The head that answers."""

    @abstractmethod
    def require_head(self, head: ElementHead) -> None:
        """Raise ConfigError if a head cannot answer."""
