"""What somebody wants of a run, before any data is read: recipe, size and settings by name, the rest left open."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.changing import dropouts, with_dropout, with_setting
from seqloom.config.data import EncodingConfig
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import LettersWish, SpelledConfig
from seqloom.config.models import AnyModel
from seqloom.config.objectives import AnyObjective
from seqloom.config.text import WordsConfig
from seqloom.config.training import RunConfig
from seqloom.recipes import Size

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
