"""What a task's model reads: the input that fits the data, and whether the input of somebody's own model does."""

from typing import Any

from seqloom.config.inputs import (
    AnyInput,
    FiltersConfig,
    InputConfig,
    NgramsConfig,
    PictureConfig,
    SteppedInput,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.models import AnyModel
from seqloom.errors import ConfigError
from seqloom.tasks.contract import Meaning
from seqloom.types import Subwords

LEAST_FOR_TWO = 8  # pixels of the shorter side: two layers of filters fit


def input_of(meaning: Meaning) -> AnyInput:
    """The input that reads what the data holds; pictures through filters."""
    if meaning.schema.input != "picture":
        return stepped_input_of(meaning)
    height, width, channels = meaning.sizes
    filters = (32, 64) if min(height, width) >= LEAST_FOR_TWO else (64,)
    return FiltersConfig(height=height, width=width, channels=channels, filters=filters)


def stepped_input_of(meaning: Meaning) -> SteppedInput:
    """The input that reads symbols or vectors one after another."""
    if meaning.schema.input == "vectors":
        return VectorsConfig(size=meaning.sizes[0])
    assert meaning.tokenizer is not None, "a schema with text has a tokeniser"
    return TokensConfig(vocab_size=meaning.tokenizer.vocab_size)


def require_input(meaning: Meaning, given: InputConfig) -> None:
    """Raise ConfigError if an input cannot read the data."""
    expected, found = _reads(input_of(meaning)), _reads(given)
    if expected != found:
        raise ConfigError(f"the data holds {expected}, and the model reads {found}", fix="change the model's input")


def _reads(given: InputConfig) -> str:
    """What an input reads, in words; two inputs with the same words read the same data."""
    if isinstance(given, TokensConfig | NgramsConfig):
        return f"{given.vocab_size:,} symbols"
    if isinstance(given, VectorsConfig):
        return f"vectors of {given.size:,}"
    assert isinstance(given, PictureConfig)
    return f"pictures of {given.height} x {given.width} x {given.channels}"


def sequences(inputs: Any) -> Any:
    """The inputs of a model that answers for whole sequences: of words in subwords the pieces alone."""
    return inputs.pieces if isinstance(inputs, Subwords) else inputs


def wrong_shape(task: str, wanted: str, found: AnyModel) -> ConfigError:
    """The error about a model of another shape."""
    return ConfigError(f"{task} needs a {wanted}, found a {found.kind()}", fix=f"give a model of kind {wanted}")
