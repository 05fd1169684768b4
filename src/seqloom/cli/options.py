"""The flags of verbs, made from the fields of configurations.

    @takes(settings(ReadingConfig), settings(DataConfig, "input"))
    def predict(model: Model, given: Given, device: DeviceName = "auto") -> None: ...

is the command `predict MODEL [--format NAME] ... [--input COLUMN] [--device NAME]`. Where `given` stands in the
signature, the flags stand in the help; it gets the values of those that were typed, by the names of the settings.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer

from seqloom.config.data import DataConfig, EncodingConfig, ReadingConfig
from seqloom.config.decoding import GREEDY, AnyDecoding, BeamConfig, SampleConfig, decoding
from seqloom.config.options import MACHINE, Setting, own, said, settings
from seqloom.errors import ConfigError

Given = dict[str, Any]  # what was typed, by the names of the settings
DEVICES = ("auto", "cpu", "cuda", "mps")

Data = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="A file, a folder, two files of parallel text, or the name of a set."),
]
Budget = Annotated[int | None, typer.Option("--budget", min=1, metavar="COUNT", help="Symbols in one batch.")]
DeviceName = Annotated[
    str, typer.Option("--device", metavar="NAME", rich_help_panel=MACHINE, help="auto, cpu, cuda or mps.")
]

DATA = settings(DataConfig) | settings(EncodingConfig)  # of verbs that train
FILE = settings(DataConfig, "input") | settings(ReadingConfig)  # of verbs that ask a model about a file
OF_FILES = {*FILE, "budget", "device"}  # all that these verbs share


def takes(*groups: Mapping[str, Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the same verb with the flags of these settings where its signature has `given`."""
    every = {name: one for group in groups for name, one in group.items()}

    def taking(verb: Callable[..., None]) -> Callable[..., None]:
        parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for mine in inspect.signature(verb).parameters.values():
            flags = map(_parameter, every.values()) if mine.name == "given" else (mine,)
            parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in flags]

        @wraps(verb)
        def called(context: typer.Context, **values: Any) -> None:
            typed = {name: values.pop(name) for name in every}
            verb(**values, given={name: value for name, value in typed.items() if is_typed(context, name)})

        called.__annotations__ = {one.name: one.annotation for one in parameters}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        return called

    return taking


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _parameter(setting: Setting) -> inspect.Parameter:
    """The parameter of a verb that typer makes the flag of a setting from."""
    described, kind = setting.described, _typed_as(setting)
    usual = setting.usual if described.shown else False if kind is bool else None
    metavar = None if kind in (bool, bool | None) else described.metavar
    flag = option(described.name or setting.flag, metavar, setting.help, described.panel)
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=Annotated[kind, flag]
    )


def _typed_as(setting: Setting) -> Any:
    """What typer shall make of the text of a flag."""
    every = (setting.annotation, *get_args(setting.annotation))
    if setting.described.parse is not None or setting.names:
        return str | None
    if bool in every:
        return bool | None if "/" in setting.described.name else bool
    if any(get_origin(part) is tuple for part in every):
        return list[str] | None
    bases = [get_args(part)[0] if get_origin(part) is Annotated else part for part in every]
    return next((base | None for base in (int, float) if base in bases), str | None)


def option(names: str, metavar: str | None, text: str, panel: str = "") -> Any:
    """An option called by its long name and perhaps a short one; one without a metavar is a switch."""
    return typer.Option(*names.split(), metavar=metavar, rich_help_panel=panel or None, help=text)


def encoded(given: Given) -> EncodingConfig | None:
    """How examples become numbers; None, which is by the task, where nothing about it was typed."""
    named = said(EncodingConfig, given)
    return EncodingConfig(**named) if named else None


def require_device(name: str) -> None:
    """Raise ConfigError for what no machine is."""
    if name not in DEVICES:
        raise ConfigError(f"--device {name!r}", fix=f"choose from {', '.join(DEVICES)}")


def way_to_write(given: Mapping[str, Any]) -> AnyDecoding:
    """The way to write that was typed; `count` is how many answers are drawn, or how many of a beam are the best."""
    if "length_penalty" in given and "beam" not in given:
        raise ConfigError("--length-penalty says which text of a beam is best", fix="give --beam 5 too")
    if given.get("temperature") == 0:
        raise ConfigError("--temperature: found 0, and nothing can be divided by it", fix=GREEDY)
    named = said(SampleConfig, given) | said(BeamConfig, given)
    if "beam" in given:
        drawn = [one.flag for one in own(SampleConfig) if one.name in given and one not in own(BeamConfig)]
        several = "--count" if "--count" in drawn else "--best"
        if others := [flag for flag in drawn if flag != "--count"]:
            draw = "draws" if len(others) == 1 else "draw"
            problem = f"{', '.join(others)} {draw} an answer and --beam searches for one"
            raise ConfigError(problem, fix="leave the one or the other out")
        if "count" in named:
            named["best"] = named.pop("count")
        if (best := named.get("best", 1)) > named["width"]:
            raise ConfigError(
                f"{several} {best} asks for more answers than the texts of --beam {named['width']}",
                fix=f"--beam {best}, or a lower {several}",
            )
    return decoding(named)
