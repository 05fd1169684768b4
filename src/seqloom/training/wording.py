"""Letters and pretrained vectors: what these wishes mean for how words become numbers, and for the model.

    --letters cnn      the data keeps the letters of its words, and the model reads them beside the words
    --vectors FILE     the file's first words join the vocabulary, and the model's vectors of words start from the file

Both are written into the configuration. A run that has begun has its vocabulary in its folder and its vectors in its
weights, so it goes on without the file.
"""

from typing import Any

import msgspec
import numpy as np

from seqloom.config.data import EncodingConfig, VectorFileConfig
from seqloom.config.models import AnyModel
from seqloom.config.training import RunConfig
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.tasks.reading import (
    counts_pairs,
    reads_letters,
    require_letters,
    require_vectors,
    with_words_input,
    word_vectors_of,
)
from seqloom.text.symbols import COUNT
from seqloom.text.vectors import width_of
from seqloom.training.wishes import Wishes

LONG = 100  # symbols of a text, in the mean: there pairs of words say little beside the words, and cost the most


def worded(encoding: EncodingConfig, wishes: Wishes, schema: Schema) -> EncodingConfig:
    """The encoding with the letters and vectors that are wanted; ConfigError with the reason where they make no sense.

    With letters a word is one symbol, cut where the data cuts.
    """
    if wishes.vector_words is not None and wishes.vectors is None:
        raise ConfigError("vector_words says how many words of a file are taken, and no file is named", fix="--vectors")
    own = wishes.model is not None and not isinstance(wishes.model, str) and reads_letters(wishes.model)
    changed: dict[str, Any] = {}
    if wishes.letters is not None or own:
        tokenizer = require_letters(schema, encoding.tokenizer)
        changed["tokenizer"] = msgspec.structs.replace(tokenizer, letters=True, split="space")
    if wishes.vectors is not None:
        words = {} if wishes.vector_words is None else {"words": wishes.vector_words}
        changed["vectors"] = VectorFileConfig(path=str(wishes.vectors), **words)
    encoding = msgspec.structs.replace(encoding, **changed)
    if encoding.vectors is not None:
        require_vectors(schema, encoding.tokenizer)
    return encoding


def require_one_start(wishes: Wishes) -> None:
    """Raise ConfigError if two things are named from which the vectors of words would start."""
    written = wishes.encoding is not None and wishes.encoding.vectors is not None
    if wishes.training.get("init") and (written or wishes.vectors is not None):
        raise ConfigError("--vectors and --init both say where the vectors of words start", fix="leave one of them out")


def vector_width(encoding: EncodingConfig, before: RunConfig | None) -> int | None:
    """The size of the pretrained vectors: that of the run which has begun, else of the file; None without vectors."""
    if encoding.vectors is None:
        return None
    return word_vectors_of(before.model) if before is not None else width_of(encoding.vectors.path)


def reading_words(model: AnyModel, wishes: Wishes, prepared: Prepared, width: int | None) -> AnyModel:
    """The model of a recipe, its input as letters, vectors of this width and the length of the texts want it."""
    if reads_letters(model):
        model = with_words_input(model, letters=wishes.letters or "cnn", rare_from=first_rare(prepared))
    if width is not None and word_vectors_of(model) != width:
        model = with_words_input(model, size=width)
    if counts_pairs(model) and float(prepared.columns["input"].lengths[prepared.parts["train"]].mean()) > LONG:
        model = with_words_input(model, order=1)
    return model


def require_width(model: AnyModel, width: int | None) -> None:
    """Raise ConfigError if the vectors of words of one's own model have another size than those of the file."""
    if width is not None and (found := word_vectors_of(model)) != width:
        raise ConfigError(
            f"the vectors of the file have {width:,} numbers, and those of the model's words {found:,}",
            fix=f"set size = {width} in the model's input",
        )


def first_rare(prepared: Prepared) -> int:
    """The symbol behind the last one that training reads more than once: symbols are numbered by their frequency."""
    read = prepared.columns["input"].select(prepared.parts["train"]).values
    return max(COUNT, 1 + int(np.flatnonzero(np.bincount(read) > 1).max(initial=0)))
