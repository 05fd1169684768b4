"""What a task's model reads: the input that fits the data, and whether the input of somebody's own model does."""

from typing import Any

import msgspec

from seqloom.config.heads import UnmappedHead
from seqloom.config.inputs import (
    AnyInput,
    InputConfig,
    NgramsConfig,
    PictureConfig,
    SequenceInput,
    SpelledConfig,
    TfidfConfig,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.models import AnyModel, ElementModelConfig, EmbedderConfig, SequenceModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.tokenizers import AnyTokenizer, WordsConfig
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.nn.types import Subwords
from seqloom.tasks.task import Meaning

ENCODING = (SequenceModelConfig, ElementModelConfig, EmbedderConfig)  # models of an encoder and a head


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


def require_vectors(schema: Schema, tokenizer: AnyTokenizer) -> None:
    """Raise ConfigError with the reason if a model of this data cannot start from vectors of words."""
    if not schema.input.reads_tokens or schema.task not in ("classify", "regress", "tag", "embed"):
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


def wrong_shape(task: str, wanted: str, found: AnyModel) -> ConfigError:
    """The error about a model of another shape."""
    text = f"{task} needs a model of kind {wanted}, found one of kind {found.kind()}"
    return ConfigError(text, fix=f"give a model of kind {wanted}")


def encoder_in(model: AnyModel, task: str, wanted: str) -> EncoderConfig:
    """The encoder of a model that answers for sequences or for their elements: what it learned, the other can use."""
    if not isinstance(model, ENCODING):
        raise wrong_shape(task, wanted, model)
    if isinstance(model.head, UnmappedHead):
        raise ConfigError(
            "the encoder of 'linear' gives scores of its own labels, and no other head can read them",
            fix="give a model of another recipe",
        )
    return model.encoder
