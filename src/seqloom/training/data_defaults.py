"""Defaults that follow the data: how words are read, whether they are only counted, dropout, and weights of classes.

What a request names is kept. Messages say what was chosen, and how to choose otherwise.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from seqloom.config.data import EncodingConfig, EncodingOptions, VectorFileConfig
from seqloom.config.models import AnyModel
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.recipes.families import RECIPES, SIZES, Size, recipe_called
from seqloom.report.numbers import share
from seqloom.tasks.encoders import (
    counts_letters,
    counts_pairs,
    reads_letters,
    require_letters,
    require_vectors,
    with_words_input,
    word_vectors_of,
)
from seqloom.tasks.task import Task, task_class
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.training.request import RunRequest

# Character encoders, counts and pretrained vectors: what they change in the encoding and in the model.
#
#     --char-encoder cnn      the data keeps the characters of its words, and the model reads them too
#     --char-encoder ngrams   the same for linear, also of texts
#     --min-count 2           words that occur less often are UNKNOWN
#     --word-vectors FILE     the file's first words join the vocabulary, and word vectors start from the file
#
# All are written into the configuration. A run has its vocabulary in its folder and its vectors in its weights, so it
# resumes without the file.

MUCH = 0.1  # share of unknown tokens in the training set
LONG = 100  # mean number of tokens in a text above which word pairs cost more than they help
FEW = 10_000  # long texts, below which counting words is often better than layers, in a fraction of the time
FEW_TOKENS, MANY_TOKENS = 900_000, 2_700_000  # sets of about 30,000 and 130,000 pairs (benchmarks/defaults/results.md)
MOST_DROPOUT, LEAST_DROPOUT = 0.3, 0.1
OFTEN = 20  # epochs


def with_word_settings(encoding: EncodingConfig, request: RunRequest, schema: Schema) -> EncodingConfig:
    """The encoding with characters, counts and vectors as requested or by default; ConfigError if they do not fit.

    With a character encoder, a word is one token, split where the data splits.
    """
    if request.word_vectors_limit is not None and request.word_vectors is None:
        raise ConfigError(
            "--word-vectors-limit without --word-vectors", fix="give --word-vectors FILE, or leave the limit out"
        )
    given = None if isinstance(request.model, str) else request.model
    counted = request.char_encoder == "ngrams" or (given is not None and counts_letters(given))
    own = given is not None and (reads_letters(given) or counted)
    changed: dict[str, Any] = {"tokenizer": schema.input.tokenizer(encoding.tokenizer)}
    usual = request.char_encoder is None and default_letters(request, encoding.tokenizer, schema)
    if request.char_encoder == "none" and isinstance(encoding.tokenizer, WordsConfig):
        changed["tokenizer"] = msgspec.structs.replace(encoding.tokenizer, keep_characters=False)
    elif request.char_encoder not in (None, "none") or own or usual:
        tokenizer = require_letters(schema, encoding.tokenizer, counted=counted)
        split = "space" if schema.input.in_words else tokenizer.word_split
        folded = tokenizer.lowercase or drops_case(request, schema)
        changed["tokenizer"] = msgspec.structs.replace(
            tokenizer, keep_characters=True, word_split=split, lowercase=folded
        )
    elif isinstance(encoding.tokenizer, WordsConfig) and not schema.input.in_words:  # nothing would read them
        folded = encoding.tokenizer.lowercase or default_lowercase(request)
        changed["tokenizer"] = msgspec.structs.replace(changed["tokenizer"], keep_characters=False, lowercase=folded)
    if request.word_vectors is not None:
        limit = {} if request.word_vectors_limit is None else {"limit": request.word_vectors_limit}
        changed["word_vectors"] = VectorFileConfig(path=str(request.word_vectors), **limit)
    encoding = msgspec.structs.replace(encoding, **changed)
    if encoding.word_vectors is not None:
        require_vectors(task_class(schema.target.name), schema, encoding.tokenizer)
    return default_counts(encoding, schema)


def with_word_inputs(model: AnyModel, request: RunRequest, prepared: Prepared, width: int | None) -> AnyModel:
    """The model of a recipe, its input changed for a character encoder, vectors of this width, or long texts."""
    if reads_letters(model):
        chosen = {} if request.char_encoder in (None, "none") else {"char_encoder": request.char_encoder}
        model = with_words_input(model, rare_from=first_rare(prepared), **chosen)
    if width is not None and word_vectors_of(model) != width:
        model = with_words_input(model, size=width)
    return with_affordable_pairs(model, prepared)


def with_affordable_pairs(model: AnyModel, prepared: Prepared) -> AnyModel:
    """The same model; one that counts word pairs counts only words if the texts of the training set are long."""
    if counts_pairs(model) and float(prepared.columns["input"].lengths[prepared.splits["train"]].mean()) > LONG:
        return with_words_input(model, order=1)
    return model


def word_messages(
    request: RunRequest, asked: EncodingConfig, chosen: EncodingConfig, prepared: Prepared
) -> Iterator[str]:
    """Messages about defaults for words: that characters are read, case is dropped, and some words are unknown."""
    if request.char_encoder is None and default_letters(request, chosen.tokenizer, prepared.schema):
        yield "character encoder: cnn, beside word vectors (--char-encoder none turns it off)"
        if drops_case(request, prepared.schema):
            yield "words are lowercased, and their characters keep their case (--no-lowercase keeps it in words too)"
    elif chosen.tokenizer.lowercase and not asked.tokenizer.lowercase:
        yield "words are read without their case (--no-lowercase keeps it)"
    to_text = prepared.schema.target.is_text
    before, now = ((one.target_tokenizer if to_text else None) or one.tokenizer for one in (asked, chosen))
    if (
        isinstance(before, WordsConfig)
        and isinstance(now, WordsConfig)
        and before.min_count is None
        and now.min_count != 1
    ):
        read = prepared.columns["target" if to_text else "input"].select(prepared.splits["train"]).values
        if unknown := float((read == UNKNOWN).mean()):
            cure = "; for so little text, --tokenizer characters or bpe fits better" if unknown >= MUCH else ""
            yield (
                f"words that occur only once are replaced by the unknown token: {share(unknown)} of the training text "
                f"(--min-count 1 keeps them){cure}"
            )


def first_rare(prepared: Prepared) -> int:
    """The first token that occurs at most once in training; tokens are numbered by frequency."""
    read = prepared.columns["input"].select(prepared.splits["train"]).values
    return max(COUNT, 1 + int(np.flatnonzero(np.bincount(read) > 1).max(initial=0)))


def unknown_word_messages(prepared: Prepared) -> tuple[str, ...]:
    """A message about the share of training tokens that the tokenizer of --init does not know, if there are any."""
    read = prepared.columns["input"].select(prepared.splits["train"]).values
    unknown = float((read == UNKNOWN).mean()) if prepared.tokenizer is not None and len(read) else 0.0
    if not unknown:
        return ()
    cure = "; pretrain on text with these words, or with --tokenizer bpe" if unknown >= MUCH else ""
    return (f"{share(unknown)} of the training tokens are unknown to the tokenizer of --init{cure}",)


def default_counts(encoding: EncodingConfig, schema: Schema) -> EncodingConfig:
    """The encoding with the default `min_count` where it names none.

    Where the model writes words, as in language modeling and translation, words that occur once are UNKNOWN, so that
    the model learns how likely a new word is. With every word in the vocabulary, it would never see UNKNOWN in
    training, and a new word would have the highest loss of all.
    """
    first, second = encoding.tokenizer, encoding.target_tokenizer
    written = schema.target.is_running or (schema.target.is_text and second is None)
    first, second = _counted(first, 2 if written else 1), second if second is None else _counted(second, 2)
    return msgspec.structs.replace(encoding, tokenizer=first, target_tokenizer=second)


def _counted(tokenizer: FittedTokenizer, least: int) -> FittedTokenizer:
    is_open = isinstance(tokenizer, WordsConfig) and tokenizer.min_count is None
    return msgspec.structs.replace(tokenizer, min_count=least) if is_open else tokenizer


def drops_case(request: RunRequest, schema: Schema) -> bool:
    """Whether words are lowercased by default: those of a tagger that reads their characters, which keep their case.

    Word vectors of a file have the case of the file.
    """
    recipe = request.model is None or isinstance(request.model, str)
    given = request.word_vectors is not None or request.training.get("init")
    tagged = schema.input.in_words and schema.target.of_steps
    return _case_is_open(request) and recipe and not given and tagged


def default_lowercase(request: RunRequest) -> bool:
    """Whether case is dropped by default: by counting, where a word that begins a sentence would be another one."""
    return _case_is_open(request) and recipe_called(request.model).counts_tokens


def _case_is_open(request: RunRequest) -> bool:
    asked = request.encoding
    return asked is None or (isinstance(asked, EncodingOptions) and "lowercase" not in asked.named)


def default_letters(request: RunRequest, tokenizer: FittedTokenizer, schema: Schema) -> bool:
    """Whether a recipe reads characters by default: taggers do, because they meet many new words."""
    recipe = request.model is None or isinstance(request.model, str)
    reading = schema.input.in_words and "char_encoder" in task_class(schema.target.name).settings
    return recipe and reading and isinstance(tokenizer, WordsConfig) and not request.training.get("init")


def counting_recipe(request: RunRequest, task: Task, prepared: Prepared) -> tuple[str, str]:
    """The recipe that counts tokens, and why it is the default: for few long texts that have one label each.

    Both are empty if it is not. A request that names a setting of layers or of gradient descent keeps the usual recipe.
    """
    rows, offered = prepared.splits["train"], task.recipes()
    recipe = next((name for name in offered if RECIPES[name].counts_tokens), "")
    if not recipe or not prepared.schema.target.one_label or request.names_layers():
        return "", ""
    mean = float(prepared.columns["input"].lengths[rows].mean()) if len(rows) else 0.0
    if mean <= LONG or len(rows) >= FEW:
        return "", ""
    found = f"{len(rows):,}, of {mean:.0f} tokens on average"
    return recipe, f"fast, and often the best, for few long texts ({found}); --model {offered[0]} trains layers"


def dropout_follows_text(recipe: str, size: Size, task: Task) -> bool:
    """Whether dropout depends on the amount of text: in recipes that would learn little text by heart.

    Models smaller than `small`, and those that write single forms instead of sentences, keep that of the recipe.
    """
    writes_sentences = task.spec.schema.target.is_text and task.metric.name != "exact_match"
    is_large = SIZES.index(size) >= SIZES.index("small")
    return writes_sentences and is_large and recipe_called(recipe).dropout_by_text


def default_dropout(tokens: int, epochs: float) -> float | None:
    """Up to 0.3 for little text that is read many times; None: the usual one of the recipe.

    Between FEW_TOKENS and MANY_TOKENS, of source and target, the rate falls with their logarithm.

    >>> [default_dropout(tokens, epochs=57) for tokens in (1_000, FEW_TOKENS, MANY_TOKENS)]
    [0.3, 0.3, None]
    """
    if epochs < OFTEN or tokens >= MANY_TOKENS:
        return None
    borders = [math.log(FEW_TOKENS), math.log(MANY_TOKENS)]
    return round(float(np.interp(math.log(max(1, tokens)), borders, [MOST_DROPOUT, LEAST_DROPOUT])), 2)


def class_weights(asked: str | tuple[float, ...], prepared: Prepared) -> tuple[float, ...]:
    """The weight of each class: as given, or such that all classes have the same total weight."""
    if not isinstance(asked, str):
        return asked
    require_balanceable(asked, prepared.schema)
    labels = prepared.columns["target"].select(prepared.splits["train"]).values
    counts = np.bincount(labels[labels >= 0], minlength=len(prepared.schema.labels))
    return tuple((counts.sum() / np.maximum(1, counts) / len(counts)).tolist())


def require_balanceable(given: str | tuple[float, ...], schema: Schema) -> None:
    """Refuse `balanced` for targets without a single label, and any other name."""
    if not isinstance(given, str):
        return
    if given != "balanced":
        raise ConfigError(f"class weights {given!r}", fix="give 'balanced', or a number for each class")
    if not schema.target.one_label:
        raise ConfigError(
            f"balanced class weights need one label per example, but the target is {schema.target}",
            fix="leave them out",
        )
