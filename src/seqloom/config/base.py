"""The base of every configuration: typed, frozen, closed to unknown keys, checked when it is made.

A configuration is data. It names our own kinds (`kind = "lstm"`), never a class or a path, so that reading one cannot
run code; it is refused before anything is allocated when it is unknown, out of range, contradictory or too large.
"""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from seqloom.errors import ConfigError, did_you_mean

MAX_FILE_BYTES = 2**20
MAX_PARAMETERS = 2**34  # 64 GiB of float32 weights

# Sizes, each with the range that is taken; `examples` are the small values that the laws draw from.
Width = Annotated[int, Meta(ge=1, le=65_536, examples=[8, 16])]
Depth = Annotated[int, Meta(ge=1, le=1_024, examples=[1, 2])]
Heads = Annotated[int, Meta(ge=1, le=1_024, examples=[2, 1, 4])]
Taps = Annotated[int, Meta(ge=1, le=1_025, examples=[3, 2, 1])]
Span = Annotated[int, Meta(ge=1, le=2**20, examples=[3, 1, 5])]
Length = Annotated[int, Meta(ge=1, le=2**24, examples=[64])]
Symbols = Annotated[int, Meta(ge=1, le=2**24, examples=[11])]
Pixels = Annotated[int, Meta(ge=1, le=16_384, examples=[4])]
Rate = Annotated[float, Meta(ge=0.0, lt=1.0, examples=[0.0])]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A frozen record of settings; making one, in Python or from a file, checks every field."""

    def __post_init__(self) -> None:
        for name, annotation in _fields(type(self)).items():
            try:
                msgspec.convert(getattr(self, name), annotation)
            except msgspec.ValidationError as error:
                raise ConfigError(
                    f"{self.kind()}.{name} = {_show(getattr(self, name))}: {_plainly(str(error))}"
                ) from None
        self.check()

    def check(self) -> None:
        """Raise ConfigError where fields that are fine by themselves contradict one another."""

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


ConfigT = TypeVar("ConfigT")


@cache
def _fields(struct: type[Config]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return [_without_none(item) for item in data] if isinstance(data, list | tuple) else data


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _plainly(message: str) -> str:
    return message.replace("`", "").replace("Expected", "expected").removesuffix(".")


def read(path: str | Path, union: Any) -> Any:
    """The configuration in a .toml or .json file, checked against a closed union of kinds."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise ConfigError(f"{path}: a configuration is a .toml or .json file", fix="rename it")
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: {size:,} bytes; a configuration has at most {MAX_FILE_BYTES:,}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8", fix="save the file as UTF-8") from None
    try:
        return (from_toml if path.suffix == ".toml" else from_json)(text, union)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.problem}", fix=error.fix) from None


def from_toml(text: str, union: Any) -> Any:
    """The configuration in a TOML text."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error or 'nested too deeply'}") from None
    return from_data(data, union)


def from_json(text: str, union: Any) -> Any:
    """The configuration in a JSON text; a key given twice, NaN and Infinity are refused."""
    try:
        data = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constants)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"not JSON: {error or 'nested too deeply'}") from None
    return from_data(data, union)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ConfigError(f"the key '{repeated}' is given twice")
    return found


def _no_constants(name: str) -> None:
    raise ConfigError(f"{name} is not a number that a configuration can hold")


def from_data(data: Any, union: Any) -> Any:
    """The configuration in plain data (dicts, lists, numbers, text)."""
    try:
        return msgspec.convert(data, union)
    except msgspec.ValidationError as error:
        raise _explain(data, union, str(error)) from None
    except RecursionError:
        raise ConfigError("nested too deeply") from None


def _explain(data: Any, union: Any, message: str) -> ConfigError:
    """The same refusal with its place and, for an unknown key or kind, the nearest known one."""
    problem, _, place = message.partition(" - at ")
    place = place.strip("`").removeprefix("$").lstrip(".")
    where = f" at {place}" if place else ""
    holder, kinds = _walk(data, union, place)
    if problem.startswith("Object contains unknown field"):
        name = problem.split("`")[1]
        fields = _fields(kinds[0]) if len(kinds) == 1 else {}
        return ConfigError(f"unknown key '{name}'{where}", fix=did_you_mean(name, fields))
    if place.endswith("kind") and problem.startswith("Invalid value"):
        name = str(holder.get("kind") if isinstance(holder, dict) else holder)
        return ConfigError(f"unknown kind '{name[:40]}'{where}", fix=did_you_mean(name, [kind.kind() for kind in kinds]))
    if "missing required field `kind`" in problem:
        return ConfigError(f"missing key 'kind'{where}", fix=f"choose from {', '.join(kind.kind() for kind in kinds)}")
    if problem.startswith("Invalid enum value"):
        name = problem.split("'")[1] if "'" in problem else problem.rsplit(" ", 1)[-1]
        return ConfigError(f"unknown name '{name}'{where}", fix=did_you_mean(name, _names_at(data, union, place)))
    return ConfigError(f"{_plainly(problem)}{where}")


def _steps(place: str) -> list[str]:
    return [step.split("[")[0] for step in place.split(".") if step]


def _walk(data: Any, union: Any, place: str) -> tuple[Any, list[type[Config]]]:
    """The data at a place like `layers[0].mixer` and the kinds that may stand there (the kind given, if it is known)."""
    kinds = _narrow(data, _structs(union))
    for step in place.split("."):
        name, _, index = step.partition("[")
        if name in ("", "kind") or not isinstance(data, dict):
            continue
        data = data.get(name)
        if index and isinstance(data, list | tuple) and index.rstrip("]").isdigit():
            data = data[int(index.rstrip("]"))]
        elif index and isinstance(data, list | tuple):  # msgspec writes [...] for an item of a tuple
            data = next((item for item in data if isinstance(item, dict)), None)
        kinds = _narrow(data, [struct for kind in kinds for struct in _structs(_fields(kind).get(name))])
    return data, kinds


def _narrow(data: Any, kinds: list[type[Config]]) -> list[type[Config]]:
    given = data.get("kind") if isinstance(data, dict) else None
    return [kind for kind in kinds if kind.kind() == given] or kinds


def _names_at(data: Any, union: Any, place: str) -> list[str]:
    holder, _, name = place.rpartition(".")
    _, kinds = _walk(data, union, holder)
    return [word for kind in kinds for word in get_args(_fields(kind).get(name)) if isinstance(word, str)]


def _structs(annotation: Any) -> list[type[Config]]:
    """Every configuration class mentioned in an annotation, however nested."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    return [struct for part in get_args(annotation) for struct in _structs(part)]


def require_affordable(parameters: int, what: str) -> None:
    """Refuse a model whose weights alone would not fit: checked before anything is allocated."""
    if parameters > MAX_PARAMETERS:
        raise ConfigError(
            f"{what} would have {parameters:,} parameters, {parameters * 4 / 2**30:,.0f} GiB in float32; "
            f"the limit is {MAX_PARAMETERS:,}",
            fix="make it narrower or shallower, or its vocabulary smaller",
        )
