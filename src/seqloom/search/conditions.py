"""Conditions on the columns of documents: `year>=2000`, `lang=en`, `title~cancer`.

    =  !=        equal, not equal; of a list: whether it is in it
    <  <=  >  >= numbers by their size, other text by its letters: dates as 2024-01-31 come out right
    ~            whether the text holds it, in any case of letters

A value that is missing fulfils nothing but `!=`.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from seqloom.data.values import parse_number
from seqloom.errors import ConfigError, did_you_mean

WRITTEN = re.compile(r"\s*(?P<column>[^<>=!~]+?)\s*(?P<sign>>=|<=|!=|==|=|<|>|~)\s*(?P<value>.*?)\s*", re.DOTALL)
ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """What a column of a document must be."""

    column: str
    sign: str
    value: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """The condition that is written so.

        >>> Condition.read("year >= 2000")
        Condition(column='year', sign='>=', value='2000')
        """
        found = WRITTEN.fullmatch(text)
        if found is None:
            raise ConfigError(f"{text!r} is no condition", fix="write COLUMN, one of = != < <= > >= ~, and a value")
        return cls(found["column"], "=" if found["sign"] == "==" else found["sign"], found["value"])

    def holds(self, value: Any) -> bool:
        """Whether a value fulfils it.

        >>> [Condition.read("year>=2000").holds(value) for value in (1999, 2000, "2010.5", None)]
        [False, True, True, False]
        """
        if isinstance(value, list | tuple):
            inside = any(self._replace(sign="=" if self.sign == "!=" else self.sign).holds(one) for one in value)
            return inside != (self.sign == "!=")
        if value is None or value == "":
            return (self.sign == "!=") != (self.value == "") if self.sign in ("=", "!=") else False
        if self.sign == "~":
            return self.value.casefold() in written(value).casefold()
        mine, other = _comparable(value, self.value)
        if self.sign in ("=", "!="):
            return bool(mine == other) == (self.sign == "=")
        return bool(ORDERED[self.sign](mine, other))


def written(value: Any) -> str:
    """A value as people write it in a condition."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _comparable(value: Any, asked: str) -> tuple[Any, Any]:
    """Both as numbers where both are, else both as text."""
    number = parse_number(written(value)) if not isinstance(value, bool) else None
    wanted = parse_number(asked)
    return (written(value), asked) if number is None or wanted is None else (number, wanted)


def conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions that are written so."""
    return tuple(map(Condition.read, texts))


def fulfil(columns: Mapping[str, Any], where: Iterable[Condition]) -> bool:
    """Whether the columns of one document fulfil all conditions."""
    return all(one.holds(columns.get(one.column)) for one in where)


def require_columns(where: Iterable[Condition], known: Iterable[str]) -> None:
    """Raise ConfigError for a condition on a column that no document has."""
    names = list(known)
    for one in where:
        if one.column not in names:
            fix = did_you_mean(one.column, names) if names else "no column but the text and the id was kept"
            raise ConfigError(f"no document has a column '{one.column}'", fix=fix)
