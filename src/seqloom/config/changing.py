"""A configuration with one kind of setting changed everywhere in it."""

from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config

AnyConfig = TypeVar("AnyConfig", bound=Config)


def with_setting(config: AnyConfig, name: str, value: Any) -> AnyConfig:
    """The same configuration, in which every part that has a setting of this name has this value.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> config = recipes.classifier("cnn", inputs=TokensConfig(vocab_size=9), num_classes=2)
    >>> with_setting(config, "dropout", 0.5).encoder.layers[0].dropout
    0.5
    """
    changed: dict[str, Any] = {}
    for field in config.__struct_fields__:
        held = getattr(config, field)
        changed[field] = value if field == name else _within(held, name, value)
    return msgspec.structs.replace(config, **changed)


def _within(held: Any, name: str, value: Any) -> Any:
    if isinstance(held, Config):
        return with_setting(held, name, value)
    if isinstance(held, tuple):
        return tuple(_within(part, name, value) for part in held)
    return held
