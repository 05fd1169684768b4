"""Lazy imports: the public names of a package are loaded when they are first used.

__getattr__ = loading(__name__, HOMES)          HOMES = {"inference.model": ("LoadedModel", "load"), ...}
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loading(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are defined in its modules."""
    places = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(places[name]), name)

    return found
