"""Decoding: how a model that scores the next symbol writes a whole text."""

from typing import Annotated, Any

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import NameList, Seed
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

    longest: Symbols | None = None  # symbols of one answer; None: by the task
    stop: NameList = ()  # texts that end an answer; none of them is part of it
    repetition: Repetition = 1.0  # symbols that were said are so many times less likely (Keskar et al. 2019)

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

    temperature: Temperature = 1.0  # below 1: bolder than the model; above: more varied
    top_k: Most = 0  # draw from the k likeliest; 0: from all
    top_p: Probability = 1.0  # from the fewest that have so much probability together (Holtzman et al. 2020)
    min_p: Probability = 0.0  # from those that have this share of the likeliest one's probability
    count: Count = 1  # answers to each prompt
    seed: Seed = 0

    @property
    def abreast(self) -> int:
        return self.count


class BeamConfig(DecodingConfig, tag="beam", kw_only=True):
    """The best of several texts that are written side by side."""

    width: Beams = 5
    best: Beams = 1  # how many of them are answers
    length_penalty: Penalty = 1.0  # alpha: the score is divided by ((5 + length) / 6)^alpha (Wu et al. 2016); 0: not
    coverage_penalty: Penalty = 0.0  # beta: what the source was too little looked at costs (Wu et al. 2016)

    @property
    def abreast(self) -> int:
        return self.width

    def check(self) -> None:
        super().check()
        if self.best > self.width:
            raise ConfigError(f"the best {self.best} of {self.width} beams", fix="raise width, or lower best")


AnyDecoding = GreedyConfig | SampleConfig | BeamConfig


def decoding(**settings: Any) -> AnyDecoding:
    """The simplest way to write that has all these settings: greedy, else a sample, else a beam.

    >>> decoding(longest=9).kind(), decoding(temperature=0.7).kind(), decoding(width=5, best=3).kind()
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
