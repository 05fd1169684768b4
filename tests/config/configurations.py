"""Configurations to try: every recipe, and drawn ones with every value of every field.

Nothing here names a mixer, an input or a head: the annotations of the fields say what to draw, so that a new member of
a closed union is drawn as soon as it is in the union.
"""

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import torch
from hypothesis import strategies as st

from seqloom import recipes
from seqloom.config.base import Config, _fields
from seqloom.config.inputs import (
    AnyInput,
    CharTfidfConfig,
    PictureConfig,
    SpelledConfig,
    SteppedInput,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.mixers import POSITIONS, AnyMixer, OneWay
from seqloom.config.models import (
    AnyModel,
    ElementModelConfig,
    EmbedderConfig,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.config.stacks import AnyConditioned, BlockConfig, ConditionedDecoderConfig, DecoderConfig, EncoderConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded, Spelled

TOKENS = TokensConfig(vocab_size=11)


class Made(NamedTuple):
    """A configuration and where it comes from."""

    name: str
    config: Any


def of_recipes(sizes: tuple[recipes.Size, ...] = recipes.SIZES) -> Iterator[Made]:
    """Every recipe in every shape and size."""
    for size in sizes:
        for name in recipes.names("classifier"):
            yield Made(f"classifier-{name}-{size}", recipes.classifier(name, inputs=TOKENS, num_classes=3, size=size))
        for name in recipes.names("tagger"):
            vectors = VectorsConfig(size=5)
            yield Made(f"tagger-{name}-{size}", recipes.tagger(name, inputs=vectors, num_tags=4, size=size))
        for name in recipes.names("language-model"):
            yield Made(f"language-model-{name}-{size}", recipes.language_model(name, vocab_size=13, size=size))
        for name in recipes.names("translator"):
            model = recipes.translator(name, source=TOKENS, target_vocab_size=13, size=size)
            yield Made(f"translator-{name}-{size}", model)
        for name in recipes.names("graph-tagger"):
            yield Made(f"graph-tagger-{name}-{size}", recipes.graph_tagger(name, inputs=TOKENS, num_tags=4, size=size))
        for name in recipes.names("picture-classifier"):
            model = recipes.picture_classifier(name, height=12, width=16, channels=3, num_classes=3, size=size)
            yield Made(f"picture-classifier-{name}-{size}", model)


def values(annotation: Any, *, wide: bool = False) -> st.SearchStrategy[Any]:
    """What a field of this annotation may hold; `wide`: numbers from its whole range, not only its examples."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values(part, wide=wide) for part in parts))
    if origin is Annotated:
        return _annotated(*parts, wide=wide)
    if origin is tuple:
        return st.lists(values(parts[0], wide=wide), max_size=3).map(tuple)
    if origin is Literal:
        return st.sampled_from(parts)
    if annotation is type(None):
        return st.none()
    return st.booleans() if annotation is bool else records(annotation, wide=wide)


def _annotated(base: Any, meta: Any, *, wide: bool) -> st.SearchStrategy[Any]:
    examples = st.sampled_from(meta.examples)
    if base is float:
        return st.floats(meta.ge, meta.le) if meta.lt is None else st.floats(meta.ge, meta.lt, exclude_max=True)
    if base is int:
        return st.one_of(examples, examples, st.integers(meta.ge, meta.le)) if wide else examples
    names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=2, max_size=5, unique=True)
    return st.one_of(examples, names.map(tuple))


def records(kind: type[Config], *, wide: bool = False, **fixed: Any) -> st.SearchStrategy[Any]:
    """Configurations of one kind, with some fields fixed; those that contradict themselves are left out."""
    fields = {name: values(annotation, wide=wide) for name, annotation in _fields(kind).items() if name not in fixed}
    drawn = st.fixed_dictionaries(fields).map(lambda settings: _or_none(kind, settings | fixed))
    return drawn.filter(lambda config: config is not None)


def _or_none(kind: type[Config], settings: dict[str, Any]) -> Config | None:
    try:
        return kind(**settings)
    except ConfigError:
        return None


@cache
def pool(union: Any) -> tuple[Any, ...]:
    """The members of a union with every field at its first example, and one field after another at each other one."""
    return tuple(config for kind in get_args(union) for config in _variants(kind))


def _variants(kind: type[Config]) -> list[Config]:
    fields = {name: _examples(annotation) for name, annotation in _fields(kind).items()}
    first = {name: choices[0] for name, choices in fields.items()}
    every = [first, *(first | {name: choice} for name, choices in fields.items() for choice in choices[1:])]
    return [config for config in (_or_none(kind, settings) for settings in every) if config is not None]


def _examples(annotation: Any) -> list[Any]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return [example for part in parts for example in _examples(part)]
    if origin is Annotated:
        return list(parts[1].examples)
    if origin is Literal:
        return list(parts)
    if origin is tuple:
        return [(item,) for item in _examples(parts[0])] + [tuple(_examples(parts[0])[:2])]
    if annotation is type(None):
        return [None]
    return [False, True] if annotation is bool else _variants(annotation)


@st.composite
def stacks(draw: st.DrawFn, kind: Any, width: int | None = None, inputs: Any = AnyInput) -> Any:
    """Encoders or decoders whose layers fit their width and position."""
    width = draw(st.sampled_from([8, 16, 6, 1])) if width is None else width
    position = draw(st.sampled_from(POSITIONS))
    layers = [layer for layer in _layers(kind) if _fits(layer, width, position, causal=kind is not EncoderConfig)]
    source = draw(st.sampled_from(pool(inputs)))
    return draw(
        records(
            kind,
            width=width,
            position=position,
            position_join=draw(st.sampled_from(["add", "concatenate"])) if position in POSITIONS[1:3] else "add",
            input=source,
            layers=tuple(draw(st.lists(st.sampled_from(layers), min_size=1, max_size=3))) if layers else (),
        )
    )


@cache
def _layers(kind: Any) -> tuple[Any, ...]:
    if kind is ConditionedDecoderConfig:
        every = pool(AnyConditioned)
        return (*every, *(_replaced(every[0], mixer) for mixer in pool(OneWay) if _steps(mixer)))
    blocks = _variants(BlockConfig)
    return (*blocks, *(_replaced(blocks[0], mixer) for mixer in pool(AnyMixer)))


def _steps(mixer: Any) -> bool:
    try:
        mixer.fit_causal()
    except ConfigError:
        return False
    return True


def _replaced(layer: Any, mixer: Any) -> Any:
    return type(layer)(**{name: getattr(layer, name) for name in layer.__struct_fields__} | {"mixer": mixer})


def _fits(layer: Any, width: int, position: Any, *, causal: bool) -> bool:
    try:
        layer.fit(width, position if position in POSITIONS[3:] else "none")
        if causal and isinstance(layer, BlockConfig):
            layer.fit_causal()
    except ConfigError:
        return False
    return True


def raw_input(source: Any, lengths: list[int]) -> Any:
    """Something that an input of this configuration reads."""
    if isinstance(source, PictureConfig):
        return torch.rand(len(lengths), source.height, source.width, source.channels)
    shape, edges = (len(lengths), max(lengths)), torch.zeros(len(lengths), 0, 2, dtype=torch.int64)  # a graph has edges
    if isinstance(source, VectorsConfig):
        return Padded.of(torch.rand(*shape, source.size), torch.tensor(lengths), edges=edges)
    tokens = Padded.of(torch.randint(0, source.vocab_size, shape), torch.tensor(lengths), edges=edges)
    if isinstance(source, SpelledConfig | CharTfidfConfig):
        return Spelled(tokens, torch.randint(1, 256, (*shape, 4), dtype=torch.uint8))
    return tokens


@st.composite
def models(draw: st.DrawFn) -> Any:
    """Any member of the union of models."""
    kind = draw(st.sampled_from(get_args(AnyModel)))
    if kind is LanguageModelConfig:
        return draw(records(kind, decoder=draw(stacks(DecoderConfig, inputs=SteppedInput))))
    encoder = draw(stacks(EncoderConfig))
    if kind is EncoderDecoderConfig:
        decoder = draw(stacks(ConditionedDecoderConfig, width=encoder.width, inputs=SteppedInput))
        return draw(records(kind, encoder=encoder, decoder=decoder))
    assert kind in (SequenceModelConfig, ElementModelConfig, EmbedderConfig)
    return draw(records(kind, encoder=encoder))
