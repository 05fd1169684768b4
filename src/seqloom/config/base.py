"""Base class of every configuration: typed, frozen, rejects unknown keys, checked on creation.

A configuration is data. It names kinds (`kind = "lstm"`), never a class or a path, so that reading one cannot run code.
Unknown, out-of-range, contradictory or too large values are errors before anything is allocated.

The annotation of a field defines its valid values. `taken` checks a value against it, whether it comes from a file,
from plain data or from Python. The size of a file and the time of its parser are limited.
"""

import json
import math
import re
import tomllib
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from seqloom.config.old_names import name_fix, renamed
from seqloom.errors import ConfigError, SeqloomWarning, did_you_mean
from seqloom.report.numbers import size


def at(place: str, problem: str) -> str:
    """A problem with its place in front; places inside that place are joined to it.

    >>> at("encoder", "3 heads cannot share a width of 8"), at("encoder", "layers[0]: the same")
    ('encoder: 3 heads cannot share a width of 8', 'encoder.layers[0]: the same')
    """
    if not place:
        return problem
    return f"{place}.{problem}" if re.match(r"[a-z_]+(\[\d+\])?(\.|: )", problem) else f"{place}: {problem}"


@contextmanager
def located(place: str) -> Iterator[None]:
    """Prefix a ConfigError in the block with the place."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(at(place, error.problem), fix=error.fix) from None


def quoted(text: str) -> str:
    """A name from outside, quoted, shortened and with control characters escaped.

    >>> print(quoted("lstm"), quoted("\\x1b[2J"))
    'lstm' '\\x1b[2J'
    """
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def found(value: Any) -> str:
    """Describe a value of any size from outside in a few words."""
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


MAX_PARAMETERS = 2**34  # 68.7 GB of float32 weights
MAX_WIDTH = 65_536
MAX_ITEMS = 1_024  # of an array whose annotation has no other limit

# Sizes with their ranges; `examples` are small values for tests.
Width = Annotated[int, Meta(ge=1, le=MAX_WIDTH, examples=[8, 16])]
Depth = Annotated[int, Meta(ge=1, le=1_024, examples=[1, 2])]
Heads = Annotated[int, Meta(ge=1, le=1_024, examples=[2, 1, 4])]
Taps = Annotated[int, Meta(ge=1, le=1_025, examples=[3, 2, 1])]
Span = Annotated[int, Meta(ge=1, le=2**20, examples=[3, 1, 5])]
Length = Annotated[int, Meta(ge=1, le=2**24, examples=[64])]
VocabSize = Annotated[int, Meta(ge=1, le=2**24, examples=[11])]
Pixels = Annotated[int, Meta(ge=1, le=16_384, examples=[4])]
Rate = Annotated[float, Meta(ge=0.0, lt=1.0, examples=[0.0])]
Name = Annotated[str, Meta(max_length=256, examples=["O"])]
Names = Annotated[tuple[Name, ...], Meta(max_length=1_024, examples=[("O", "B-X"), ("O", "B-X", "I-X")])]


class Closed(msgspec.StructMeta):
    """Rejects unknown, missing and positional settings in Python with the same messages as in files."""

    def __call__(self, *unnamed: Any, **settings: Any) -> Any:
        kind: type[Config] = self  # type: ignore[assignment]  # every class of this metaclass is a Config
        if unnamed:
            raise ConfigError(
                f"{kind.kind()}: settings are given by name, found {found(unnamed[0])} without one",
                fix=f"write {kind.__name__}(name=value)",
            )
        require_keys(kind, settings, kind.kind())
        return super().__call__(**settings)


@dataclass_transform(frozen_default=True, kw_only_default=True)  # for type checkers: what msgspec's metaclass does
class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", metaclass=Closed):
    """A frozen record of settings; every field is checked on creation, in Python or from a file."""

    def __post_init__(self) -> None:
        for name, annotation in _fields(type(self)).items():
            given = getattr(self, name)
            converted = taken(given, annotation, f"{self.kind()}.{name}")
            if converted is not given:  # a list becomes a tuple and 0 becomes 0.0, as from a file
                msgspec.structs.force_setattr(self, name, converted)
        self.check()

    def check(self) -> None:
        """Raise ConfigError if fields contradict one another."""

    @classmethod
    def kind(cls) -> str:
        """The name of this kind of configuration in files."""
        return str(cls.__struct_config__.tag)

    def to_json(self) -> str:
        """The configuration as JSON text."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def to_toml(self) -> str:
        """The configuration as TOML text; a field that is None is left out, which reads back as its default."""
        return msgspec.toml.encode(_without_none(msgspec.to_builtins(self))).decode()


@cache
def _fields(struct: type[Config]) -> dict[str, Any]:
    return {name: plain(annotation) for name, annotation in get_type_hints(struct, include_extras=True).items()}


def plain(annotation: Any) -> Any:
    """Return the annotation of a field without its flag."""
    if get_origin(annotation) is not Annotated:
        return annotation
    base, *marks = get_args(annotation)
    ranges = [mark for mark in marks if isinstance(mark, Meta)]
    return Annotated[base, *ranges] if ranges else base


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return [_without_none(item) for item in data] if isinstance(data, list | tuple) else data


def taken(value: Any, annotation: Any, place: str) -> Any:
    """Return the value converted to the field's annotation; raise ConfigError with the place if it is invalid."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        parts = tuple(part for part in parts if part is not type(None))
        return _record(value, parts, place) if len(parts) > 1 else taken(value, parts[0], place)
    if origin is Annotated:
        base, meta = parts
        if base in (int, float):
            return _number(value, base, meta, place)
        return _text(value, meta, place) if base is str else _items(value, base, meta, place)
    if origin is tuple:
        return _items(value, annotation, Meta(max_length=MAX_ITEMS), place)
    if origin is Literal:
        return _name(value, parts, place)
    if annotation is not bool:
        return _record(value, (annotation,), place)
    if not isinstance(value, bool):
        raise ConfigError(at(place, f"expected true or false, found {found(value)}"), fix="write true or false")
    return value


def _number(value: Any, base: type, meta: Meta, place: str) -> int | float:
    if not isinstance(value, int | float):  # numpy's numbers are Integral and Real
        value = int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value
    low, high = meta.ge, meta.le if meta.lt is None else meta.lt
    assert low is not None and high is not None, "every size and rate has a range"
    what = "a whole number" if base is int else "a number"
    reach = f"from {low:,} to {high:,}" if meta.lt is None else f"of at least {low:g} and below {high:g}"
    problem = f"expected {what} {reach}, found {found(value)}"
    if isinstance(value, bool) or not isinstance(value, int | float if base is float else int):  # True is an int
        raise ConfigError(at(place, problem), fix=_as_number(value, what, base))
    if value < low:
        raise ConfigError(at(place, problem), fix=f"use at least {low:,}")
    if value > high or value == meta.lt:
        raise ConfigError(at(place, problem), fix=f"use {'at most' if meta.lt is None else 'less than'} {high:,}")
    if math.isnan(value):
        raise ConfigError(at(place, problem), fix="give a number in this range")
    return value if base is int else float(value)


def _as_number(value: Any, what: str, base: type) -> str:
    """Return how to write a value that looks like a misspelled number."""
    if isinstance(value, float) and value.is_integer():
        return f"write {int(value)}" if abs(value) < 1e15 else f"give {what}"
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}" if base is int else "[0-9]?[.]?[0-9]{1,9}", value):
        return f"write {value} without quotes"
    return f"give {what}"


def _name(value: Any, names: tuple[str, ...], place: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(at(place, f"expected a name, found {found(value)}"), fix=f"choose from {', '.join(names)}")
    if value not in names:
        raise ConfigError(at(place, f"unknown name {quoted(value)}"), fix=name_fix(value[:80], names, ordered=True))
    return str.__str__(value)  # the plain text of a str subclass, such as numpy's


def _items(value: Any, annotation: Any, meta: Meta, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(
            at(place, f"expected an array, found {found(value)}"),
            fix=f"write [[{place}]], in double brackets" if isinstance(value, dict) else "write it in [ ]",
        )
    assert meta.max_length is not None
    if len(value) > meta.max_length:
        raise ConfigError(
            at(place, f"expected at most {meta.max_length:,} items, found {len(value):,}"), fix="use fewer"
        )
    item, _ = get_args(annotation)
    return tuple(taken(part, item, f"{place}[{number}]") for number, part in enumerate(value))


def _text(value: Any, meta: Meta, place: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(at(place, f"expected text, found {found(value)}"), fix="write it in quotes")
    assert meta.max_length is not None
    if len(value) > meta.max_length:
        problem = f"expected at most {meta.max_length:,} characters, found {len(value):,}"
        raise ConfigError(at(place, problem), fix="use a shorter name")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(
            at(place, f"{quoted(value)} contains half of a surrogate pair"), fix="write the whole character"
        )
    return str.__str__(value)


def _record(value: Any, kinds: tuple[type[Config], ...], place: str) -> Config:
    if isinstance(value, Config):
        if type(value) not in kinds:
            raise _misplaced(value.kind(), kinds, place)
        return value
    if not isinstance(value, dict):
        wanted = ", ".join(sorted(kind.kind() for kind in kinds))
        raise ConfigError(at(place, f"expected a table, found {found(value)}"), fix=f"give one of kind {wanted}")
    kind = _kind_of(value, kinds, place)
    settings = {name: setting for name, setting in value.items() if name != "kind"}
    require_keys(kind, settings, place)
    inner = f"{place}." if place else ""
    fields = _fields(kind)
    settings = {name: taken(setting, fields[name], f"{inner}{name}") for name, setting in settings.items()}
    with located(place):
        return kind(**settings)


def _kind_of(data: dict[str, Any], kinds: tuple[type[Config], ...], place: str) -> type[Config]:
    """The class that a table names; `kind` may be left out if only one is possible."""
    if "kind" not in data:
        if len(kinds) == 1:
            return kinds[0]
        keys = ", ".join(quoted(str(key)) for key in list(data)[:4]) or "no key"
        raise ConfigError(at(place, f"missing key 'kind', found {keys}"), fix=_choose_from(kinds))
    given = data["kind"]
    if not isinstance(given, str):
        raise ConfigError(at(place, f"expected a name as 'kind', found {found(given)}"), fix=_choose_from(kinds))
    chosen = [kind for kind in kinds if kind.kind() == given]
    if not chosen:
        raise _misplaced(given, kinds, place)
    return chosen[0]


def _misplaced(given: str, kinds: tuple[type[Config], ...], place: str) -> ConfigError:
    if given in _every_kind(Config):
        return ConfigError(at(place, f"{quoted(given)} is not possible here"), fix=_choose_from(kinds))
    return ConfigError(
        at(place, f"unknown kind {quoted(given)}"), fix=did_you_mean(given[:80], [kind.kind() for kind in kinds])
    )


def _every_kind(base: type[Config]) -> set[str]:
    return {base.kind()}.union(*(_every_kind(kind) for kind in base.__subclasses__()))


def _choose_from(kinds: Iterable[type[Config]]) -> str:
    return f"choose from {', '.join(sorted(kind.kind() for kind in kinds))}"


def require_keys(kind: type[Config], settings: dict[str, Any], place: str) -> None:
    """Raise ConfigError for the first unknown or missing key of a record."""
    fields = _fields(kind)
    for name in settings:
        if name not in fields:
            fix = did_you_mean(str(name)[:80], fields) if fields else f"'{kind.kind()}' has no settings: leave it out"
            raise ConfigError(at(place, f"unknown key {quoted(str(name))}"), fix=fix)
    for name in _required(kind):
        if name not in settings:
            raise ConfigError(at(place, f"missing key '{name}'"), fix=f"add it: '{kind.kind()}' has no default for it")


@cache
def _required(kind: type[Config]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


def require_affordable(parameters: int, what: str) -> None:
    """Raise ConfigError for a model that is too large, before anything is allocated."""
    if parameters > MAX_PARAMETERS:
        raise ConfigError(
            f"{what} would have {parameters:,} parameters, {size(4 * parameters)} in float32; "
            f"the limit is {MAX_PARAMETERS:,}, {size(4 * MAX_PARAMETERS)}",
            fix="use a smaller width, fewer layers or a smaller vocabulary",
        )


MAX_FILE_BYTES = 2**18  # the largest recipe has 2,000; ten thousand labels of a tagger fit
MAX_DOTS = 256  # in one line of TOML: tomllib is quadratic in the parts of a dotted key


def read(path: str | Path, union: Any) -> Any:
    """Read the configuration in a .toml or .json file, checked against a closed union of kinds.

    A file of an earlier version is read too, with a warning: `old_names.py` maps its names to the current ones.
    """
    path = Path(path)
    shown = str(path) if str(path).isprintable() else quoted(str(path))
    if path.suffix.lower() not in (".toml", ".json"):
        raise ConfigError(f"{shown}: expected a .toml or .json file", fix="rename it, or give another file")
    try:
        text = _file_text(path)
        data = (_toml_data if path.suffix.lower() == ".toml" else _json_data)(text)
        current = renamed(data) if isinstance(data, dict) else data
        if current != data:
            warnings.warn(
                f"{shown} uses setting names of an earlier version of Seqloom; they are read as the new names",
                SeqloomWarning,
                stacklevel=2,
            )
        return from_data(current, union)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error.problem}", fix=error.fix) from None


def _file_text(path: Path) -> str:
    """Return the text of a file without a byte-order mark; raise ConfigError if it is too large."""
    try:
        if path.is_dir():
            raise ConfigError("this is a folder", fix="give a file inside it")
        if not path.is_file():
            beside = [other.name for other in path.parent.glob("*.*")] if path.parent.is_dir() else []
            guess = did_you_mean(path.name, [name for name in beside if name.isprintable()])
            fix = guess if guess.startswith("did you mean") else "check the path"
            raise ConfigError("there is no such file", fix=fix)
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


def _require_short(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise ConfigError(
            f"the file has {size:,} bytes; the limit for a configuration is {MAX_FILE_BYTES:,}",
            fix="is this the right file?",
        )


def from_toml(text: str, union: Any) -> Any:
    """The configuration in a TOML text."""
    return from_data(_toml_data(text), union)


def _toml_data(text: str) -> Any:
    _require_text(text)
    for number, line in enumerate(text.split("\n"), start=1):
        if (dots := line.count(".")) > MAX_DOTS:
            raise ConfigError(
                f"line {number:,} has {dots:,} dots; the limit is {MAX_DOTS}",
                fix="use fewer levels, or write an array with one item per line",
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"not TOML: {error}", fix="correct this line; TOML has lines of the form name = value"
        ) from None
    except (RecursionError, ValueError) as error:
        raise _unreadable(error) from None


def from_json(text: str, union: Any) -> Any:
    """The configuration in a JSON text; a key given twice is refused."""
    return from_data(_json_data(text), union)


def _json_data(text: str) -> Any:
    _require_text(text)
    try:
        return json.loads(text, object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        where = f"(at line {error.lineno}, column {error.colno})"
        fix = 'correct this place; JSON has the form {"name": value}'
        raise ConfigError(f"not JSON: {error.msg} {where}", fix=fix) from None
    except (RecursionError, ValueError) as error:
        raise _unreadable(error) from None


def _unreadable(error: RecursionError | ValueError) -> ConfigError:
    """Errors of the parsers: too many brackets, or too many digits for int()."""
    if isinstance(error, RecursionError):
        return ConfigError("it has too many nested levels", fix="use fewer levels; a model has about six")
    return ConfigError("a number has too many digits", fix="give a smaller one")


def _require_text(text: str) -> None:
    _require_short(len(text))
    if not text.strip():
        raise ConfigError("the configuration is empty", fix="start from a recipe: seqloom recipes NAME > model.toml")


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


AnyConfig = TypeVar("AnyConfig", bound=Config)
Change = Callable[[str, Any], Any]  # from a field and its value to the new value

DROPOUT = "dropout"  # every dropout rate is a field whose name ends like this


def with_setting(config: AnyConfig, name: str, value: Any) -> AnyConfig:
    """The configuration with this value for every setting of this name.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> config = recipes.classifier("cnn", inputs=TokensConfig(vocab_size=9), num_classes=2)
    >>> with_setting(config, "width", 30).encoder.width
    30
    """
    return _changed(config, lambda field, current: value if field == name else current)


def with_dropout(config: AnyConfig, rate: float) -> AnyConfig:
    """The configuration with this rate for every nonzero dropout setting.

    >>> from seqloom import recipes
    >>> config = recipes.language_model("gpt", vocab_size=9)
    >>> layer = with_dropout(config, 0.5).decoder.layers[0]
    >>> layer.dropout, layer.mixer.dropout
    (0.5, 0.0)
    """
    return _changed(config, lambda field, current: rate if current and field.endswith(DROPOUT) else current)


def values_of(config: Any, name: str) -> Iterator[Any]:
    """The values of every setting of this name in all parts of a configuration.

    >>> from seqloom import recipes
    >>> list(values_of(recipes.language_model("gpt", vocab_size=9, size="nano"), "vocab_size"))
    [9, 9]
    """
    if isinstance(config, Config):
        for field in config.__struct_fields__:
            value = getattr(config, field)
            if field == name:
                yield value
            yield from values_of(value, name)
    elif isinstance(config, tuple):
        for one in config:
            yield from values_of(one, name)


def dropouts(config: Any) -> Iterator[float]:
    """The dropout rates above 0 in all parts of a configuration."""
    parts = config if isinstance(config, tuple) else ()
    if isinstance(config, Config):
        settings = {field: getattr(config, field) for field in config.__struct_fields__}
        yield from (value for field, value in settings.items() if field.endswith(DROPOUT) and value)
        parts = tuple(settings.values())
    for part in parts:
        yield from dropouts(part)


def _changed(config: AnyConfig, change: Change) -> AnyConfig:
    fields: dict[str, Any] = {}
    for field in config.__struct_fields__:
        current = getattr(config, field)
        fields[field] = _within(current, change) if (new := change(field, current)) is current else new
    return msgspec.structs.replace(config, **fields)


def _within(value: Any, change: Change) -> Any:
    if isinstance(value, Config):
        return _changed(value, change)
    return tuple(_within(part, change) for part in value) if isinstance(value, tuple) else value
