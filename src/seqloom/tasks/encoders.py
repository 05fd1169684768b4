"""What tasks share whose models are an encoder and a head: one answer per sequence, or one per element of it.

Also what every task asks of a model's input: which one fits the data, and whether that of somebody's own model does.

The default for whole sequences is `cnn` for text: it needs little data, trains in seconds on a processor, and order
matters to it only where it should. Vectors are measured over time, so a memory reads them (`gru`); pictures have
filters (`conv2d`). For elements it is `bilstm`: what one means depends on both sides of it, and sentences are few.
"""

from abc import abstractmethod
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig, ElementHead, MappedHead, SequenceHead, UnmappedHead
from seqloom.config.inputs import (
    AnyInput,
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
from seqloom.nn.types import Batch, Loss, Subwords
from seqloom.recipes.families import Size
from seqloom.tasks.task import HeadSettings, Meaning, Setting, Task, Vectorizer

ENCODING = (SequenceModelConfig, ElementModelConfig, EmbedderConfig)  # models of an encoder and a head
Shape = TypeVar("Shape", bound=ModelConfig)


def input_of(meaning: Meaning) -> AnyInput:
    """The input that reads what the data holds."""
    return meaning.schema.input.layer(meaning.sizes, meaning.tokenizer)


def stepped_input_of(meaning: Meaning) -> SequenceInput:
    """The same of data that is read in steps: symbols, words with their letters, or vectors, one after another."""
    layer = input_of(meaning)
    assert not isinstance(layer, PictureConfig), "a task of steps reads no pictures"
    return layer


def require_input(meaning: Meaning, given: InputConfig) -> None:
    """Raise ConfigError if an input cannot read the data."""
    expected, found = _reads(input_of(meaning)), _reads(given)
    if expected != found:
        raise ConfigError(f"the data holds {expected}, and the model reads {found}", fix="change the model's input")


def _reads(given: InputConfig) -> str:
    """What an input reads, in words; two inputs with the same words read the same data."""
    if isinstance(given, TokensConfig | NgramsConfig | TfidfConfig):
        return f"{given.vocab_size:,} symbols"
    if isinstance(given, SpelledConfig):
        return f"{given.vocab_size:,} symbols with their letters"
    if isinstance(given, VectorsConfig):
        return f"vectors of {given.size:,}"
    assert isinstance(given, PictureConfig)
    return f"pictures of {given.height} x {given.width} x {given.channels}"


def reads_letters(model: AnyModel) -> bool:
    """Whether a model reads words with their letters."""
    return isinstance(_words_input(model), SpelledConfig)


def counts_pairs(model: AnyModel) -> bool:
    """Whether a model weighs pairs of symbols beside the symbols."""
    given = _words_input(model)
    return isinstance(given, TfidfConfig) and given.order > 1


def word_vectors_of(model: AnyModel) -> int:
    """The size of the vectors that a model has of words; ConfigError for one that has none."""
    given = _words_input(model)
    if isinstance(given, TokensConfig | SpelledConfig) and isinstance(model, ENCODING):
        return model.encoder.width if given.size is None else given.size
    raise ConfigError(
        f"this model reads {'nothing' if given is None else given.kind()}, and vectors are of words that are read one "
        "by one",
        fix="take another recipe than linear, or leave --vectors out",
    )


def with_words_input(model: AnyModel, **settings: Any) -> AnyModel:
    """The same model with these settings of the input that reads words."""
    assert isinstance(model, ENCODING), "only these read words one by one"
    changed = msgspec.structs.replace(model.encoder.input, **settings)
    return msgspec.structs.replace(model, encoder=msgspec.structs.replace(model.encoder, input=changed))


def _words_input(model: AnyModel) -> InputConfig | None:
    return model.encoder.input if isinstance(model, ENCODING) else None


def require_letters(schema: Schema, tokenizer: AnyTokenizer) -> WordsConfig:
    """The tokeniser, if letters can be read beside its symbols; ConfigError with the reason if not."""
    if not schema.input.in_words:
        raise ConfigError(
            f"letters are of words that the data has one by one, and it has {schema.input}",
            fix="leave --letters out, or take --tokenizer characters",
        )
    if not isinstance(tokenizer, WordsConfig):
        raise ConfigError(
            f"letters belong to whole words, and the tokeniser cuts {tokenizer.kind()}",
            fix="take --tokenizer words, or leave --letters out",
        )
    return tokenizer


def require_vectors(task: type[Task], schema: Schema, tokenizer: AnyTokenizer) -> None:
    """Raise ConfigError with the reason if a model of this data cannot start from vectors of words."""
    if not schema.input.reads_tokens or "vectors" not in task.settings:
        raise ConfigError(
            f"vectors are for words that a model reads to classify, regress, tag or embed, and this is {schema.task} "
            f"of {schema.input}",
            fix="leave --vectors out",
        )
    if not isinstance(tokenizer, WordsConfig):
        raise ConfigError(
            f"vectors are of whole words, and the tokeniser cuts {tokenizer.kind()}",
            fix="take --tokenizer words, or leave --vectors out",
        )


def sequences(inputs: Any) -> Any:
    """The inputs of a model that answers for whole sequences: of words in subwords the pieces alone."""
    return inputs.pieces if isinstance(inputs, Subwords) else inputs


def longest_input(model: AnyModel) -> int | None:
    """How many symbols or steps of one input a model has positions for; None: any number.

    Elements are read window by window, so that theirs have no end.
    """
    if isinstance(model, LanguageModelConfig):
        limit = model.decoder.limit()
        return None if limit is None else limit - 1  # BEGIN stands before them
    endless = isinstance(model, ElementModelConfig) or isinstance(model.encoder.input, PictureConfig)
    return None if endless else model.encoder.limit()


def lengths_read(model: AnyModel, prepared: Prepared) -> np.ndarray:
    """[N] how many symbols or steps of each row a model reads at once; texts that are compared are read one by one."""
    column = prepared.columns["input"]
    return longest_texts(column) if isinstance(model, EmbedderConfig) else np.asarray(column.lengths)


def require_shape(task: Task, shape: type[Shape], model: AnyModel) -> Shape:
    """The model, if it has the shape that a task needs and reads its data; ConfigError if not."""
    if not isinstance(model, shape):
        raise _wrong_shape(task, shape, model)
    stack = model.decoder if isinstance(model, LanguageModelConfig) else model.encoder
    require_input(task.meaning, stack.input)
    return model


def _wrong_shape(task: Task, wanted: type[ModelConfig], found: AnyModel) -> ConfigError:
    text = f"{task.name} needs a model of kind {wanted.kind()}, found one of kind {found.kind()}"
    return ConfigError(text, fix=f"give a model of kind {wanted.kind()}")


def encoder_in(task: Task, wanted: type[ModelConfig], model: AnyModel) -> EncoderConfig:
    """The encoder of a model that reads the data of a task, whatever it answered: another head can use what it learned.

    ConfigError for one without, or whose encoder nobody else can use.
    """
    if not isinstance(model, ENCODING):
        raise _wrong_shape(task, wanted, model)
    if isinstance(model.head, UnmappedHead):
        raise ConfigError(
            "the encoder of 'linear' gives scores of its own labels, and no other head can read them",
            fix="give a model of another recipe",
        )
    require_input(task.meaning, model.encoder.input)
    return model.encoder


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
