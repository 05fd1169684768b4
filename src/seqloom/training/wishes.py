"""What somebody wants of a run, before any data is read: recipe, size and settings by name, the rest left open.

`settings_of` sorts what a call of `train` in Python says by where it belongs:

    dev, task, input, ...              what the data is                     DataConfig
    rate, seed, patience, ...          how it is trained                    TrainingConfig
    dropout, letters, vectors, ...     what a recipe is told                Wishes
    epochs, steps, symbols, seconds    how long, as on the command line     length=EpochsConfig(count=...), ...
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_args

import msgspec
from msgspec import Meta

from seqloom.config.base import Config, Rate, dropouts, read, with_dropout, with_setting
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import LettersWish, SpelledConfig
from seqloom.config.models import OBJECTIVES, AnyModel, AnyObjective
from seqloom.config.options import MODEL, Flag
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import AnyLength, NewtonConfig, RunConfig, TrainingConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes.families import RECIPES, Size

OF_VECTORS = ("pooling", "objective", "rows_at_once")
BALANCED = "balanced"  # as rare labels deserve
WORD_VECTORS = "encoder.input.table"  # the name of the vectors of words


Rows = Annotated[int, Meta(ge=1, le=2**40)]
Words = Annotated[int, Meta(ge=0, le=2**24)]


def _model(text: str) -> str | AnyModel:
    """A recipe by its name, or the model in a file."""
    if text.endswith((".toml", ".json")):
        return cast(AnyModel, read(text, AnyModel))
    if text not in RECIPES:
        raise ConfigError(f"{text!r} is no recipe", fix=f"{did_you_mean(text, RECIPES)} Or give a .toml file")
    return text


def _objective(name: str) -> str:
    """The name of an objective."""
    if name not in OBJECTIVES:
        raise ConfigError(repr(name), fix=did_you_mean(name, OBJECTIVES))
    return name


def _class_weights(text: str) -> str | tuple[float, ...]:
    """How much each label counts, as it is typed."""
    if text == BALANCED:
        return text
    try:
        weights = tuple(float(number) for number in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 <= weight <= 1e6 for weight in weights):
        raise ConfigError(repr(text), fix="write balanced, or a number for each label such as 1,2.5")
    return weights


class Wishes(NamedTuple):
    """What somebody wants; what is None is chosen and said aloud."""

    model: Annotated[
        str | AnyModel | None,
        Flag("A recipe (see seqloom recipes) or a .toml file; else by the task.", "NAME", MODEL, parse=_model),
    ] = None
    size: Annotated[Size | None, Flag("One of {names}; else small.", "NAME", MODEL)] = None
    dropout: Annotated[
        Rate | None, Flag("Dropout wherever the recipe has any, 0 for none; else by the recipe.", "RATE", MODEL)
    ] = None
    smoothing: Annotated[Rate, Flag("What each true label gives to the others.", "RATE", MODEL)] = 0.0
    class_weights: Annotated[
        str | tuple[float, ...],
        Flag("How much each label counts: balanced, or numbers such as 1,2.5.", "LIST", MODEL, parse=_class_weights),
    ] = ()
    head: Annotated[HeadKind | None, Flag("What a tagger ends in: class or crf; else class.", "KIND", MODEL)] = None
    pooling: Annotated[Pooling | None, Flag("How a text becomes one vector (embed): {names}.", "NAME", MODEL)] = None
    objective: Annotated[
        str | AnyObjective | None,
        Flag(f"What is asked of vectors (embed): {', '.join(OBJECTIVES)}.", "NAME", MODEL, parse=_objective),
    ] = None
    rows_at_once: Annotated[
        Rows | None, Flag("Texts computed at a time (embed): the memory of few, the step of all.", "COUNT", MODEL)
    ] = None
    letters: Annotated[
        LettersWish | None, Flag("What reads the letters of words: cnn, lstm or none; cnn for taggers.", "NAME", MODEL)
    ] = None
    vectors: Annotated[
        str | Path | None,
        Flag("Start the vectors of words from this file: GloVe, word2vec or fastText.", "FILE", MODEL, parse=str),
    ] = None
    vector_words: Annotated[
        Words | None, Flag("So many of its first words join the vocabulary; else 100,000.", "COUNT", MODEL)
    ] = None
    freeze_vectors: Annotated[bool, Flag("The vectors of words stay as they are.", panel=MODEL)] = False
    training: dict[str, Any] = {}  # noqa: RUF012  # settings of `TrainingConfig` that were named
    encoding: EncodingConfig | None = None

    def in_vain(self) -> tuple[str, ...]:
        """The settings of a recipe that were named although the model is ready: one's own, or that of `init`."""
        if isinstance(self.model, str) or (self.model is None and not self.training.get("init")):
            return ()
        # The encoder of `init` is taken, what is asked of it may change.
        further = () if self.model is None else OF_VECTORS
        return self._said("size", "dropout", "smoothing", "class_weights", "head", "letters", *further)

    def of_vectors(self) -> tuple[str, ...]:
        """The settings that were named although only a model of vectors has them."""
        return self._said(*OF_VECTORS)

    def filled(self, before: RunConfig) -> "Wishes":
        """The same wishes for a run that has begun: what they leave open is as it is there.

        A model that is named, or whose size or start is, is made anew, and compared with the one that is there.
        """
        training = {name: getattr(before.training, name) for name in before.training.__struct_fields__}
        encoding = _with_least(self.encoding or before.encoding, before.encoding)
        if self.vectors is None:
            encoding = msgspec.structs.replace(encoding, vectors=before.encoding.vectors)
        given = getattr(getattr(before.model, "encoder", None), "input", None)
        letters = self.letters or (given.letters if isinstance(given, SpelledConfig) else "none")
        filled = self._replace(training=training | self.training, encoding=encoding, letters=letters)
        anew = self._said("model", "size", "class_weights", "head", "letters", "vectors", *OF_VECTORS)
        if anew or self.training.get("init"):
            return filled
        model = before.model
        if self._said("smoothing"):
            model = with_setting(model, "smoothing", self.smoothing)
        if self.dropout is not None:  # where there is none, any rate above 0 is another run's
            there = any(dropouts(model))
            model = with_dropout(model, self.dropout) if there else with_setting(model, "dropout", self.dropout)
        return filled._replace(model=model)

    def _said(self, *names: str) -> tuple[str, ...]:
        """Those of the names that are not left open."""
        return tuple(name for name in names if getattr(self, name) != self._field_defaults[name])


def _with_least(encoding: EncodingConfig, before: EncodingConfig) -> EncodingConfig:
    """The encoding, words counted as before where it does not say how often they must occur."""
    now, then = encoding.tokenizer, before.tokenizer
    if not isinstance(now, WordsConfig) or not isinstance(then, WordsConfig) or now.least is not None:
        return encoding
    return msgspec.structs.replace(encoding, tokenizer=msgspec.structs.replace(now, least=then.least))


def is_solved(recipe: object, named: Mapping[str, Any]) -> bool:
    """Whether newton solves a run: by name, or because nothing that is named of `linear` is for steps by batches."""
    by_steps = {"optimiser", "rate", "schedule"} & named.keys()
    return isinstance(named.get("optimiser"), NewtonConfig) or (recipe == "linear" and not by_steps)


LENGTHS: dict[str, type[AnyLength]] = {kind.kind(): kind for kind in get_args(AnyLength)}
OF_DATA = DataConfig.__struct_fields__
OF_TRAINING = TrainingConfig.__struct_fields__
OF_WISHES = tuple(name for name in Wishes._fields if name != "training")
OF_TRAIN = ("out", "device", "show")  # parameters by their own names


def settings_of(
    data: tuple[str | Path, ...], settings: Mapping[str, Any], before: DataConfig | None = None
) -> tuple[DataConfig, Wishes]:
    """What the data is, as `before` where nothing is said of a run that goes on, and what is wanted of the run."""
    known = [*OF_TRAIN, *LENGTHS, *OF_WISHES, *OF_TRAINING, *OF_DATA]
    for name in settings:
        if name not in known:
            raise ConfigError(f"train has no setting '{name}'", fix=did_you_mean(name, known))
    wishes = Wishes(training={**_those(settings, OF_TRAINING), **_length(settings)}, **_those(settings, OF_WISHES))
    from seqloom.data.check import data_config  # reads with numpy, and the command line does not call this

    return data_config(data, _those(settings, OF_DATA), before), wishes


def _those(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _length(settings: Mapping[str, Any]) -> dict[str, AnyLength]:
    """How long a run is, under its name; nothing where nothing is said.

    >>> _length({"epochs": 3})
    {'length': EpochsConfig(count=3)}
    """
    given = [name for name in ("length", *LENGTHS) if name in settings]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both say how long", fix="give one of them")
    for name in given:
        value = settings[name]
        if name in LENGTHS:
            return {"length": LENGTHS[name](count=value)}
        if not isinstance(value, Config | dict):
            raise ConfigError(f"length={value!r} does not say of what", fix="write epochs=3, or steps=1000")
    return _those(settings, given)
