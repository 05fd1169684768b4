"""What somebody wants of a run, before any data is read: recipe, size and settings by name, the rest left open."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from seqloom.config.base import Config
from seqloom.config.changes import dropouts, with_dropout, with_setting
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import LettersWish, SpelledConfig
from seqloom.config.models import AnyModel
from seqloom.config.objectives import AnyObjective
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import AnyLength, RunConfig, TrainingConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes.bodies import Size

OF_VECTORS = ("pooling", "objective", "rows_at_once")
WORD_VECTORS = "encoder.input.table"  # the name of the vectors of words


class Wishes(NamedTuple):
    """What somebody wants; what is None is chosen and said aloud."""

    model: str | AnyModel | None = None  # a recipe, or a model of one's own
    size: Size | None = None
    dropout: float | None = None
    smoothing: float = 0.0
    class_weights: str | tuple[float, ...] = ()  # "balanced": as rare labels deserve
    head: HeadKind | None = None  # of a tagger: "crf" learns which tags follow each other; None: "class"
    pooling: Pooling | None = None  # of embed, as the next two: how the vectors of a text become one
    objective: str | AnyObjective | None = None  # what is asked of vectors
    rows_at_once: int | None = None  # texts whose inner values a step holds in memory; None: all
    training: dict[str, Any] = {}  # noqa: RUF012  # settings of `TrainingConfig` that were named
    encoding: EncodingConfig | None = None
    letters: LettersWish | None = None  # what reads the letters of words; None: as is usual for the task
    vectors: str | Path | None = None  # a file of pretrained vectors that those of words start from
    vector_words: int | None = None  # how many of its first words join the vocabulary

    def in_vain(self) -> tuple[str, ...]:
        """The settings of a recipe that were named although the model is ready: one's own, or that of `init`."""
        if isinstance(self.model, str) or (self.model is None and not self.training.get("init")):
            return ()
        further = (
            () if self.model is None else OF_VECTORS
        )  # the encoder of `init` is taken, what is asked of it may change
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
        letters = self.letters or _letters(before.model)
        filled = self._replace(training=training | self.training, encoding=encoding, letters=letters)
        if self._said("model", "size", "class_weights", "head", "letters", "vectors", *OF_VECTORS) or self.training.get(
            "init"
        ):
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


def _letters(model: AnyModel) -> LettersWish:
    """What reads the letters of words in a model."""
    given = getattr(getattr(model, "encoder", None), "input", None)
    return given.letters if isinstance(given, SpelledConfig) else "none"


def frozen(patterns: Iterable[str], *, vectors: bool) -> tuple[str, ...]:
    """The patterns of the weights that stay; the vectors of words are among them if they are to stay.

    >>> frozen(["*.bias"], vectors=True)
    ('*.bias', 'encoder.input.table')
    """
    return tuple(dict.fromkeys([*patterns, *([WORD_VECTORS] if vectors else [])]))


# -----------------------------------------------------------------------------
# What a call of `train` in Python says, sorted by where it belongs; what is unknown is refused with the nearest name.
#
# dev, task, input, ...              what the data is                     DataConfig
# rate, seed, patience, ...          how it is trained                    TrainingConfig
# dropout, letters, vectors, ...     what a recipe is told                Wishes
# epochs, steps, symbols, seconds    how long, as on the command line     length=EpochsConfig(count=...), ...
# -----------------------------------------------------------------------------

LENGTHS: dict[str, type[AnyLength]] = {kind.kind(): kind for kind in get_args(AnyLength)}
OF_DATA = DataConfig.__struct_fields__
OF_TRAINING = TrainingConfig.__struct_fields__
OF_WISHES = tuple(name for name in Wishes._fields if name not in ("model", "size", "training"))
FREEZE_VECTORS = "freeze_vectors"  # short for one more pattern of `freeze`
OF_TRAIN = ("out", "model", "size", "device", "show")  # parameters by their own names


def settings_of(
    data: tuple[str | Path, ...],
    model: str | AnyModel | None,
    size: Size | None,
    settings: dict[str, Any],
    before: DataConfig | None = None,
) -> tuple[DataConfig, Wishes]:
    """What the data is, as `before` where nothing is said of a run that goes on, and what is wanted of the run."""
    for name in settings:
        _require_known(name)
    training = {**_those(settings, OF_TRAINING), **_length(settings)}
    if settings.get(FREEZE_VECTORS):
        training["freeze"] = frozen(training.get("freeze", ()), vectors=True)
    wishes = Wishes(model=model, size=size, training=training, **_those(settings, OF_WISHES))
    from seqloom.data.check import data_config  # reads with numpy, and the command line does not call this

    return data_config(data, _those(settings, OF_DATA), before), wishes


def _those(settings: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _require_known(name: str) -> None:
    known = [*OF_TRAIN, *LENGTHS, FREEZE_VECTORS, *OF_WISHES, *OF_TRAINING, *OF_DATA]
    if name not in known:
        raise ConfigError(f"train has no setting '{name}'", fix=did_you_mean(name, known))


def _length(settings: dict[str, Any]) -> dict[str, AnyLength]:
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
