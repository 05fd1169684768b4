"""Flags: a field of a configuration says its flag and its help beside its range, and all else reads them there.

    rate: Annotated[LearningRate, Flag("The learning rate; else by model and size.", "NUMBER", OPTIMISER)] = 1e-3

`settings` lists the fields with flags of a configuration and of the parts in it. `said` and `with_flags` make typed
fields of what was given under these names; what is refused is called by its flag. `typed` is the way back.
"""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from seqloom.config.base import Config, plain, taken
from seqloom.errors import ConfigError, did_you_mean

RUN, MODEL, LENGTH, BATCHES = "The run folder, and what is seen", "Model", "How long", "Batches"
OPTIMISER, MACHINE = "Optimiser", "Machine"

AnyConfig = TypeVar("AnyConfig", bound=Config)
P = ParamSpec("P")
Result = TypeVar("Result")


class Flag(NamedTuple):
    """How a field is typed and told. `{names}` in the help are the names that it may have.

    A field that holds a part has one too: with a help it chooses the kind of the part, without one its fields do.
    """

    help: str = ""
    metavar: str | None = None
    panel: str = ""  # of the help
    name: str = ""  # "--rate"; empty: by the field
    parse: Callable[[str], Any] | None = None  # from text to the value; a dict says several fields
    write: Callable[[Any], str] | None = None  # from the configuration to the text
    shown: bool = False  # whether the help tells the default
    free: bool = False  # whether a run that has begun may take another value
    says: str = ""  # what the fields of different parts would say twice


class Setting(NamedTuple):
    """A field that has a flag."""

    field: str
    annotation: Any  # without the flag
    default: Any
    described: Flag

    @property
    def flag(self) -> str:
        """What is typed: `--warm-up`."""
        return self.described.name.partition("/")[0] or f"--{self.field.replace('_', '-')}"

    @property
    def name(self) -> str:
        """The name of the parameter: `warm_up`."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def parts(self) -> tuple[type[Config], ...]:
        """The kinds of configuration that the field may hold."""
        every = () if self.described.parse else get_args(self.annotation) or (self.annotation,)
        return tuple(kind for kind in every if isinstance(kind, type) and issubclass(kind, Config))

    @property
    def names(self) -> tuple[str, ...]:
        """The names that may be given."""
        every = (self.annotation, *get_args(self.annotation))
        named = [name for part in every if get_origin(part) is Literal for name in get_args(part)]
        return tuple(kind.kind() for kind in self.parts) or tuple(named)

    @property
    def help(self) -> str:
        """What the help tells about it."""
        return self.described.help.replace("{names}", ", ".join(self.names))

    @property
    def usual(self) -> Any:
        """The default as it would be typed."""
        return self.default.kind() if isinstance(self.default, Config) else self.default

    def showing(self) -> "Setting":
        """The same, with its default in the help."""
        return self._replace(described=self.described._replace(shown=True))

    def said(self, value: Any) -> dict[str, Any]:
        """The fields that a value stands for, checked."""
        if self.described.parse is None:
            return {self.field: taken(value, self.annotation, self.flag)}
        try:
            parsed = self.described.parse(value)
        except ConfigError as error:
            raise ConfigError(f"{self.flag} {error.problem}", fix=error.fix) from None
        return parsed if isinstance(parsed, dict) else {self.field: parsed}

    def typed(self, config: Config) -> str:
        """The flag with the value that a configuration has; nothing where it is not to be typed."""
        value = getattr(config, self.field)
        if self.described.write is not None:
            return f"{self.flag} {self.described.write(config)}"
        if value is None or value is False:
            return f"--no{self.flag[1:]}" if "/" in self.described.name and value is False else ""
        if value is True:
            return self.flag
        values = value if isinstance(value, tuple) else (value,)
        return " ".join(f"{self.flag} {shlex.quote(str(one).removesuffix('.0'))}" for one in values)


@cache
def own(kind: Any) -> tuple[Setting, ...]:
    """The fields of a configuration, or of a NamedTuple, that have a flag: the parts not looked into."""
    if issubclass(kind, msgspec.Struct):
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    else:
        defaults = kind._field_defaults
    found = []
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        for mark in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
            if isinstance(mark, Flag):
                found.append(Setting(name, plain(annotation), defaults.get(name), mark))
    return tuple(found)


def settings(kind: Any, *names: str) -> dict[str, Setting]:
    """All fields with flags, also of the parts, by their names; those of tables are last. With `names` only these.

    >>> from seqloom.config.data import ReadingConfig
    >>> settings(ReadingConfig, "header")["header"].flag
    '--header'
    """
    every = _settings(kind)
    return {name: every[name] for name in names} if names else dict(every)


@cache
def _settings(kind: Any) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    tables: dict[str, Setting] = {}
    for one in own(kind):
        parts = one.parts
        if one.described.help:
            found[one.name] = one
        for part in parts:
            for name, inner in _settings(part).items():
                (found if len(parts) > 1 else tables).setdefault(name, inner)
    return found | tables


def said(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a configuration that were given, checked; those of tables in it are left to `with_flags`."""
    found: dict[str, Any] = {}
    for one in own(kind):
        if len(one.parts) > 1:
            part = _part(one, given)
            found |= {} if part is None else {one.field: part}
        elif not one.parts and one.name in given:
            found |= one.said(given[one.name])
    return found


def with_flags(usual: AnyConfig, given: Mapping[str, Any]) -> AnyConfig:
    """The configuration with what was given, also in the tables in it."""
    tables = {
        one.field: with_flags(getattr(usual, one.field), given) for one in own(type(usual)) if len(one.parts) == 1
    }
    return msgspec.structs.replace(usual, **tables, **said(type(usual), given))


def _part(whole: Setting, given: Mapping[str, Any]) -> Config | None:
    """The part that was given: of the kind that was named, else of the one that has all the fields; None for none."""
    every = {name: one for part in whole.parts for name, one in _settings(part).items()}
    inner = [one for name, one in every.items() if name in given]
    if not inner and whole.name not in given:
        return None
    kind = _named(whole, inner, given) if whole.described.help else _able(whole, inner)
    fields: dict[str, Any] = {}
    flags: dict[str, str] = {}
    for name, one in _settings(kind).items():
        if name in given:
            fields |= (values := one.said(given[name]))
            flags |= dict.fromkeys(values, one.flag)
    try:
        return kind(**fields)
    except ConfigError as error:
        place, colon, rest = error.problem.partition(": ")
        flag = flags.get(place.rpartition(".")[2])
        raise (ConfigError(f"{flag}: {rest}", fix=error.fix) if colon and flag else error) from None


def _named(whole: Setting, inner: list[Setting], given: Mapping[str, Any]) -> type[Config]:
    """The kind of part that was named, else the usual one; it must have all the fields that were given."""
    kinds = {part.kind(): part for part in whole.parts}
    kind: type[Config] = type(whole.default)
    if whole.name in given:
        kind = kinds[taken(given[whole.name], Literal[tuple(kinds)], whole.flag)]
    for one in inner:
        if one.name not in _settings(kind):
            owners = [name for name, part in kinds.items() if one.name in _settings(part)]
            fix = f"add {whole.flag} {owners[0]}, or leave it out"
            raise ConfigError(f"{one.flag} is a setting of {', '.join(owners)}, not of {kind.kind()}", fix=fix)
    return kind


def _able(whole: Setting, inner: list[Setting]) -> type[Config]:
    """The kind of part that has all the fields that were given; the usual one of several."""
    able = [part for part in whole.parts if all(one.name in _settings(part) for one in inner)]
    if not able:
        flags = " and ".join(one.flag for one in inner)
        raise ConfigError(f"{flags} both say {whole.described.says}", fix="give one of them")
    return type(whole.default) if type(whole.default) in able else able[0]


def typed(whole: Setting, part: Config) -> str:
    """A part as it is typed: `--schedule linear --warm-up 100`."""
    kind = [f"{whole.flag} {part.kind()}"] if whole.described.help else []
    return " ".join([*kind, *filter(None, (one.typed(part) for one in _settings(type(part)).values()))])


def typed_changes(config: Config, known: Collection[str] = ()) -> Iterator[str]:
    """Every flag whose value is not the default, as it is typed, but for those that are known by their names.

    >>> from seqloom.config.data import DataConfig, ReadingConfig
    >>> data = DataConfig(train=("a.csv",), input=("my text",), dev=("b.csv",), reading=ReadingConfig(header=False))
    >>> list(typed_changes(data, ["dev"]))
    ['--no-header', "--input 'my text'"]
    """
    changed = any(getattr(config, field.name) != field.default for field in msgspec.structs.fields(config))
    for one in own(type(config)):
        held = getattr(config, one.field)
        if isinstance(held, Config):
            yield from typed_changes(held, known)
        elif one.name not in known and (held != one.default if one.described.write is None else changed):
            yield one.typed(config)


def free_places(kind: Any, place: str = "") -> Iterator[str]:
    """The dotted names of the settings that a run which has begun may take anew.

    >>> from seqloom.config.data import DataConfig
    >>> sorted(free_places(DataConfig))
    ['bad_rows.share', 'bad_rows.skip']
    """
    for one in own(kind):
        if one.described.free:
            yield f"{place}{one.field}"
        for part in one.parts:
            yield from free_places(part, f"{place}{one.field}.")


def stated(named: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of a call in Python that are not None, which is to say nothing."""
    return {name: value for name, value in named.items() if value is not None}


def strict(function: Callable[P, Result]) -> Callable[P, Result]:
    """The same function, which refuses a setting that it lacks with the nearest one, or with its place."""

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> Result:
        known = signature(function).parameters
        for name in named:
            if name not in known:
                offered = {one: found for one, found in known.items() if found.kind is Parameter.KEYWORD_ONLY}
                places = [  # settings that are configurations with a field of this name
                    f"{one}={kind.__name__}({name}=...)"
                    for one, found in offered.items()
                    for kind in get_args(found.annotation)
                    if isinstance(kind, type) and issubclass(kind, Config) and name in kind.__struct_fields__
                ]
                fix = places[0] if places else did_you_mean(name, offered)
                raise ConfigError(f"{function.__name__} has no setting '{name}'", fix=fix)
        return function(*given, **named)

    return called
