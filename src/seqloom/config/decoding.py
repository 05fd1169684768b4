"""Decoding: how a model generates a text token by token."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import NameList, Seed
from seqloom.config.options import DECODING, Flag
from seqloom.errors import ConfigError, did_you_mean

BEAM_SIZE = 5  # of translations, unless one is given
Count = Annotated[int, Meta(ge=1, le=2**20, examples=[1])]
Tokens = Annotated[int, Meta(ge=1, le=2**20, examples=[64])]
Beams = Annotated[int, Meta(ge=1, le=1_024, examples=[5])]
Temperature = Annotated[float, Meta(ge=0.001, le=1_000.0, examples=[1.0])]
Probability = Annotated[float, Meta(ge=0.0, le=1.0, examples=[1.0])]
Penalty = Annotated[float, Meta(ge=0.0, le=100.0, examples=[1.0])]
Repetition = Annotated[float, Meta(ge=1.0, le=100.0, examples=[1.0])]
Most = Annotated[int, Meta(ge=0, le=2**24, examples=[0])]
GREEDY = "leave it out: the default is greedy decoding"


class DecodingConfig(Config, kw_only=True):
    """Base of the decoding methods."""

    max_new_tokens: Annotated[
        Tokens | None,
        Flag(
            "Maximum number of tokens to generate (default: 64 for a language model; for a translation it grows with "
            "the length of the source).",
            "COUNT",
            DECODING,
        ),
    ] = None
    stop: Annotated[
        NameList,
        Flag(
            r"Stop before this text; \n is a line break; can be repeated (default: stop at the end of text).",
            "TEXT",
            DECODING,
        ),
    ] = ()
    repetition_penalty: Annotated[
        Repetition,
        Flag(
            "Penalize tokens that already occurred by this factor; 1 turns it off (default: 1).",
            "NUMBER",
            DECODING,
        ),
    ] = 1.0  # Keskar et al. 2019
    cuda_graphs: Annotated[
        bool,
        Flag(
            "Record the generation of a token as a CUDA graph and replay it; faster on a GPU; not for beam search; "
            "experimental (default: off).",
            panel=DECODING,
        ),
    ] = False

    @property
    def abreast(self) -> int:
        """The number of texts generated in parallel for one prompt."""
        return 1

    def check(self) -> None:
        if "" in self.stop:
            raise ConfigError("a stop string is empty", fix="leave it out")


class GreedyConfig(DecodingConfig, tag="greedy", kw_only=True):
    """The most likely next token each time."""


class SampleConfig(DecodingConfig, tag="sample", kw_only=True):
    """The next token is sampled from the model's distribution, or from a part of it; equal seeds give equal texts."""

    temperature: Annotated[
        Temperature,
        Flag(
            "Sample with this temperature: below 1 more predictable, above 1 more varied (default: greedy decoding).",
            "NUMBER",
            DECODING,
        ),
    ] = 1.0
    top_k: Annotated[
        Most, Flag("Sample only from the k most likely tokens; 0 means all (default: 0).", "COUNT", DECODING)
    ] = 0
    top_p: Annotated[
        Probability,
        Flag(
            "Sample only from the smallest set of tokens with this total probability (default: 1).", "NUMBER", DECODING
        ),
    ] = 1.0  # Holtzman et al. 2020
    min_p: Annotated[
        Probability,
        Flag(
            "Sample only from tokens with at least this fraction of the top token's probability (default: 0).",
            "NUMBER",
            DECODING,
        ),
    ] = 0.0
    num_samples: Annotated[
        Count, Flag("Number of texts to sample for each prompt (default: 1).", "COUNT", DECODING)
    ] = 1
    seed: Annotated[Seed, Flag("Random seed for sampling (default: 0).", "NUMBER", DECODING)] = 0

    @property
    def abreast(self) -> int:
        return self.num_samples


class BeamConfig(DecodingConfig, tag="beam", kw_only=True):
    """Beam search: the best of several texts that are generated in parallel."""

    beam_size: Annotated[
        Beams,
        Flag(
            "Beam search with this many beams; 1 is greedy (default: 5 for translate, else no beam search).",
            "COUNT",
            DECODING,
        ),
    ] = 5
    n_best: Annotated[
        Beams, Flag("Number of texts to return from each beam search, with scores (default: 1).", "COUNT", DECODING)
    ] = 1
    length_penalty: Annotated[
        Penalty,
        Flag(
            "Exponent of length normalization in beam search; 0 is none, higher values favor longer texts (default: "
            "1).",
            "NUMBER",
            DECODING,
        ),
    ] = 1.0  # the score is divided by ((5 + length) / 6)^alpha (Wu et al. 2016); 0: not
    coverage_penalty: Annotated[
        Penalty,
        Flag(
            "Coverage penalty of beam search; higher values favor attending to every source token (default: 0).",
            "NUMBER",
            DECODING,
        ),
    ] = 0.0  # Wu et al. 2016

    @property
    def abreast(self) -> int:
        return self.beam_size

    def check(self) -> None:
        super().check()
        if self.cuda_graphs:
            raise ConfigError("cuda_graphs cannot be used with beam search", fix="leave one of them out")
        if self.n_best > self.beam_size:
            raise ConfigError(
                f"n_best {self.n_best} is more than beam_size {self.beam_size}", fix="raise beam_size, or lower n_best"
            )


AnyDecoding = GreedyConfig | SampleConfig | BeamConfig


def decoding(settings: Mapping[str, Any]) -> AnyDecoding:
    """The simplest decoding method that has all these settings: greedy, else sampling, else beam search.

    >>> [decoding(given).kind() for given in ({"max_new_tokens": 9}, {"temperature": 0.7}, {"beam_size": 5})]
    ['greedy', 'sample', 'beam']
    """
    kinds: tuple[type[AnyDecoding], ...] = (GreedyConfig, SampleConfig, BeamConfig)
    every = {name for kind in kinds for name in kind.__struct_fields__}
    for name in settings.keys() - every:
        raise ConfigError(f"'{name}' is not a decoding setting", fix=did_you_mean(name, every))
    if settings.get("temperature") == 0:  # other programs call this greedy
        raise ConfigError("temperature is 0, but the logits are divided by it", fix=GREEDY)
    for kind in kinds:
        if settings.keys() <= set(kind.__struct_fields__):
            return kind(**settings)
    drawn, searched = (sorted(settings.keys() - set(kind.__struct_fields__)) for kind in (BeamConfig, SampleConfig))
    raise ConfigError(
        f"settings of sampling ({', '.join(drawn)}) and of beam search ({', '.join(searched)}) cannot be combined",
        fix="leave out the settings of one of them",
    )
