"""Flags: a field of a configuration declares its flag and its help text with its type and range.

    lr: Annotated[LearningRate, Flag("Peak learning rate (default: depends on the model).", "NUMBER", OPTIMIZER)] = 1e-3

is `--lr` on the command line and `lr=` in Python. `settings` lists the fields with flags of a configuration and of its
parts. `said` and `with_flags` check given values and convert them to fields; errors name the flag. `typed` writes
fields as flags again.
"""

import json
import re
import shlex
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike, fspath
from pathlib import Path
from types import GeneratorType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from seqloom.config.base import Config, plain, taken
from seqloom.errors import ConfigError, SeqloomError, did_you_mean

# Groups of options in the help.
RUN, MODEL, DURATION, BATCHES = "Run", "Model", "Duration", "Batches"
OPTIMIZER, MACHINE, DECODING = "Optimizer", "Hardware", "Decoding"
FILES, COLUMNS, SETS, TOKENS = "Reading files", "Task and columns", "Training, validation and test sets", "Tokens"

AnyConfig = TypeVar("AnyConfig", bound=Config)
P = ParamSpec("P")
Result = TypeVar("Result")


class Flag(NamedTuple):
    """The flag of a field. `{names}` in the help is replaced by the possible names.

    A field that holds a part has a flag too: with a help text, the flag selects the kind of the part; without one, the
    given fields of the part do.
    """

    help: str = ""
    metavar: str | None = None
    panel: str = ""  # the group in the help
    parse: Callable[[str], Any] | None = None  # from text to the value; a dict sets several fields
    negatable: bool = False  # whether there is a --no- form too
    changeable: bool = False  # whether it may change when a run is resumed
    typed: Callable[[Any], str] = str  # from a value to the text of it
    says: str = ""  # a name for what conflicting fields of different parts both set


class Setting(NamedTuple):
    """A field that has a flag."""

    name: str  # of the field, and of the parameter in Python
    annotation: Any  # without the flag
    default: Any
    described: Flag

    @property
    def flag(self) -> str:
        """The flag as it is typed: `--batch-tokens`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def parts(self) -> tuple[type[Config], ...]:
        """The kinds of configuration that the field may hold."""
        every = () if self.described.parse else get_args(self.annotation) or (self.annotation,)
        return tuple(kind for kind in every if isinstance(kind, type) and issubclass(kind, Config))

    @property
    def names(self) -> tuple[str, ...]:
        """The valid names."""
        every = (self.annotation, *get_args(self.annotation))
        named = [name for part in every if get_origin(part) is Literal for name in get_args(part)]
        return tuple(kind.kind() for kind in self.parts) or tuple(named)

    @property
    def help(self) -> str:
        return self.described.help.replace("{names}", ", ".join(self.names))

    def said(self, value: Any) -> dict[str, Any]:
        """Return the fields that a value sets, checked; text is parsed."""
        if isinstance(value, PathLike):
            value = fspath(value)
        annotation, parts = self.annotation, get_args(self.annotation)
        if get_origin(parts[0] if get_origin(annotation) is Annotated else annotation) is tuple:
            one = int | float if self.described.parse else str  # in Python also one value, or a path
            value = (value,) if isinstance(value, one) and not isinstance(value, bool) else value
            if isinstance(value, Iterable) and not isinstance(value, str):
                value = tuple(fspath(one) if isinstance(one, PathLike) else one for one in value)
        if self.described.parse is None or not isinstance(value, str):
            if get_origin(annotation) in (Union, UnionType) and str in parts:  # text is parsed, the rest is checked
                others = tuple(part for part in parts if part not in (str, Path))
                annotation = Annotated[str, msgspec.Meta()] if others == (NoneType,) else Union[others]  # noqa: UP007
            return {self.name: taken(value, annotation, self.flag)}
        try:
            parsed = self.described.parse(value)
        except ConfigError as error:
            raise ConfigError(f"{self.flag} {error.problem}", fix=error.fix) from None
        return parsed if isinstance(parsed, dict) else {self.name: parsed}

    def typed(self, config: object) -> str:
        """Return the flag with its value in a configuration; empty if there is nothing to type."""
        value = getattr(config, self.name)
        if value is None or value is False:
            return f"--no{self.flag[1:]}" if self.described.negatable and value is False else ""
        if value is True:
            return self.flag
        shown = self.described.typed
        values = [shown(one).removesuffix(".0") for one in (value if isinstance(value, tuple) else (value,))]
        if self.described.parse and isinstance(value, tuple):  # one text
            values = [",".join(values)]
        return " ".join(f"{self.flag} {shlex.quote(one)}" for one in values)


@cache
def own(kind: Any) -> tuple[Setting, ...]:
    """Return the fields of a configuration or NamedTuple that have a flag, without those of its parts."""
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
    """Return the given fields of a configuration, checked; those of its tables are left to `with_flags`."""
    found: dict[str, Any] = {}
    for one in own(kind):
        if len(one.parts) > 1:
            part = _part(one, given)
            found |= {} if part is None else {one.name: part}
        elif not one.parts and one.name in given:
            found |= one.said(given[one.name])
    return found


def with_flags(default: AnyConfig, given: Mapping[str, Any]) -> AnyConfig:
    """Return the configuration with the given values, also in its tables."""
    tables = {
        one.name: with_flags(getattr(default, one.name), given) for one in own(type(default)) if len(one.parts) == 1
    }
    return msgspec.structs.replace(default, **tables, **said(type(default), given))


def _part(whole: Setting, given: Mapping[str, Any]) -> Config | None:
    """Return the given part, of the named kind or the kind that has all given fields; None if not given."""
    every = {name: one for part in whole.parts for name, one in _settings(part).items()}
    inner = [one for name, one in every.items() if name in given]
    if not inner and whole.name not in given:
        return None
    kind = _named(whole, inner, given) if whole.described.help else _able(whole, inner)
    whole_part = given.get(whole.name)
    fields: dict[str, Any] = msgspec.structs.asdict(whole_part) if isinstance(whole_part, Config) else {}
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
    """Return the named kind of part, else the default; it must have all given fields."""
    kinds = {part.kind(): part for part in whole.parts}
    kind: type[Config] = type(whole.default)
    if isinstance(part := given.get(whole.name), Config):
        kind = type(taken(part, whole.annotation, whole.flag))
    elif whole.name in given:
        kind = kinds[taken(given[whole.name], Literal[tuple(kinds)], whole.flag)]
    for one in inner:
        if one.name not in _settings(kind):
            owners = [name for name, part in kinds.items() if one.name in _settings(part)]
            fix = f"add {whole.flag} {owners[0]}, or leave it out"
            raise ConfigError(f"{one.flag} is a setting of {', '.join(owners)}, not of {kind.kind()}", fix=fix)
    return kind


def _able(whole: Setting, inner: list[Setting]) -> type[Config]:
    """Return the kind of part that has all given fields; the default if several do."""
    able = [part for part in whole.parts if all(one.name in _settings(part) for one in inner)]
    if not able:
        flags = " and ".join(one.flag for one in inner)
        raise ConfigError(f"{flags} both set {whole.described.says}", fix="give only one")
    return type(whole.default) if type(whole.default) in able else able[0]


def typed(whole: Setting, part: Config) -> str:
    """Return a part as flags: `--schedule linear --warmup 100`."""
    kind = [f"{whole.flag} {part.kind()}"] if whole.described.help else []
    return " ".join([*kind, *filter(None, (one.typed(part) for one in _settings(type(part)).values()))])


def typed_changes(config: Config, known: Collection[str] = ()) -> Iterator[str]:
    """Yield every flag whose value is not the default, except those in `known`.

    >>> from seqloom.config.data import DataConfig, ReadingConfig
    >>> data = DataConfig(train=("a.csv",), input=("my text",), dev=("b.csv",), reading=ReadingConfig(header=False))
    >>> list(typed_changes(data, ["dev"]))
    ['--no-header', "--input 'my text'"]
    """
    for one in own(type(config)):
        value = getattr(config, one.name)
        if isinstance(value, Config):
            yield from typed_changes(value, known)
        elif one.name not in known and value != one.default:
            yield one.typed(config)


def typed_settings(config: Config, names: Collection[str]) -> list[str]:
    """Return the flags of these settings whose values are not the defaults.

    >>> from seqloom.config.data import DataConfig
    >>> typed_settings(DataConfig(train=("a.csv",), input=("my text",), dev=("b.csv",)), ["input", "target"])
    ["--input 'my text'"]
    """
    return list(typed_changes(config, [name for name in settings(type(config)) if name not in names]))


def worded_changes(config: Config, known: Collection[str] = ()) -> Iterator[str]:
    """Yield the same in words, for sentences that users of the shell and of Python read.

    >>> from seqloom.config.data import DataConfig, ReadingConfig
    >>> data = DataConfig(train=("a.csv",), input=("my text",), reading=ReadingConfig(delimiter=";", header=False))
    >>> list(worded_changes(data))
    ["delimiter ';'", 'no header', "input 'my text'"]
    """
    for one in own(type(config)):
        value, name = getattr(config, one.name), one.name.replace("_", " ")
        if isinstance(value, Config):
            yield from worded_changes(value, known)
        elif one.name not in known and value != one.default:
            if isinstance(value, bool):
                yield name if value else f"no {name}"
            else:
                values = value if isinstance(value, tuple) else (value,)
                yield " ".join([name, *(shlex.quote(str(part).replace("\t", "\\t")) for part in values)])


def changeable_places(kind: Any, place: str = "") -> Iterator[str]:
    """The dotted names of the settings that may change when a run is resumed.

    >>> from seqloom.config.data import DataConfig
    >>> sorted(changeable_places(DataConfig))
    ['bad_rows.max_bad_rows', 'bad_rows.skip_bad_rows']
    """
    for one in own(kind):
        if one.described.changeable:
            yield f"{place}{one.name}"
        for part in one.parts:
            yield from changeable_places(part, f"{place}{one.name}.")


# Names from earlier versions and from other tools, with the current ones; of several, the one that fits.
NEW_NAMES: dict[str, str | tuple[str, ...]] = {
    "rate": "lr",
    "learning_rate": "lr",
    "decay": "weight_decay",
    "warm_up": "warmup",
    "warmup_steps": "warmup",
    "smoothing": "label_smoothing",
    "clip": "clip_norm",
    "max_grad_norm": "clip_norm",
    "batch": "batch_tokens",
    "batch_size": "batch_tokens",
    "budget": "batch_tokens",
    "per_device_train_batch_size": "batch_tokens",
    "max_tokens": "batch_tokens",
    "symbols": ("tokens", "passage_tokens"),
    "pieces": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "average": "ema",
    "average_last": "average_checkpoints",
    "keep": "keep_checkpoints",
    "letters": "char_encoder",
    "vectors": "word_vectors",
    "glove": "word_vectors",
    "vector_words": "word_vectors_limit",
    "freeze_vectors": "freeze_word_vectors",
    "least": "min_count",
    "min_freq": "min_count",
    "vector_size": "dim",
    "vocabulary": "vocab_size",
    "longest": ("max_new_tokens", "max_length"),
    "max_seq_length": "max_length",
    "truncation": "overlong",
    "too_long": "overlong",
    "unicode": "normalize",
    "lower": "lowercase",
    "repetition": "repetition_penalty",
    "count": "num_samples",
    "num_return_sequences": "num_samples",
    "best": "n_best",
    "beam": "beam_size",
    "beams": "beam_size",
    "num_beams": "beam_size",
    "limit": "max_errors",
    "picture": "plot",
    "most": ("limit", "max_errors", "top_k"),
    "as": ("output_format", "dtype"),
    "rows_at_once": "micro_batch",
    "shares": "dev_size",
    "validation_split": "dev_size",
    "dev_split": "dev_size",
    "random_state": ("split_seed", "seed"),
    "bad_rows": "skip_bad_rows",
    "max_bad": "max_bad_rows",
    "streams": "batching",
    "packs": "batching",
    "feed": "batching",
    "report_every": "log_every",
    "logging_steps": "log_every",
    "eval_steps": "validate_every",
    "save_steps": "save_every",
    "num_train_epochs": "epochs",
    "max_steps": "steps",
    "test": "split",
    "on_test": "split",
    "part": "split",
    "validation": "dev",
    "valid": "dev",
    "output": "out",
    "output_dir": "out",
    "k": "top_k",
    "gpu": "device",
    "optimiser": "optimizer",
    "tokeniser": "tokenizer",
    "normalise": "normalize",
    "early_stopping": "patience",
    "label_column": "target",
    "text_column": "input",
    "rows": "limit",
    "row": "token",
    "whole": "full",
    "join": "compact",
    "shape": "kind",
}


def new_name(name: str, known: Collection[str]) -> str | None:
    """Return the current name of an old or foreign name among the known ones; None if there is none.

    >>> new_name("rate", ["lr", "epochs"]), new_name("longest", ["max_new_tokens"]), new_name("zzz", ["lr"])
    ('lr', 'max_new_tokens', None)
    """
    names = NEW_NAMES.get(name, ())
    return next((one for one in ((names,) if isinstance(names, str) else names) if one in known), None)


def stated(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a Python call that are not None."""
    return {name: value for name, value in named.items() if value is not None}


def require_arguments(function: Callable[..., Any], names: Collection[str]) -> None:
    """Raise ConfigError for a name that is not an argument of a function, with the nearest one."""
    known = _parameters(function)
    if known.keys() >= set(names):
        return
    offered = [one for one, found in known.items() if found.kind is Parameter.KEYWORD_ONLY]
    for name in names:
        if name not in known:
            new = new_name(name, offered)
            fix = did_you_mean(name, offered) if new is None else f"it is called '{new}' here"
            raise ConfigError(f"{function.__name__} has no argument '{name}'", fix=fix)


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return signature(function).parameters


_for_shell: ContextVar[bool] = ContextVar("_for_shell", default=False)


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Inside the `with`, errors of public functions keep their flags: a verb runs, and its user typed flags."""
    token = _for_shell.set(True)
    try:
        yield
    finally:
        _for_shell.reset(token)


@contextmanager
def arguments_in_errors(function: Callable[..., Any]) -> Iterator[None]:
    """Inside the `with`, errors name the arguments of a function instead of flags, unless a verb runs.

    Errors are written for the shell, with flags. Here they are translated, and nowhere else.
    """
    try:
        yield
    except SeqloomError as error:
        if not _for_shell.get():
            error.reword(lambda text: as_arguments(text, function))
        raise


def strict(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorator of public functions: suggest the nearest name for an unknown argument; errors name arguments.

    The errors of a generator do too, whenever they are raised.
    """

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> Result:
        require_arguments(function, named)
        with arguments_in_errors(function):
            found = function(*given, **named)
        return cast(Result, _followed(found, function)) if isinstance(found, GeneratorType) else found

    return called


def _followed(work: Generator[Any, Any, Any], function: Callable[..., Any]) -> Generator[Any, Any, Any]:
    with arguments_in_errors(function):
        return (yield from work)


FLAG = re.compile(
    r"(?<![\w-])--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*)"
    r"""([ =](?P<value>'[^']*'|"[^"]*"|[\w.%+-]*[\w%]))?(?P<asked>\??)"""
)
_ONE = r"--[a-z][a-z0-9-]*(?: '[^']*'| [^\s'-][^\s;,]*)?"
ADDED = re.compile(rf"(?<=\badd ){_ONE}(?: {_ONE})+(?=[\s;,.]|$)")  # several flags with their values
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def as_arguments(text: str, function: Callable[..., Any]) -> str:
    """Write the flags in a sentence as arguments of a function; commands in backticks stay.

    >>> from seqloom.training.run import train
    >>> as_arguments("--batch-tokens 0, --no-header and --dev FILE: use --dev-size 10% or --task lm", train)
    'batch_tokens=0, header=False and dev="FILE": use dev_size="10%" or task="lm"'
    >>> as_arguments("--seed is a number. Run `seqloom train a.csv --seed 1`", train)
    'seed is a number. Run `seqloom train a.csv --seed 1`'
    >>> as_arguments("use --encoding cp1252 if it is Windows text; --encoding is a name", train)
    'use encoding="cp1252" if it is Windows text; encoding is a name'
    """
    parameters = signature(function).parameters
    choices = {name: _choices(one.annotation) for name, one in parameters.items()}
    texts = {name for name, one in parameters.items() if str in (one.annotation, *get_args(one.annotation))}

    def argument(flag: re.Match[str]) -> str:
        name, value, asked = flag["name"].replace("-", "_"), flag["value"] or "", flag["asked"]
        bare, after = value.strip("'\""), flag[0].partition(flag["name"])[2]
        if flag["no"]:
            return f"{name}=False{after}"
        if NUMBER.fullmatch(value):
            named = name in texts and not {int, float} & set(get_args(parameters[name].annotation))  # a column
            return f'{name}="{value}"{asked}' if named else f"{name}={value}{asked}"
        known = value.isupper() or value.endswith("%") or value in choices.get(name, SPLITS)
        known = known or (name in texts and flag.string[: flag.start()].endswith(("use ", "Use ")))
        known = known or (flag.start() == 0 and flag.string[flag.end() :].startswith(":"))  # --by shops: ...
        if value and (known or asked or bare != value):
            return f'{name}="{bare}"{asked}'
        return f"{name}=True{after}" if choices.get(name) == {True} else f"{name}{after}"

    text = ADDED.sub(lambda found: added_arguments(found[0]), text)
    pieces = re.split(r"(`(?:seqloom|pip) [^`]*`)", text)  # every second one is a command
    return "".join(piece if at % 2 else FLAG.sub(argument, piece) for at, piece in enumerate(pieces))


def added_arguments(flags: str) -> str:
    """Write several flags as the arguments of a call; a flag that is repeated has a tuple of values.

    >>> added_arguments("--no-header --delimiter ';' --input 1 --input 2")
    'header=False, delimiter=";", input=("1", "2")'
    """
    named: dict[str, list[str]] = {}
    for word in shlex.split(flags):
        if word.startswith("--"):
            values = named.setdefault(word[2:].replace("-", "_"), [])
        else:
            values.append(json.dumps(word, ensure_ascii=False))
    return ", ".join(
        f"{name}={values[0]}"
        if len(values) == 1
        else f"{name}=({', '.join(values)})"
        if values
        else f"{name.removeprefix('no_')}={not name.startswith('no_')}"
        for name, values in named.items()
    )


SPLITS = frozenset({"dev", "test"})  # of `--split`, which some messages of other functions name


def _choices(annotation: Any) -> set[Any]:
    """The names that an argument accepts; {True} for a switch."""
    if annotation is bool:
        return {True}
    if get_origin(annotation) is Literal:
        return {*get_args(annotation)}
    if isinstance(annotation, type):
        return {annotation.kind()} if issubclass(annotation, Config) else set()
    return {choice for part in get_args(annotation) for choice in _choices(part)}
