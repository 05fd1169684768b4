"""Letters, counts and pretrained vectors: what these wishes mean for how words become numbers, and for the model.

    --letters cnn      the data keeps the letters of its words, and the model reads them beside the words
    --least 2          words that occur less often are UNKNOWN
    --vectors FILE     the file's first words join the vocabulary, and the model's vectors of words start from the file

All are written into the configuration, wished or chosen. A run that has begun has its vocabulary in its folder and its
vectors in its weights, so it goes on without the file.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from seqloom.config.data import EncodingConfig, VectorFileConfig
from seqloom.config.models import AnyModel
from seqloom.config.text import WordsConfig
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
from seqloom.text.symbols import COUNT, UNKNOWN
from seqloom.text.vectors import width_of
from seqloom.training.defaults import default_counts, default_letters
from seqloom.training.starting import MUCH
from seqloom.training.wishes import Wishes

LONG = 100  # symbols of a text, in the mean: there pairs of words say little beside the words, and cost the most


def worded(encoding: EncodingConfig, wishes: Wishes, schema: Schema) -> EncodingConfig:
    """The encoding with the letters, counts and vectors that are wanted or usual; ConfigError where they make no sense.

    With letters a word is one symbol, cut where the data cuts.
    """
    if wishes.vector_words is not None and wishes.vectors is None:
        raise ConfigError("vector_words says how many words of a file are taken, and no file is named", fix="--vectors")
    own = wishes.model is not None and not isinstance(wishes.model, str) and reads_letters(wishes.model)
    changed: dict[str, Any] = {}
    usual = wishes.letters is None and default_letters(wishes, encoding.tokenizer, schema)
    if wishes.letters == "none" and isinstance(encoding.tokenizer, WordsConfig):
        changed["tokenizer"] = msgspec.structs.replace(encoding.tokenizer, letters=False)
    elif wishes.letters not in (None, "none") or own or usual:
        tokenizer = require_letters(schema, encoding.tokenizer)
        changed["tokenizer"] = msgspec.structs.replace(tokenizer, letters=True, split="space")
    if wishes.vectors is not None:
        words = {} if wishes.vector_words is None else {"words": wishes.vector_words}
        changed["vectors"] = VectorFileConfig(path=str(wishes.vectors), **words)
    encoding = msgspec.structs.replace(encoding, **changed)
    if encoding.vectors is not None:
        require_vectors(schema, encoding.tokenizer)
    return default_counts(encoding, schema)


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
        said = {} if wishes.letters in (None, "none") else {"letters": wishes.letters}
        model = with_words_input(model, rare_from=first_rare(prepared), **said)
    if width is not None and word_vectors_of(model) != width:
        model = with_words_input(model, size=width)
    if counts_pairs(model) and float(prepared.columns["input"].lengths[prepared.parts["train"]].mean()) > LONG:
        model = with_words_input(model, order=1)
    return model


def words_said(wishes: Wishes, asked: EncodingConfig, chosen: EncodingConfig, prepared: Prepared) -> Iterator[str]:
    """What was chosen about words where nobody said it: that letters are read, and that some words are unknown."""
    if wishes.letters is None and default_letters(wishes, chosen.tokenizer, prepared.schema):
        yield "letters: read beside each word; --letters none reads words alone"
    to_text = prepared.schema.target == "text"
    before, now = ((one.target_tokenizer if to_text else None) or one.tokenizer for one in (asked, chosen))
    if isinstance(before, WordsConfig) and isinstance(now, WordsConfig) and before.least is None and now.least != 1:
        said = prepared.columns["target" if to_text else "input"].select(prepared.parts["train"]).values
        if share := float((said == UNKNOWN).mean()):
            cure = "; there is too little text for words: --tokenizer characters or bpe" if share >= MUCH else ""
            least = f"words that occur once are unknown, {max(share, 0.001):.1%} of the training text".replace(
                "%", " %"
            )
            yield f"{least}; --least 1 keeps them{cure}"


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
