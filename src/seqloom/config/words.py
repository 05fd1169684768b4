"""How a refused configuration is worded: the place, and what stood there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from seqloom.errors import ConfigError


def at(place: str, problem: str) -> str:
    """A problem with its place in front; a problem that begins with a place inside that one goes on from it.

    >>> at("encoder", "3 heads cannot share a width of 8"), at("encoder", "layers[0]: the same")
    ('encoder: 3 heads cannot share a width of 8', 'encoder.layers[0]: the same')
    """
    if not place:
        return problem
    return f"{place}.{problem}" if re.match(r"[a-z_]+(\[\d+\])?(\.|: )", problem) else f"{place}: {problem}"


@contextmanager
def located(place: str) -> Iterator[None]:
    """Inside the `with`, a ConfigError gets the place in front of it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(at(place, error.problem), fix=error.fix) from None


def quoted(text: str) -> str:
    """A name from outside as it may be shown: quoted, short, and nothing in it that a terminal would obey.

    >>> print(quoted("lstm"), quoted("\\x1b[2J"))
    'lstm' '\\x1b[2J'
    """
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def found(value: Any) -> str:
    """A value from outside in a few words, however large it is."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**18 else f"a number of {value.bit_length():,} bits"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, list | tuple):
        return f"an array of {len(value):,}"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, msgspec.Struct):
        return f"'{value.__struct_config__.tag}'"
    return repr(value) if type(value) is float else f"something of type {type(value).__name__}"
