"""The request for a run, before any data is read: recipe, size and the settings that the user named.

`requested` sorts options, from the command line or from Python, by where they belong:

    dev, task, input, format, ...             the data                       DataConfig
    tokenizer, vocab_size, max_length, ...    how it is encoded              EncodingConfig
    lr, epochs, optimizer, patience, ...      how the model is trained       TrainingConfig
    model, size, dropout, char_encoder, ...   which model                    RunRequest
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta

from seqloom.config.base import Depth, Heads, Rate, Width, dropouts, read, with_dropout, with_setting
from seqloom.config.data import AskedEncoding, DataConfig, EncodingConfig, asked_encoding, encoding_over
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import CharEncoderName, CharTfidfConfig, SpelledConfig
from seqloom.config.models import OBJECTIVES, AnyModel, AnyObjective
from seqloom.config.options import MODEL, Flag, said, settings, with_flags
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import ConstantConfig, NewtonConfig, RunConfig, TrainingConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes.families import CHAR_ENCODERS, RECIPES, Dimensions, Size, recipe_called
from seqloom.training.run_location import DEFAULT_LOCATION, RunLocation

OF_VECTORS = ("pooling", "objective", "micro_batch")
DIMENSIONS = ("width", "layers", "heads")
BALANCED = "balanced"  # every class has the same total weight
WORD_VECTORS = "encoder.input.table"  # the name of the word vectors among the weights


Rows = Annotated[int, Meta(ge=1, le=2**40)]
Words = Annotated[int, Meta(ge=0, le=2**24)]
ClassWeight = Annotated[float, Meta(ge=0, le=1e6)]


def _model(text: str) -> str | AnyModel:
    """The name of a recipe, or the model in a configuration file."""
    if text.endswith((".toml", ".json")):
        return cast(AnyModel, read(text, AnyModel))
    if text not in RECIPES:
        raise ConfigError(f"unknown recipe {text!r}", fix=f"{did_you_mean(text, RECIPES)} Or give a .toml file")
    return text


def _objective(name: str) -> str:
    if name not in OBJECTIVES:
        raise ConfigError(repr(name), fix=did_you_mean(name, OBJECTIVES))
    return name


def _class_weights(text: str) -> str | tuple[float, ...]:
    """The weight of each class: `balanced`, or numbers with commas."""
    if text == BALANCED:
        return text
    try:
        weights = tuple(float(number) for number in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 <= weight <= 1e6 for weight in weights):
        raise ConfigError(repr(text), fix="write balanced, or one number for each class, such as 1,2.5")
    return weights


class RunRequest(NamedTuple):
    """The request of the user. Settings that are None are chosen and reported."""

    model: Annotated[
        str | AnyModel | None,
        Flag(
            "Architecture: a recipe (see `seqloom recipes`) or a .toml file; for trained weights see --init "
            "(default: depends on the task).",
            "NAME",
            MODEL,
            parse=_model,
        ),
    ] = None
    size: Annotated[
        Size | None,
        Flag(
            "Model size: {names} (default: small; tiny if training would take longer than five minutes on the CPU).",
            "NAME",
            MODEL,
        ),
    ] = None
    width: Annotated[
        Width | None,
        Flag(
            "Width of all layers of the recipe, instead of that of its size (default: from the size).", "COUNT", MODEL
        ),
    ] = None
    layers: Annotated[
        Depth | None,
        Flag("Number of layers of the recipe (default: from the size).", "COUNT", MODEL),
    ] = None
    heads: Annotated[
        Heads | None,
        Flag("Number of attention heads of the recipe (default: from the size).", "COUNT", MODEL),
    ] = None
    dropout: Annotated[
        Rate | None,
        Flag(
            "Dropout rate wherever the recipe has dropout; 0 turns it off (default: from the recipe; up to 0.3 for a "
            "Transformer that translates and has little training data).",
            "NUMBER",
            MODEL,
        ),
    ] = None
    label_smoothing: Annotated[
        Rate | None,
        Flag(
            "Label smoothing: fraction of the probability that is spread over all labels (default: 0.1 for "
            "translations of sentences, else 0).",
            "NUMBER",
            MODEL,
        ),
    ] = None
    class_weights: Annotated[
        str | tuple[ClassWeight, ...],
        Flag(
            "Weight of each class in the loss: balanced, or one number per class in alphabetical order of the labels, "
            "such as 1,2.5 (default: all equal).",
            "LIST",
            MODEL,
            parse=_class_weights,
        ),
    ] = ()
    head: Annotated[
        HeadKind | None,
        Flag(
            "Output layer of a tagger: softmax or crf (default: crf for bilstm if the tags of words mark spans, else "
            "softmax).",
            "NAME",
            MODEL,
        ),
    ] = None
    pooling: Annotated[
        Pooling | None,
        Flag(
            "How the embed task pools token vectors into a text vector: {names} (default: from the recipe).",
            "NAME",
            MODEL,
        ),
    ] = None
    objective: Annotated[
        str | AnyObjective | None,
        Flag(
            "Training objective of the embed task: contrast (contrastive loss with in-batch negatives), cosine-score "
            "(squared error between cosine and score), rank (CoSENT: rank pairs by their scores), triplet (margin "
            "between positive and negative) or views (SimCSE: two readings of the same text with different dropout) "
            "(default: depends on the columns of the data).",
            "NAME",
            MODEL,
            parse=_objective,
        ),
    ] = None
    micro_batch: Annotated[
        Rows | None,
        Flag(
            "For the embed task: process each batch in chunks of this many texts, to save memory; the gradients stay "
            "the same (default: the whole batch).",
            "COUNT",
            MODEL,
        ),
    ] = None
    char_encoder: Annotated[
        CharEncoderName | None,
        Flag(
            "Also encode each word from its characters: cnn, lstm, ngrams (TF-IDF of character n-grams, for linear) or "
            "none (default: cnn for taggers, else none).",
            "NAME",
            MODEL,
        ),
    ] = None
    word_vectors: Annotated[
        str | Path | None,
        Flag(
            "Initialize word vectors from this GloVe, word2vec or fastText file (default: random).",
            "FILE",
            MODEL,
            parse=str,
        ),
    ] = None
    word_vectors_limit: Annotated[
        Words | None,
        Flag(
            "Add the first words of the --word-vectors file to the vocabulary, at most this many (default: 100,000).",
            "COUNT",
            MODEL,
        ),
    ] = None
    freeze_word_vectors: Annotated[
        bool, Flag("Do not train the word vectors (default: they are trained).", panel=MODEL)
    ] = False
    training: dict[str, Any] = {}  # noqa: RUF012  # the settings of `TrainingConfig` that the user named
    encoding: AskedEncoding | None = None

    def in_vain(self) -> tuple[str, ...]:
        """The recipe settings that were named although the model is given: by the user, or by `init`."""
        if isinstance(self.model, str) or (self.model is None and not self.training.get("init")):
            return ()
        # The encoder of `init` is kept; how it is trained for embeddings may change.
        further = () if self.model is None else OF_VECTORS
        changed = "dropout", "label_smoothing", "class_weights", "head", "char_encoder"
        return self._named("size", *DIMENSIONS, *changed, *further)

    def names_layers(self) -> bool:
        """Whether it names a setting that only layers, or models trained by gradient descent, have."""
        changed = "dropout", "label_smoothing", "head", "char_encoder", "word_vectors", "freeze_word_vectors"
        by_steps = {"optimizer", "lr", "schedule", "duration", "batching", "init"} & self.training.keys()
        return bool(by_steps or self._named("size", *DIMENSIONS, *changed, *OF_VECTORS))

    def dimensions(self, size: Size) -> Dimensions:
        """This size with the numbers that the request changes."""
        return Dimensions(size, self.width, self.layers, self.heads)

    def require_char_encoder(self) -> None:
        """Raise ConfigError if the recipe cannot have the requested character encoder."""
        if self.char_encoder in (None, "none"):
            return
        possible = RECIPES[self.model].char_encoders if isinstance(self.model, str) else CHAR_ENCODERS
        if self.char_encoder not in possible:
            recipe = f"the recipe {self.model}" if isinstance(self.model, str) else "the default recipe"
            fix = f"choose {' or '.join(possible)}, or another recipe"
            raise ConfigError(f"--char-encoder {self.char_encoder} does not fit {recipe}", fix=fix)

    def of_vectors(self) -> tuple[str, ...]:
        """The named settings that only embedding models have."""
        return self._named(*OF_VECTORS)

    def filled(self, before: RunConfig) -> "RunRequest":
        """Return the request for a resumed run: settings that it leaves open are taken from the run.

        If it names a model, a size or `init`, the model is built again and compared with that of the run.
        """
        training = {name: getattr(before.training, name) for name in before.training.__struct_fields__}
        encoding = _with_least(encoding_over(self.encoding, before.encoding), before.encoding)
        if self.word_vectors is None:
            encoding = msgspec.structs.replace(encoding, word_vectors=before.encoding.word_vectors)
        given = getattr(getattr(before.model, "encoder", None), "input", None)
        encoded: CharEncoderName = given.char_encoder if isinstance(given, SpelledConfig) else "none"
        letters = self.char_encoder or ("ngrams" if isinstance(given, CharTfidfConfig) else encoded)
        training |= self.training
        schedule, known = training["schedule"], before.training.schedule
        if type(schedule) is type(known) and schedule.warmup is None:
            training["schedule"] = msgspec.structs.replace(schedule, warmup=known.warmup)
        filled = self._replace(training=training, encoding=encoding, char_encoder=letters)
        named = "class_weights", "head", "char_encoder", "word_vectors"
        anew = self._named("model", "size", *DIMENSIONS, *named, *OF_VECTORS)
        if anew or self.training.get("init"):
            return filled
        model = before.model
        if self._named("label_smoothing"):
            model = with_setting(model, "label_smoothing", self.label_smoothing)
        if self.dropout is not None:  # a model without dropout: any rate above 0 makes it another run
            there = any(dropouts(model))
            model = with_dropout(model, self.dropout) if there else with_setting(model, "dropout", self.dropout)
        return filled._replace(model=model)

    def _named(self, *names: str) -> tuple[str, ...]:
        """Return the names that are not left open."""
        return tuple(name for name in names if getattr(self, name) != self._field_defaults[name])


def _with_least(encoding: EncodingConfig, before: EncodingConfig) -> EncodingConfig:
    """The encoding with the `min_count` of the run, if it names none itself."""
    now, then = encoding.tokenizer, before.tokenizer
    if not isinstance(now, WordsConfig) or not isinstance(then, WordsConfig) or now.min_count is not None:
        return encoding
    return msgspec.structs.replace(encoding, tokenizer=msgspec.structs.replace(now, min_count=then.min_count))


def is_solved(recipe: object, named: Mapping[str, Any]) -> bool:
    """Whether newton trains the run: by name, or because nothing else was named for a recipe that counts tokens."""
    by_steps = {"optimizer", "lr", "schedule"} & named.keys()
    return isinstance(named.get("optimizer"), NewtonConfig) or (recipe_called(recipe).counts_tokens and not by_steps)


FLAGS = settings(RunRequest) | settings(TrainingConfig) | settings(DataConfig) | settings(EncodingConfig)


def requested(
    data: Iterable[str | Path], given: Mapping[str, Any], location: RunLocation = DEFAULT_LOCATION
) -> tuple[DataConfig, RunRequest]:
    """The data configuration and the request, from options by their names. They are checked before a file is read.

    Args:
        data: the training files.
        given: the options that the user named.
        location: where the run is written. If a run is there, its data settings are the defaults.
    """
    paths, training, model = tuple(map(str, data)), said(TrainingConfig, given), said(RunRequest, given)
    solved: dict[str, Any] = {"lr": 1.0, "schedule": ConstantConfig()} if is_solved(None, training) else {}
    TrainingConfig(**solved | training)  # raises if settings contradict each other
    request = RunRequest(training=training, encoding=asked_encoding(given), **model)
    if names := request.in_vain():
        flags = ", ".join(FLAGS[name].flag for name in names)
        source = given.get("model", "the model of --init")
        source = source if isinstance(source, str) else "the given model"
        raise ConfigError(
            f"{flags} cannot be combined with {source}, whose layers are fixed",
            fix="name a recipe with --model, or change the model in a file",
        )
    usual = location.existing_data(paths) or DataConfig(train=paths)
    return with_flags(msgspec.structs.replace(usual, train=paths), given), request
