"""What to call a model: its recipe and size, or its layers in words.

A run's file holds the layers that a recipe made, not the recipe's name: layers are what counts. People asked for
"bilstm, tiny", so the name is found again: it is that of the recipe that makes the same layers for the same task.
"""

from collections import Counter
from typing import Any

import msgspec

from seqloom.config.base import Config
from seqloom.config.models import AnyModel
from seqloom.config.stacks import StackConfig
from seqloom.errors import ConfigError
from seqloom.recipes.bodies import SIZES, Size
from seqloom.tasks.task import HeadSettings, Task

SET_BESIDE = ("dropout", "head")  # flags of training set them, whatever the recipe


def model_named(model: AnyModel, task: Task) -> str:
    """The recipe and the size that make this model for its task; of a model of somebody's own, its layers."""
    layers = _layers(model)
    for recipe in task.recipes():
        sizes = [size for size in SIZES if _made(recipe, size, task) == layers]
        if sizes:
            return f"{recipe}, {sizes[0]}" if len(sizes) == 1 else recipe  # some have one size only
    return layers_said(model)


def layers_said(model: AnyModel) -> str:
    """The layers of a model in words.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> layers_said(recipes.tagger("bilstm", inputs=TokensConfig(vocab_size=9), num_tags=3, size="tiny"))
    '2 x bidirectional lstm, width 12'
    >>> layers_said(recipes.translator("seq2seq-dot", source=TokensConfig(vocab_size=9), target_vocab_size=9))
    '2 x bidirectional lstm, width 200; 2 x seeded lstm, 1 x alignment, width 200'
    """
    parts = [getattr(model, name) for name in model.__struct_fields__]
    return "; ".join(_stack_said(part) for part in parts if isinstance(part, StackConfig))


def _stack_said(stack: StackConfig) -> str:
    counts = Counter(_layer_said(layer) for layer in stack.stack())
    layers = [f"{count * stack.repeat} x {said}" for said, count in counts.items()] or ["no layers"]
    return f"{', '.join(layers)}, width {stack.width:,}"


def _layer_said(layer: Config) -> str:
    """The kinds in a layer from the outside in; a block is only what holds a mixer."""
    inner: Config | None = getattr(layer, "mixer", None)
    names = [layer.kind() if layer.kind() != "block" else "", _layer_said(inner) if inner is not None else ""]
    return " ".join(filter(None, names))


def _made(recipe: str, size: Size, task: Task) -> Any:
    try:
        return _layers(task.model(recipe, size, HeadSettings()))
    except ConfigError:  # not every recipe reads every kind of input
        return None


def _layers(model: AnyModel) -> Any:
    return _without(msgspec.to_builtins(model))


def _without(data: Any) -> Any:
    """The plain data of a model without what training sets; of inputs, whose sizes are those of the data, the kind."""
    if isinstance(data, dict):
        kept = {name: part for name, part in data.items() if name not in SET_BESIDE}
        return {name: part["kind"] if name == "input" else _without(part) for name, part in kept.items()}
    return [_without(part) for part in data] if isinstance(data, list | tuple) else data
