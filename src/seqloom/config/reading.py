"""Reading configurations: a file or a text of TOML or JSON becomes plain data, and plain data a checked configuration.

Everything here is bounded before it is done: how many bytes are read, and how long a parser may take over them.
"""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config, quoted, taken
from seqloom.errors import ConfigError, did_you_mean

MAX_FILE_BYTES = 2**18  # the largest recipe has 2,000; ten thousand labels of a tagger fit
MAX_DOTS = 256  # in one line of TOML: tomllib takes time in the square of the parts of a dotted key


def read(path: str | Path, union: Any) -> Any:
    """The configuration in a .toml or .json file, checked against a closed union of kinds."""
    path = Path(path)
    shown = str(path) if str(path).isprintable() else quoted(str(path))
    if path.suffix.lower() not in (".toml", ".json"):
        raise ConfigError(f"{shown}: expected a .toml or .json file", fix="rename it, or give another")
    try:
        text = _text(path)
        return (from_toml if path.suffix.lower() == ".toml" else from_json)(text, union)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error.problem}", fix=error.fix) from None


def _text(path: Path) -> str:
    """The text of a file that is small enough; a byte-order mark is left out."""
    try:
        if path.is_dir():
            raise ConfigError("this is a folder", fix="give a file inside it")
        if not path.is_file():
            raise ConfigError("there is no such file", fix=_nearest(path))
        with path.open("rb") as file:
            _require_short(path.stat().st_size)
            data = file.read(MAX_FILE_BYTES + 1)  # a file may grow, and some have no size until they are read
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"it cannot be read: {reason}", fix="give another path") from None
    _require_short(len(data))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start:,} is not UTF-8", fix="save the file as UTF-8") from None


def _nearest(path: Path) -> str:
    """A file beside the path that could have been meant."""
    others = path.parent.glob("*.*") if path.parent.is_dir() else []
    guess = did_you_mean(path.name, [other.name for other in others if other.name.isprintable()])
    return guess if guess.startswith("did you mean") else "check the path"


def _require_short(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise ConfigError(
            f"{size:,} bytes; a configuration has at most {MAX_FILE_BYTES:,}", fix="is this the right file?"
        )


def from_toml(text: str, union: Any) -> Any:
    """The configuration in a TOML text."""
    _require_text(text)
    for number, line in enumerate(text.split("\n"), start=1):
        if (dots := line.count(".")) > MAX_DOTS:
            raise ConfigError(
                f"line {number:,} holds {dots:,} dots, and the limit is {MAX_DOTS}",
                fix="nest less, or write an array with one item to a line",
            )
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"not TOML: {error}", fix="correct it there; TOML has lines of the form name = value"
        ) from None
    except (RecursionError, ValueError) as error:
        raise _unreadable(error) from None
    return from_data(data, union)


def from_json(text: str, union: Any) -> Any:
    """The configuration in a JSON text; a key given twice is refused."""
    _require_text(text)
    try:
        data = json.loads(text, object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        where = f"(at line {error.lineno}, column {error.colno})"
        fix = 'correct it there; JSON has the form {"name": value}'
        raise ConfigError(f"not JSON: {error.msg} {where}", fix=fix) from None
    except (RecursionError, ValueError) as error:
        raise _unreadable(error) from None
    return from_data(data, union)


def _unreadable(error: RecursionError | ValueError) -> ConfigError:
    """What the parsers themselves give up on: too many brackets, or too many digits for int()."""
    if isinstance(error, RecursionError):
        return ConfigError("it is nested too deeply", fix="nest less; a model has about six levels")
    return ConfigError("a number has thousands of digits", fix="give a smaller one")


def _require_text(text: str) -> None:
    _require_short(len(text))
    if not text.strip():
        raise ConfigError("the configuration is empty", fix="start from a recipe, written with to_toml()")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"the key {quoted(key)} is given twice", fix="leave one of them out")
        found[key] = value
    return found


def from_data(data: Any, union: Any) -> Any:
    """The configuration in plain data (dicts, lists, numbers, text)."""
    return taken(data, union, "")


# A configuration with one kind of setting changed everywhere in it.

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
