"""Options of views as they are typed: texts, of which each becomes what the function of the view takes.

    --layer 2   --row cat   --set top_k=5   --set window=100:200   --set beside=attention,gates

What a view takes is read from its signature, so that no option is written down twice. A number is a number wherever one
fits, `int | str`: `--row 3` is the fourth token, whatever it reads. What is called by a name is `str | int` there, and
typed it always is a name: `--answer 3` is the label "3", as labels of stars are called, and not the fourth label.
"""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from seqloom.errors import ConfigError, did_you_mean

BETWEEN, LIST = ":", ","  # of a span from start to stop, and of several values
YES, NO = ("yes", "true"), ("no", "false")


class Option(NamedTuple):
    """One option of a view."""

    kinds: tuple[Any, ...]  # types that its value may have
    needed: bool

    @property
    def said(self) -> str:
        """What its value is, in words."""
        return " or ".join(dict.fromkeys(WORDS[_plain(kind)] for kind in self.kinds))


def only_in_python(function: Callable[..., Any]) -> bool:
    """Whether a view needs what no text can say."""
    known = options_of(function)
    return any(name not in known for name, one in _parameters(function) if one.default is one.empty)


def _parameters(function: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    return list(inspect.signature(function).parameters.items())[2:]  # behind the subject and what is read


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """What a view can be told as text, by name; what only Python can give, such as a function, is left out."""
    hints, found = get_type_hints(function), {}
    for name, one in _parameters(function):
        kinds = tuple(kind for kind in _members(hints[name]) if _plain(kind) in WORDS)
        if kinds:
            found[name] = Option(kinds, one.default is one.empty)
    return found


def typed(view: str, function: Callable[..., Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The options with the values that the view takes; ConfigError for what it does not take, or lacks."""
    known = options_of(function)
    if only_in_python(function):
        raise ConfigError(f"the view {view} needs what only Python can give", fix="seqloom.load(...).inspect(...)")
    for name in given:
        if name not in known:
            fix = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"the view {view} takes no '{name}'", fix=fix)
    for name, option in known.items():
        if option.needed and name not in given:
            said = (function.__doc__ or "").partition("\n")[0]
            fix = f"--set {name}=VALUE, {option.said}; it shows: {said.rstrip('.')}"
            raise ConfigError(f"the view {view} needs '{name}'", fix=fix)
    return {name: _value(name, text, known[name]) for name, text in given.items()}


def settings(texts: Iterable[str], flags: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What `--set NAME=VALUE` says, by name, behind what flags of their own say.

    >>> settings(["top_k=5", "word= left"])
    {'top_k': '5', 'word': ' left'}
    """
    found = dict(flags)
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.isidentifier():
            raise ConfigError(f"--set {text!r} is no setting", fix="write NAME=VALUE, such as top_k=5")
        if name in found:
            raise ConfigError(f"'{name}' is set twice", fix="leave one out")
        found[name] = value
    return found


def chosen(name: str, known: Iterable[str]) -> str:
    """The name of a view; ConfigError for one that there is not."""
    names = list(known)
    if name not in names:
        raise ConfigError(f"there is no view '{name}'", fix=did_you_mean(name, names))
    return name


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _plain(kind: Any) -> Any:
    """The type that says how a text is read: one of `WORDS`, or something else."""
    kind = str if kind is Any else kind
    return Sequence[str] if kind in (list[str], tuple[str, ...]) else kind


def _value(name: str, text: str, option: Option) -> Any:
    kinds = [_plain(kind) for kind in option.kinds]
    if kinds[0] is str:
        return text
    for kind in sorted(kinds, key=list(WORDS).index):
        try:
            return READERS[kind](text)
        except ValueError:
            continue
    raise ConfigError(f"{name} is '{text}'", fix=f"give {option.said}")


def _truth(text: str) -> bool:
    if text.lower() not in (*YES, *NO):
        raise ValueError(text)
    return text.lower() in YES


def _span(text: str) -> tuple[int, int]:
    start, _, stop = text.partition(BETWEEN)
    return int(start), int(stop)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(LIST)]


def _texts(text: str) -> list[str]:
    return text.split(LIST) if text else []


# the narrowest first: what can be a number is one
WORDS: Mapping[Any, str] = {
    bool: "yes or no",
    int: "a number",
    float: "a number, such as 0.5",
    tuple[int, int]: "two numbers, START:STOP",
    Sequence[int]: "numbers with commas between them",
    Sequence[str]: "names with commas between them",
    str: "a text",
}
READERS: Mapping[Any, Callable[[str], Any]] = {
    bool: _truth,
    int: int,
    float: float,
    tuple[int, int]: _span,
    Sequence[int]: _numbers,
    Sequence[str]: _texts,
    str: str,
}
