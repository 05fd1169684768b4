"""Options of views are of the kinds that their signatures say: what is not is refused before any work, in words.

    attention(layer=[1])    ConfigError: the view attention: layer is [1]. Fix: give a whole number, a text or None.

Numbers may be those of numpy, and a list may stand where a tuple does. A truth is no number. What a signature leaves
open, and elements of what can be read only once, are not looked at.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from seqloom.errors import ConfigError

LONGEST = 60  # characters of a value that is told


def checked(view: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, single numbers of numpy as those of Python; ConfigError for one that is not of its kind."""
    hints = get_type_hints(function)
    for name, value in given.items():
        if not fits(value, hints[name]):
            told = repr(value)
            shown = told if len(told) <= LONGEST else f"{told[:LONGEST]}..., a {type(value).__name__}"
            raise ConfigError(f"the view {view}: {name} is {shown}", fix=f"give {told_kind(hints[name])}")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, as an annotation has it; of one that is not known here, every value is.

    >>> fits([0, 2], tuple[int, int]), fits((0, 2.5), tuple[int, int]), fits(True, int | None)
    (True, False, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if kind is Any:
        return True
    if origin is tuple and inner[-1:] != (...,):
        return _is_listed(value) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin in (Sequence, list, tuple):
        return _is_listed(value) and all(fits(one, inner[0]) for one in value)
    known = PLAIN.get(kind) or (origin if isinstance(origin, type) else kind)
    if not isinstance(known, type | tuple):
        return True
    return isinstance(value, known) and not (kind in NUMBERS and isinstance(value, bool))


def _is_listed(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def told_kind(kind: Any, *, many: bool = False) -> str:
    """A kind in words, or several of it.

    >>> told_kind(tuple[int, int] | None), told_kind(Sequence[str | int])
    ('two whole numbers or None', 'a list of texts or whole numbers')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        *first, last = dict.fromkeys(told_kind(one, many=many) for one in inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple and inner == (int, int):
        return "pairs of whole numbers" if many else "two whole numbers"
    if origin in (Sequence, list, tuple):
        return f"{'lists' if many else 'a list'} of {told_kind(inner[0], many=True)}"
    name = getattr(origin or kind, "__name__", "value")
    return WORDS.get(origin or kind, (f"a {name}", f"{name}s"))[many]


NUMBERS = (int, float)
PLAIN: Mapping[Any, Any] = {int: Integral, float: Real, bool: (bool, np.bool_)}
WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    str: ("a text", "texts"),
    type(None): ("None", "None"),
    Callable: ("a function", "functions"),
    AbstractContextManager: ("an edit", "edits"),
}
