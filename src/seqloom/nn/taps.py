"""Taps: named points inside a model where one may listen, or put something else in place.

A tap is an identity. Its name is its path in the module (`decoder.layers.0.mixer.weights`), it has no weights, and when
nobody listens it costs one function call. What is dear to compute is *offered*: made only when somebody listens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from seqloom.errors import ConfigError, did_you_mean

Listener = Callable[[str, Any], Any]  # (name, what passes) -> what shall pass instead, or None to leave it


class Tap(nn.Module):
    """An identity that can be listened to."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[tuple[str, Listener]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tap":
        return Tap()  # whoever listens to a model does not listen to its copies

    @property
    def is_heard(self) -> bool:
        """Whether somebody listens, who may put something else in place."""
        return bool(self._listeners)

    def forward(self, value: Tensor) -> Tensor:
        """The value itself, or what a listener put in its place."""
        for name, listener in self._listeners:
            replacement = listener(name, value)
            value = value if replacement is None else replacement
        return value

    def offer(self, make: Callable[[], object]) -> None:
        """Tell listeners about something that is made only for them."""
        if self._listeners:
            made = make()
            for name, listener in self._listeners:
                if listener(name, made) is not None:
                    raise ConfigError(f"what '{name}' offers is made for listeners alone and cannot be replaced")


def taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap of a model by its name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


@contextmanager
def listening(model: nn.Module, pattern: str, listener: Listener) -> Iterator[list[str]]:
    """Inside the `with`, `listener` hears every tap whose name fits the pattern (`*` stands for anything)."""
    every = taps(model)
    heard = [name for name in every if fnmatchcase(name, pattern)]
    if not heard:
        raise ConfigError(f"no tap fits '{pattern}'", fix=did_you_mean(pattern, every))
    for name in heard:
        every[name]._listeners.append((name, listener))
    try:
        yield heard
    finally:
        for name in heard:
            every[name]._listeners.remove((name, listener))


@contextmanager
def recording(model: nn.Module, pattern: str) -> Iterator[dict[str, list[Any]]]:
    """Inside the `with`, what passes the taps that fit the pattern is kept by name, in order."""
    heard: dict[str, list[Any]] = {}

    def keep(name: str, value: Any) -> None:
        heard.setdefault(name, []).append(value)

    with listening(model, pattern, keep):
        yield heard
