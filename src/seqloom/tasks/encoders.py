"""Shared parts of tasks whose models are an encoder and a head: one prediction per sequence, or one per element.

Also selects the input layer for the data, and checks that of a custom model.

The default for text is `cnn`: it needs little data and trains in seconds on a CPU. For vectors, which are mostly
measured over time, it is `gru`; for pictures `conv2d`; for tags and series `bilstm`, which sees both sides of a word.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig, ElementHead, MappedHead, SequenceHead, UnmappedHead
from seqloom.config.inputs import (
    AnyInput,
    CharTfidfConfig,
    FiltersConfig,
    InputConfig,
    NgramsConfig,
    PictureConfig,
    SequenceInput,
    SpelledConfig,
    TfidfConfig,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.models import (
    AnyModel,
    ElementModelConfig,
    EmbedderConfig,
    LanguageModelConfig,
    ModelConfig,
    SequenceModelConfig,
)
from seqloom.config.stacks import EncoderConfig
from seqloom.config.tokenizers import AnyTokenizer, WordsConfig
from seqloom.data.kinds.related import longest_texts
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch, Loss, Padded, Spelled, Subwords
from seqloom.recipes.families import AnySize
from seqloom.tasks.task import Baseline, HeadSettings, ModelSpec, Prediction, Setting, Streamer, Task, Vectorizer

ENCODING = (SequenceModelConfig, ElementModelConfig, EmbedderConfig)  # models of an encoder and a head
Shape = TypeVar("Shape", bound=ModelConfig)


def input_of(spec: ModelSpec) -> AnyInput:
    """The input layer that fits the data."""
    return spec.schema.input.layer(spec.sizes, spec.tokenizer)


def stepped_input_of(spec: ModelSpec) -> SequenceInput:
    """The same for sequences: tokens, words with their characters, or vectors."""
    layer = input_of(spec)
    assert not isinstance(layer, PictureConfig), "a task of steps reads no pictures"
    return layer


def require_input(spec: ModelSpec, given: InputConfig) -> None:
    """Raise ConfigError if an input layer does not fit the data."""
    expected, found = _reads(input_of(spec)), _reads(given)
    if expected != found:
        raise ConfigError(f"the data has {expected}, but the model reads {found}", fix="change the model's input")


def _reads(given: InputConfig) -> str:
    """Describe what an input layer reads; two layers with the same description read the same data."""
    if isinstance(given, SpelledConfig | CharTfidfConfig):
        return f"{given.vocab_size:,} tokens with their characters"
    if isinstance(given, TokensConfig | NgramsConfig | TfidfConfig):
        return f"{given.vocab_size:,} tokens"
    if isinstance(given, VectorsConfig):
        return f"vectors of {given.size:,}"
    assert isinstance(given, PictureConfig)
    return f"pictures of {given.height} x {given.width} x {given.channels}"


def reads_letters(model: AnyModel) -> bool:
    """Whether a model encodes the characters of words."""
    return isinstance(_words_input(model), SpelledConfig)


def counts_letters(model: AnyModel) -> bool:
    """Whether a linear model counts the character n-grams of words."""
    return isinstance(_words_input(model), CharTfidfConfig)


def counts_pairs(model: AnyModel) -> bool:
    """Whether a linear model counts pairs of tokens too."""
    given = _words_input(model)
    return isinstance(given, TfidfConfig) and given.order > 1


def word_vectors_of(model: AnyModel) -> int:
    """The size of the word vectors of a model; ConfigError for one that has none."""
    given = _words_input(model)
    if isinstance(given, TokensConfig | SpelledConfig) and isinstance(model, ENCODING):
        return model.encoder.width if given.size is None else given.size
    raise ConfigError(
        "word vectors are for models with an embedding table, but the input of this model is "
        f"{'none' if given is None else given.kind()}",
        fix="choose a recipe other than linear, or leave out --word-vectors",
    )


def with_words_input(model: AnyModel, **settings: Any) -> AnyModel:
    """The same model with these settings of the input that reads words."""
    assert isinstance(model, ENCODING), "only these read words one by one"
    changed = msgspec.structs.replace(model.encoder.input, **settings)
    return msgspec.structs.replace(model, encoder=msgspec.structs.replace(model.encoder, input=changed))


def _words_input(model: AnyModel) -> InputConfig | None:
    return model.encoder.input if isinstance(model, ENCODING) else None


def has_words(schema: Schema) -> bool:
    """Whether the input is one text or words, so that their characters can be counted."""
    return schema.input.in_words or schema.input.is_text


def require_letters(schema: Schema, tokenizer: AnyTokenizer, *, counted: bool = False) -> WordsConfig:
    """The tokenizer, if the characters of its words can be encoded, or `counted`; ConfigError if not."""
    if counted and not has_words(schema):
        raise ConfigError(
            f"character n-grams are for one text, but the input is {schema.input}", fix="leave out --char-encoder"
        )
    if not counted and not schema.input.in_words:
        raise ConfigError(
            f"a character encoder needs words, but the input is {schema.input}",
            fix="leave out --char-encoder, or choose --tokenizer characters",
        )
    if not isinstance(tokenizer, WordsConfig):
        raise ConfigError(
            f"a character encoder needs --tokenizer words, but the tokenizer is {tokenizer.kind()}",
            fix="choose --tokenizer words, or leave out --char-encoder",
        )
    return tokenizer


def require_vectors(task: type[Task], schema: Schema, tokenizer: AnyTokenizer) -> None:
    """Raise ConfigError if a model for this data cannot start from word vectors."""
    if not schema.input.reads_tokens or "word_vectors" not in task.settings:
        raise ConfigError(
            f"word vectors are for classify, regress, tag and embed with text, but this is {schema.task} with "
            f"{schema.input}",
            fix="leave out --word-vectors",
        )
    if not isinstance(tokenizer, WordsConfig):
        raise ConfigError(
            f"word vectors need --tokenizer words, but the tokenizer is {tokenizer.kind()}",
            fix="choose --tokenizer words, or leave out --word-vectors",
        )


def sequences(inputs: Any) -> Any:
    """The inputs of a model with one output per sequence: words in subwords are read as subwords."""
    return inputs.pieces if isinstance(inputs, Subwords) else inputs


def elements(inputs: Any) -> Padded:
    """The words or steps of a batch, one for each target of a task with one prediction per element."""
    read: Padded = (
        inputs.firsts if isinstance(inputs, Subwords) else inputs[0] if isinstance(inputs, Spelled) else inputs
    )
    return read


def longest_input(model: AnyModel) -> int | None:
    """The most tokens or steps of an input that a model has positions for; None: no limit.

    Taggers read long inputs in windows, so they have no limit.
    """
    if isinstance(model, LanguageModelConfig):
        limit = model.decoder.limit()
        return None if limit is None else limit - 1  # BEGIN comes first
    endless = isinstance(model, ElementModelConfig) or isinstance(model.encoder.input, PictureConfig)
    return None if endless else model.encoder.limit()


def lengths_read(model: AnyModel, prepared: Prepared) -> np.ndarray:
    """[N] the number of tokens or steps of each row that a model reads together; texts of pairs are read one by one."""
    column = prepared.columns["input"]
    return longest_texts(column) if isinstance(model, EmbedderConfig) else np.asarray(column.lengths)


def require_shape(task: Task, shape: type[Shape], model: AnyModel) -> Shape:
    """The model, if it has the shape that a task needs and fits its data; ConfigError if not."""
    if not isinstance(model, shape):
        raise _wrong_shape(task, shape, model)
    stack = model.decoder if isinstance(model, LanguageModelConfig) else model.encoder
    require_input(task.spec, stack.input)
    if any(layer.mixer.reads_edges() for layer in stack.layers) and not task.spec.schema.input.has_edges:
        raise ConfigError(
            f"the model attends along the edges of a graph, but the input is {task.spec.schema.input}, without edges",
            fix="use data with nodes and edges, or a model without the pattern 'edges'",
        )
    return model


def _wrong_shape(task: Task, wanted: type[ModelConfig], found: AnyModel) -> ConfigError:
    text = f"{task.name} needs a model of kind {wanted.kind()}, found one of kind {found.kind()}"
    return ConfigError(text, fix=f"give a model of kind {wanted.kind()}")


def encoder_in(task: Task, wanted: type[ModelConfig], model: AnyModel) -> EncoderConfig:
    """The encoder of a model that reads the data of a task, to be used with another head.

    ConfigError for a model without an encoder, or whose encoder no other head can use.
    """
    if not isinstance(model, ENCODING):
        raise _wrong_shape(task, wanted, model)
    if isinstance(model.head, UnmappedHead):
        raise ConfigError(
            "the encoder of 'linear' computes the scores of its own labels, so no other head can use it",
            fix="give a model of another recipe",
        )
    require_input(task.spec, model.encoder.input)
    return model.encoder


DEFAULTS: dict[type[InputConfig], str] = {VectorsConfig: "gru", FiltersConfig: "conv2d"}
OF_NUMBERS: frozenset[Setting] = frozenset({"word_vectors"})
OF_LABEL: frozenset[Setting] = frozenset({"label_smoothing", "class_weights", "word_vectors"})


class _Scores(nn.Module):
    """A stand-in for a model: it returns scores [N,K] that were computed before."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, inputs: Any) -> Tensor:
        """Return the scores; the inputs are ignored."""
        return self.scores


class SequenceTask(Streamer, Vectorizer):
    """One prediction per sequence of tokens or vectors, or per picture."""

    settings = OF_NUMBERS

    def recipes(self) -> list[str]:
        """The recipes of classifiers for this kind of input."""
        if self.spec.schema.input.has_edges:
            return recipes.names("graph-classifier", "graph-attention")
        layer, tokens = input_of(self.spec), self.spec.schema.input.reads_tokens
        shape: recipes.ModelKind = "picture-classifier" if isinstance(layer, PictureConfig) else "classifier"
        names = recipes.names(shape, DEFAULTS.get(type(layer), "cnn"))
        return [name for name in names if tokens or not recipes.RECIPES[name].counts_tokens]

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> SequenceModelConfig:
        self.require_settings(head)
        answer = self.head(head)
        inputs = input_of(self.spec)
        if self.spec.schema.input.has_edges:
            return recipes.graph_model(recipe, inputs=stepped_input_of(self.spec), head=answer, size=size)
        if not isinstance(inputs, PictureConfig):
            return recipes.sequence_model(recipe, inputs=inputs, head=answer, size=size)
        height, width, channels = self.spec.sizes
        made = recipes.picture_classifier(
            recipe, height=height, width=width, channels=channels, num_classes=2, size=size
        )
        return msgspec.structs.replace(made, head=answer)

    def adapted(self, model: AnyModel) -> SequenceModelConfig:
        """The same model with the head that this task needs; only the encoder of a tagger or embedding model."""
        any_head = ClassHeadConfig(num_classes=2)
        if isinstance(model, EmbedderConfig):
            pooling, dropout = model.pooling, model.dropout
            model = SequenceModelConfig(encoder=model.encoder, pooling=pooling, dropout=dropout, head=any_head)
        if isinstance(model, ElementModelConfig):
            model = SequenceModelConfig(encoder=model.encoder, head=any_head)
        model = require_shape(self, SequenceModelConfig, model)
        head = self.head(HeadSettings())
        ready = head.unmapped()  # a head without weights stays unmapped
        same = isinstance(model.head, type(ready)) and model.head.answers == ready.answers
        return msgspec.structs.replace(model, head=ready if same else head)

    def require(self, model: AnyModel) -> None:
        self.require_head(require_shape(self, SequenceModelConfig, model).head)

    @abstractmethod
    def head(self, settings: HeadSettings) -> MappedHead:
        """The head of the model."""

    @abstractmethod
    def require_head(self, head: SequenceHead) -> None:
        """Raise ConfigError if a head does not fit the data."""

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        return cast(SequenceModel, model).loss(batch._replace(inputs=sequences(batch.inputs))), None

    def constant(self, name: str, scores: Tensor, dev: Sequence[Batch[Any, Any]]) -> Baseline:
        """The baseline that always computes the same scores [K]."""
        rows = [
            row.statistics
            for batch in dev
            for row in self.evaluate_batch(_Scores(scores.expand(len(batch.ids), -1)), batch, None)[0]
        ]
        return Baseline(name, np.stack(rows))

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        """[N,D] the features that the head reads, scaled to length 1."""
        pooled = cast(SequenceModel, model).features(sequences(inputs)).values[:, 0]
        return F.normalize(pooled, dim=-1)

    def answers_so_far(
        self, model: nn.Module, tokens: np.ndarray, scores: Tensor, memory: Any
    ) -> tuple[Sequence[Prediction], Any]:
        """At each element, the prediction for everything up to it."""
        return self.predict(_Scores(scores), None), None

    def vector_size(self, model: AnyModel) -> int:
        """The number of features that the head reads."""
        assert isinstance(model, SequenceModelConfig), "checked by require"
        return model.widths()[-1]


class ElementTask(Task):
    """One prediction per word or step."""

    settings = OF_NUMBERS
    default_recipe = "tagger", "bilstm"

    def recipes(self) -> list[str]:
        """The recipes of taggers for this kind of input."""
        if self.spec.schema.input.has_edges:
            return recipes.names("graph-tagger", "graph-attention")
        return super().recipes()

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> ElementModelConfig:
        self.require_settings(head)
        make = recipes.graph_tagger if self.spec.schema.input.has_edges else recipes.tagger
        made = make(recipe, inputs=stepped_input_of(self.spec), num_tags=2, size=size)
        return msgspec.structs.replace(made, head=self.head(head))

    def adapted(self, model: AnyModel) -> ElementModelConfig:
        """The same encoder with the head that this task needs; a crf stays a crf."""
        encoder = encoder_in(self, ElementModelConfig, model)
        head = HeadSettings(kind="crf" if isinstance(model.head, CrfHeadConfig) else "softmax")
        return ElementModelConfig(encoder=encoder, head=self.head(head))

    def require(self, model: AnyModel) -> None:
        self.require_head(require_shape(self, ElementModelConfig, model).head)

    @abstractmethod
    def head(self, settings: HeadSettings) -> ElementHead:
        """The head of the model."""

    @abstractmethod
    def require_head(self, head: ElementHead) -> None:
        """Raise ConfigError if a head does not fit the data."""
