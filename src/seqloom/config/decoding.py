"""Decoding: how a model that scores the next symbol writes a whole text."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import NameList, Seed
from seqloom.config.options import Flag
from seqloom.errors import ConfigError, did_you_mean

Count = Annotated[int, Meta(ge=1, le=2**20, examples=[1])]
Symbols = Annotated[int, Meta(ge=1, le=2**20, examples=[64])]
Beams = Annotated[int, Meta(ge=1, le=1_024, examples=[5])]
Temperature = Annotated[float, Meta(ge=0.001, le=1_000.0, examples=[1.0])]
Probability = Annotated[float, Meta(ge=0.0, le=1.0, examples=[1.0])]
Penalty = Annotated[float, Meta(ge=0.0, le=100.0, examples=[1.0])]
Repetition = Annotated[float, Meta(ge=1.0, le=100.0, examples=[1.0])]
Most = Annotated[int, Meta(ge=0, le=2**24, examples=[0])]
GREEDY = "leave it out: without it the likeliest symbol is taken each time (greedy)"


class DecodingConfig(Config, kw_only=True):
    """Base of the ways to write."""

    longest: Annotated[Symbols | None, Flag("Symbols of an answer, at most.", "COUNT")] = None  # None: by the task
    stop: Annotated[NameList, Flag(r"End before it; \n is a line end.", "TEXT")] = ()
    repetition: Annotated[Repetition, Flag("Said symbols are so many times less likely, from 1 on.", "NUMBER")] = (
        1.0  # Keskar et al. 2019
    )

    @property
    def abreast(self) -> int:
        """How many texts are written side by side for one prompt."""
        return 1

    def check(self) -> None:
        if "" in self.stop:
            raise ConfigError("a stop string without characters stands everywhere", fix="leave it out")


class GreedyConfig(DecodingConfig, tag="greedy", kw_only=True):
    """The likeliest next symbol, again and again."""


class SampleConfig(DecodingConfig, tag="sample", kw_only=True):
    """A next symbol drawn from the model's distribution, or from a part of it; the same for the same seed."""

    temperature: Annotated[
        Temperature, Flag("Draw symbols: below 1 more often the likeliest, above 1 more varied ones.", "NUMBER")
    ] = 1.0
    top_k: Annotated[Most, Flag("Draw from so many likeliest symbols.", "COUNT")] = 0  # 0: from all
    top_p: Annotated[Probability, Flag("Draw from the fewest with so much in all.", "SHARE")] = (
        1.0  # of probability (Holtzman et al. 2020)
    )
    min_p: Annotated[Probability, Flag("Draw from those with this share of the likeliest's.", "SHARE")] = 0.0
    count: Annotated[Count, Flag("Answers: drawn ones, or a beam's best.", "COUNT")] = 1  # to each prompt
    seed: Annotated[Seed, Flag("Draw with it: the same, the same answer.", "NUMBER")] = 0

    @property
    def abreast(self) -> int:
        return self.count


class BeamConfig(DecodingConfig, tag="beam", kw_only=True):
    """The best of several texts that are written side by side."""

    width: Annotated[Beams, Flag("Search with so many texts side by side; 1 is greedy.", "WIDTH", name="--beam")] = 5
    best: Annotated[Beams, Flag("How many texts for each source, with scores.", "COUNT")] = 1
    length_penalty: Annotated[Penalty, Flag("Of a beam: the more, the longer the text.", "ALPHA")] = (
        1.0  # the score is divided by ((5 + length) / 6)^alpha (Wu et al. 2016); 0: not
    )
    coverage_penalty: Annotated[Penalty, Flag("What it costs that words of the source were not looked at.", "BETA")] = (
        0.0  # Wu et al. 2016
    )

    @property
    def abreast(self) -> int:
        return self.width

    def check(self) -> None:
        super().check()
        if self.best > self.width:
            raise ConfigError(f"the best {self.best} of {self.width} beams", fix="raise width, or lower best")


AnyDecoding = GreedyConfig | SampleConfig | BeamConfig


def decoding(settings: Mapping[str, Any]) -> AnyDecoding:
    """The simplest way to write that has all these settings: greedy, else a sample, else a beam.

    >>> decoding({"longest": 9}).kind(), decoding({"temperature": 0.7}).kind(), decoding({"width": 5, "best": 3}).kind()
    ('greedy', 'sample', 'beam')
    """
    kinds: tuple[type[AnyDecoding], ...] = (GreedyConfig, SampleConfig, BeamConfig)
    every = {name for kind in kinds for name in kind.__struct_fields__}
    for name in settings.keys() - every:
        raise ConfigError(f"'{name}' is no setting of decoding", fix=did_you_mean(name, every))
    if settings.get("temperature") == 0:  # what other programs call greedy
        raise ConfigError("temperature: found 0, and nothing can be divided by it", fix=GREEDY)
    for kind in kinds:
        if settings.keys() <= set(kind.__struct_fields__):
            return kind(**settings)
    drawn, searched = (sorted(settings.keys() - set(kind.__struct_fields__)) for kind in (BeamConfig, SampleConfig))
    raise ConfigError(
        f"settings of a sample ({', '.join(drawn)}) and of a beam ({', '.join(searched)}), and an answer is either",
        fix="leave the one or the other out",
    )
