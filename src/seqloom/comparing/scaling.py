"""A model made wider or narrower until it has about so many parameters; its depth and its kind stay."""

from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config
from seqloom.config.models import AnyModel, StackConfig
from seqloom.errors import ConfigError

NEAR = 1.25  # times more or less than was asked is still about as many
LARGEST_STEP = 64  # heads and kernels divide widths: the least width that all of them accept is below this
MOST_STEPS = 4_096
WIDE = ("hidden", "filters")  # settings that grow with the width

AnyConfig = TypeVar("AnyConfig", bound=Config)


def scaled(model: AnyModel, parameters: int) -> tuple[AnyModel, str]:
    """The model whose number of parameters is nearest, and what people should know where that is not near."""
    step = next((step for step in range(1, LARGEST_STEP + 1) if _made(model, step) and _made(model, 2 * step)), None)
    best = model if step is None else _nearest(model, step, parameters)
    found = best.parameters()
    if parameters / NEAR <= found <= parameters * NEAR:
        return best, ""
    why = "has no width to change" if step is None else "comes no nearer"
    return best, f"{why}: {found:,} parameters instead of {parameters:,}"


def _nearest(model: AnyModel, step: int, parameters: int) -> AnyModel:
    """By bisection: more width is more parameters."""
    low, high = 1, MOST_STEPS
    while high - low > 1:
        middle = (low + high) // 2
        made = _made(model, middle * step)
        low, high = (middle, high) if made is not None and made.parameters() <= parameters else (low, middle)
    found = [made for steps in (low, high) if (made := _made(model, steps * step)) is not None]
    return min(found, key=lambda one: abs(one.parameters() - parameters))


def _made(model: AnyModel, width: int) -> AnyModel | None:
    """The model in this width; None where its parts do not go with it."""
    try:
        return _widened(model, width / _width(model))
    except ConfigError:
        return None


def _width(config: Config) -> int:
    """The width of the first stack of a model."""
    parts = [getattr(config, field) for field in config.__struct_fields__]
    return next(part.width for part in parts if isinstance(part, StackConfig))


def _widened(config: AnyConfig, factor: float) -> AnyConfig:
    """The same configuration with every width in it times the factor."""
    changed: dict[str, Any] = {}
    for field in config.__struct_fields__:
        held = getattr(config, field)
        grows = field in WIDE or (field == "width" and isinstance(config, StackConfig))  # a picture's width stays
        changed[field] = _times(held, factor) if grows else _within(held, factor)
    return msgspec.structs.replace(config, **changed)


def _times(held: Any, factor: float) -> Any:
    if isinstance(held, tuple):
        return tuple(_times(part, factor) for part in held)
    return max(1, round(held * factor))


def _within(held: Any, factor: float) -> Any:
    if isinstance(held, Config):
        return _widened(held, factor)
    return tuple(_within(part, factor) for part in held) if isinstance(held, tuple) else held
