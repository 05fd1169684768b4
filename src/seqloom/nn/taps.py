"""Taps: named points inside a model where values can be recorded or replaced.

A tap is an identity module without weights. Its name is its path in the module (`decoder.layers.0.mixer.weights`).
Without listeners it costs one function call. Expensive values are *offered*: they are computed only for listeners.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from seqloom.errors import ConfigError, did_you_mean

Listener = Callable[[str, Any], Any]  # (name, value) -> a replacement, or None to keep the value


class Tap(nn.Module):
    """An identity module whose value can be recorded or replaced."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[tuple[str, Listener]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tap":
        return Tap()  # listeners of a model do not listen to its copies

    @property
    def is_heard(self) -> bool:
        """Whether there is a listener that may replace the value."""
        return bool(self._listeners)

    def forward(self, value: Tensor) -> Tensor:
        """The value, or its replacement by a listener."""
        for name, listener in self._listeners:
            replacement = listener(name, value)
            value = value if replacement is None else replacement
        return value

    def offer(self, make: Callable[[], object]) -> None:
        """Offer listeners a value that is computed only for them."""
        if self._listeners:
            made = make()
            for name, listener in self._listeners:
                if listener(name, made) is not None:
                    raise ConfigError(f"the value of '{name}' is only for recording and cannot be replaced")


def taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap of a model by its name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


@contextmanager
def listening(model: nn.Module, pattern: str, listener: Listener) -> Iterator[list[str]]:
    """Call `listener` in the block for every tap whose name matches the pattern (`*` matches anything)."""
    every = taps(model)
    matched = [name for name in every if fnmatchcase(name, pattern)]
    if not matched:
        raise ConfigError(f"no tap matches '{pattern}'", fix=did_you_mean(pattern, every))
    for name in matched:
        every[name]._listeners.append((name, listener))
    try:
        yield matched
    finally:
        for name in matched:
            every[name]._listeners.remove((name, listener))


@contextmanager
def recording(model: nn.Module, pattern: str) -> Iterator[dict[str, list[Any]]]:
    """Record the values of all matching taps in the block, by name, in order."""
    recorded: dict[str, list[Any]] = {}

    def keep(name: str, value: Any) -> None:
        recorded.setdefault(name, []).append(value)

    with listening(model, pattern, keep):
        yield recorded
