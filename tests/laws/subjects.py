"""What the laws are tried on: every member of the closed unions, with every value of every field.

Nothing here names a mixer. A new member of a union brings its own subjects: its fields, their literals and the
`examples` of their sizes say which configurations to draw.
"""

import itertools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

import torch
from torch import nn

from seqloom import recipes
from seqloom.config.base import Config, _fields
from seqloom.config.inputs import NgramsConfig, TokensConfig, VectorsConfig
from seqloom.config.mixers import RELATIVE, AnyMixer, MixerConfig, OneWay, Position
from seqloom.config.stacks import (
    AnyConditioned,
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderConfig,
    FeedForwardConfig,
)
from seqloom.errors import ConfigError
from stacks_common import STACKS, decoder_blocks
from stacks_common import blocks as blocks_of

WIDTH = 8
VOCABULARY = 11
TOKENS = TokensConfig(vocab_size=VOCABULARY)


class Subject(NamedTuple):
    """Something that maps padded sequences to padded sequences, and how to make one."""

    name: str
    make: Callable[[], nn.Module]
    causal: bool = False  # can be stepped
    tokens: bool = False  # reads tokens below VOCABULARY instead of vectors of WIDTH
    source_tokens: bool = False  # its memory is tokens, not vectors
    keeps_width: bool = True  # vectors in, vectors of the same width out
    edges: bool = False  # its elements are the nodes of a graph

    def build(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
        """A fresh module in evaluation mode, every weight drawn (none left at zero, where a law would hold idly)."""
        torch.manual_seed(seed)
        module = self.make()
        for weight in module.parameters():
            nn.init.normal_(weight, std=0.4)
        return module.to(dtype).eval()


def choices(annotation: Any) -> list[Any]:
    """The values of a field that the laws try."""
    if get_origin(annotation) is typing.Annotated:
        return list(annotation.__metadata__[0].examples)
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (types.UnionType, typing.Union):
        return [value for part in get_args(annotation) for value in choices(part)]
    if get_origin(annotation) is tuple:
        items = choices(get_args(annotation)[0])
        return [(items[0],), tuple(items[:2])]
    if annotation is type(None):
        return [None]
    if annotation is bool:
        return [False, True]
    if isinstance(annotation, type) and issubclass(annotation, Config):
        every = variants(annotation)  # all of a leaf's, the first of what holds further choices
        return every[:1] if any(map(_holds_a_configuration, _fields(annotation).values())) else every
    raise NotImplementedError(f"the laws cannot draw {annotation}: give it examples")


def _holds_a_configuration(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return True
    return any(map(_holds_a_configuration, get_args(annotation)))


def variants(kind: type[Config]) -> list[Config]:
    """The configuration with every field at its first choice, and with one after another at each of the others."""
    fields = {name: choices(annotation) for name, annotation in _fields(kind).items()}
    first = {name: values[0] for name, values in fields.items()}
    found = [first] + [first | {name: value} for name, values in fields.items() for value in values[1:]]
    return [made for made in (_or_none(kind, settings) for settings in found) if made is not None]


def _or_none(kind: type[Config], settings: dict[str, Any]) -> Config | None:
    try:
        return kind(**settings)
    except ConfigError:
        return None


def _label(config: Config) -> str:
    first = variants(type(config))[0]
    parts = []
    for name in type(config).__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, Config):
            parts.append(_label(value))
        elif value != getattr(first, name):
            parts.append(f"{name}={value}")
    return "-".join([config.kind(), *parts]).replace(" ", "")


def fits(config: Any, position: Position) -> bool:
    """Whether a mixer can have the width of the laws and this position."""
    try:
        config.fit(WIDTH, position)
    except ConfigError:
        return False
    return True


def _can_be_causal(config: Any) -> bool:
    try:
        config.fit_causal()
    except ConfigError:
        return False
    return True


def mixers() -> Iterator[Subject]:
    """Every mixer of the union, in both directions: each value of each field with each legal position."""
    for kind in get_args(AnyMixer):
        pairs: list[tuple[Any, Position]] = list(itertools.product(variants(kind), ("none", *RELATIVE)))
        for config, position in pairs:
            if not fits(config, position):
                continue
            name = _label(config) + ("" if position == "none" else f"-{position}")
            yield Subject(name, lambda c=config, p=position: c.build(WIDTH, p), edges=config.reads_edges())
            if _can_be_causal(config):
                yield Subject(f"{name}-causal", lambda c=config, p=position: c.build_causal(WIDTH, p), causal=True)


def mixer_kinds() -> list[MixerConfig]:
    """One configuration of each member of the union."""
    return [variants(kind)[0] for kind in get_args(AnyMixer)]


def blocks() -> Iterator[Subject]:
    """Every mixer in a block, and every surrounding around one mixer."""
    first, *others = mixer_kinds()
    for mixer in others:
        yield from _block(BlockConfig(mixer=mixer, arrangement="pre", feed_forward=FeedForwardConfig(hidden=12)))
    for arrangement in ("plain", "residual", "post", "pre"):
        for norm in ("layer", "rms"):
            yield from _block(BlockConfig(mixer=first, arrangement=arrangement, norm=norm))
    for feed_forward in variants(FeedForwardConfig):
        yield from _block(BlockConfig(mixer=first, arrangement="post", feed_forward=feed_forward))


def _block(config: BlockConfig) -> Iterator[Subject]:
    inner = "none" if config.feed_forward is None else f"{config.feed_forward.activation}{config.feed_forward.hidden}"
    name = f"block-{config.mixer.kind()}-{config.arrangement}-{config.norm}-{inner}"
    yield Subject(name, lambda: config.build(WIDTH))
    if _can_be_causal(config):
        yield Subject(f"{name}-causal", lambda: config.build_causal(WIDTH), causal=True)


def conditioned() -> Iterator[Subject]:
    """Every layer that reads a memory."""
    for kind in get_args(AnyConditioned):
        for config in variants(kind):
            if fits(config, "none"):
                yield Subject(f"memory-{_label(config)}", lambda c=config: c.build(WIDTH), causal=True)


def models() -> Iterator[Subject]:
    """Every model of the recipes that maps a sequence to a sequence."""
    for name in recipes.names("language-model"):
        config = recipes.language_model(name, vocab_size=VOCABULARY, size="nano")
        yield Subject(f"language-model-{name}", config.build, causal=True, tokens=True, keeps_width=False)
    for name in recipes.names("translator"):
        config = recipes.translator(name, source=TOKENS, target_vocab_size=VOCABULARY, size="nano")
        yield Subject(
            f"translator-{name}", config.build, causal=True, tokens=True, source_tokens=True, keeps_width=False
        )
    for name, inputs in {"ngrams": NgramsConfig(vocab_size=VOCABULARY, order=3, buckets=17), "tokens": TOKENS}.items():
        for position in ("learned", "sinusoidal"):
            config = DecoderConfig(input=inputs, width=WIDTH, position=position, position_join="concatenate")
            yield Subject(
                f"decoder-{name}-{position}-concatenated", config.build, causal=True, tokens=True, keeps_width=False
            )
    vectors = DecoderConfig(input=VectorsConfig(size=WIDTH), width=12, position="learned", final_norm="rms")
    yield Subject("decoder-vectors", vectors.build, causal=True, keeps_width=False)
    for name in recipes.names("tagger"):
        config = recipes.tagger(name, inputs=TOKENS, num_tags=3, size="nano")
        yield Subject(f"tagger-{name}", config.build, tokens=True, keeps_width=False)
    for name in recipes.names("graph-tagger"):
        config = recipes.graph_tagger(name, inputs=TOKENS, num_tags=3, size="nano")
        along = any(layer.mixer.reads_edges() for layer in config.encoder.layers)
        yield Subject(f"graph-tagger-{name}", config.build, tokens=True, keeps_width=False, edges=along)


def stacks() -> Iterator[Subject]:
    """Layers that remember different things, one after another, in a decoder and in one that reads a memory."""
    for name, layers in STACKS.items():
        yield stack(f"stack-{name}", layers, "none")
        yield stack(f"memory-stack-{name}", layers, "none", conditioned=True)
        if all(fits(mixer, "rotary") for mixer in layers):
            yield stack(f"stack-{name}-rotary", layers, "rotary")


def stack(name: str, layers: tuple[OneWay, ...], position: Position, *, conditioned: bool = False) -> Subject:
    """The decoder of these mixers."""
    vectors = VectorsConfig(size=WIDTH)
    config: DecoderConfig | ConditionedDecoderConfig
    if conditioned:
        config = ConditionedDecoderConfig(
            input=vectors, width=WIDTH, layers=decoder_blocks(layers), position=position, final_norm="layer"
        )
    else:
        config = DecoderConfig(input=vectors, width=WIDTH, layers=blocks_of(layers), position=position)
    return Subject(name, config.build, causal=True)


def _unique(subjects: Iterator[Subject]) -> list[Subject]:
    found = list(subjects)
    assert len({subject.name for subject in found}) == len(found), "two subjects have one name"
    return found


SUBJECTS = _unique(subject for source in (mixers, blocks, conditioned, models, stacks) for subject in source())
CAUSAL = [subject for subject in SUBJECTS if subject.causal]
