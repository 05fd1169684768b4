"""A configuration with one kind of setting changed everywhere in it."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config

AnyConfig = TypeVar("AnyConfig", bound=Config)
Change = Callable[[str, Any], Any]  # from a field and what it holds to what it shall hold

DROPOUT = "dropout"  # every rate of dropout is a field whose name ends so


def with_setting(config: AnyConfig, name: str, value: Any) -> AnyConfig:
    """The same configuration, in which every part that has a setting of this name has this value.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> config = recipes.classifier("cnn", inputs=TokensConfig(vocab_size=9), num_classes=2)
    >>> with_setting(config, "width", 30).encoder.width
    30
    """
    return _changed(config, lambda field, held: value if field == name else held)


def with_dropout(config: AnyConfig, rate: float) -> AnyConfig:
    """The same configuration with this rate at every place that has dropout; a place without any stays so.

    >>> from seqloom import recipes
    >>> config = recipes.language_model("gpt", vocab_size=9)
    >>> layer = with_dropout(config, 0.5).decoder.layers[0]
    >>> layer.dropout, layer.mixer.dropout
    (0.5, 0.0)
    """
    return _changed(config, lambda field, held: rate if held and field.endswith(DROPOUT) else held)


def dropouts(config: Any) -> Iterator[float]:
    """The rates of dropout above 0 in all parts of a configuration."""
    parts = config if isinstance(config, tuple) else ()
    if isinstance(config, Config):
        held = {field: getattr(config, field) for field in config.__struct_fields__}
        yield from (value for field, value in held.items() if field.endswith(DROPOUT) and value)
        parts = tuple(held.values())
    for part in parts:
        yield from dropouts(part)


def _changed(config: AnyConfig, change: Change) -> AnyConfig:
    fields: dict[str, Any] = {}
    for field in config.__struct_fields__:
        held = getattr(config, field)
        fields[field] = _within(held, change) if (asked := change(field, held)) is held else asked
    return msgspec.structs.replace(config, **fields)


def _within(held: Any, change: Change) -> Any:
    if isinstance(held, Config):
        return _changed(held, change)
    return tuple(_within(part, change) for part in held) if isinstance(held, tuple) else held
