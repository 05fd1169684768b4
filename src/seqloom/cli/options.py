"""The options of verbs, generated from the fields of configurations, and their help.

    @takes(settings(ReadingConfig), settings(DataConfig, "input"), common=("input", "out"), examples=("seqloom ...",))
    def predict(model: Model, given: Given, device: DeviceName = "auto") -> None: ...

is the command `predict MODEL [--format NAME] ... [--input COLUMN] [--device NAME]`. The generated options replace
`given` in the signature; `given` gets the values of those that were typed, by name. `--help` shows the examples and the
common options, `--help-all` all of them in groups.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand

from seqloom.config.data import DataConfig, EncodingConfig, ReadingConfig
from seqloom.config.decoding import GREEDY, AnyDecoding, BeamConfig, SampleConfig, decoding
from seqloom.config.options import MACHINE, Setting, flags_in_errors, own, said, settings
from seqloom.errors import ConfigError

Given = dict[str, Any]  # the options that were typed, by name
Typed = tuple[str, ...]  # the command as it was typed, without `seqloom`
DEVICES = ("auto", "cpu", "cuda", "mps")
ALL = "seqloom.help_all"  # in the context: whether all options are shown
TYPED = "seqloom.typed"  # in the context: the arguments of a verb
ARGUMENTS, OPTIONS, COMMON, HELP = "Arguments", "Options", "Common options", "Help"  # groups of the help

Data = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="A file, a folder, two files of parallel text, or the name of a dataset."),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        metavar="COUNT",
        rich_help_panel=MACHINE,
        help="Batch size in tokens, padding included; lower it to save memory (default: 8,192).",
    ),
]
EmbeddingBatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        metavar="COUNT",
        rich_help_panel=MACHINE,
        help="Batch size in tokens, padding included; lower it to save memory (default: 1,024 on a CPU, else 8,192).",
    ),
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        rich_help_panel=MACHINE,
        help="Device: auto, cpu, cuda or mps (default: auto, a GPU if there is one).",
        show_default=False,
    ),
]

DATA = settings(DataConfig) | settings(EncodingConfig)  # options of verbs that train
AS_TRAINED = "as in training"
TRAINED_COLUMN = "the same column as in training, else a column with a common name such as text, else the only column"


def with_defaults(group: Mapping[str, Setting], **defaults: str) -> dict[str, Setting]:
    """The settings with other defaults in their help texts, all of which end with "(default: ...)."."""
    before = {name: group[name].described.help.rpartition("(default: ")[0] for name in defaults}
    return reworded(group, **{name: f"{before[name]}(default: {text})." for name, text in defaults.items()})


def reworded(group: Mapping[str, Setting], **helps: str) -> dict[str, Setting]:
    """The settings with other help texts, for verbs in which they mean something else."""
    changed = {name: group[name].described._replace(help=text) for name, text in helps.items()}
    return {name: one._replace(described=changed.get(name, one.described)) for name, one in group.items()}


# Options of verbs that read a file with a model, and of verbs that read one without.
FILE = with_defaults(
    settings(DataConfig, "input") | settings(ReadingConfig),
    input=TRAINED_COLUMN,
    encoding=f"{AS_TRAINED}, else utf-8",
    delimiter=f"{AS_TRAINED}, else a comma for csv, a tab for tsv, spaces for conll",
    header=f"{AS_TRAINED}, else --header",
    template=AS_TRAINED,
    unit=f"{AS_TRAINED}, else line",
)
TEXT_FILE = reworded(
    settings(DataConfig, "input") | settings(ReadingConfig),
    input="Column with the text; several are joined with a space (default: a column with a common name such as text, "
    "else the only column).",
)
BAD_ROWS = with_defaults(
    settings(DataConfig, "skip_bad_rows", "max_bad_rows"), skip_bad_rows=AS_TRAINED, max_bad_rows=AS_TRAINED
)
SKIP_BAD_ROWS = {"skip_bad_rows": BAD_ROWS["skip_bad_rows"]}
ID = reworded(
    settings(DataConfig, "id"),
    id="Column with the id of each row, which the output repeats (default: as in training, else a column called id, if "
    "there is one).",
)
SEQUENCE = with_defaults(settings(DataConfig, "sequence"), sequence=AS_TRAINED)


class Verb(TyperCommand):
    """A command whose help starts with examples, then has its common options, or all of them in groups."""

    common: tuple[str, ...] = ()  # parameters that --help shows; empty: all
    examples: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them as they were typed."""
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments after the name of the command: `[OPTIONS] MODEL [FILE]...`; some typers add braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, then what the command does."""
        callback: Any = self.callback
        with formatter.section("Examples"):
            for example in callback.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")  # not wrapped, so that it can be copied
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, one section per group."""
        callback: Any = self.callback
        common, every = callback.common, ctx.meta.get(ALL, False)
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
        for option in self.get_params(ctx):
            is_argument, is_help = option.param_type_name == "argument", option.name in ("help", "help_all")
            if not (every or is_argument or is_help or not common or option.name in common):
                continue
            if option.name == "help_all" and not common:  # it would show the same
                continue
            named = getattr(option, "rich_help_panel", None) or OPTIONS
            group = ARGUMENTS if is_argument else HELP if is_help else named if every else COMMON if common else OPTIONS
            if (record := option.get_help_record(ctx)) is not None:
                name = re.sub(r" <.*?>", "", record[0])  # some versions of typer add the type of an argument
                text = re.sub(r"\s*\[x[<>]=\d+\]$", "", record[1]).replace("  [required]", " (required)")
                groups.setdefault(group, []).append((name, text))
        for group in sorted(groups, key=lambda name: name == HELP):  # stable sort: other groups keep their order
            if groups[group]:
                with formatter.section(group):
                    formatter.write_dl(groups[group])


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Show the help with all options."""
    if wanted:
        context.meta[ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options in groups and exit.")
]


def takes(
    *groups: Mapping[str, Setting], common: tuple[str, ...] = (), examples: tuple[str, ...]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a verb the options of these settings and its help.

    Args:
        groups: the settings; their options replace `given` in the signature of the verb. If it has a parameter
            `typed`, it also gets the command as it was typed.
        common: the parameters that `--help` shows; empty: all of them.
        examples: the commands that the help starts with.
    """
    every = {name: one for group in groups for name, one in group.items()}

    def decorated(verb: Callable[..., None]) -> Callable[..., None]:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", keyword, annotation=typer.Context)]
        own = dict(inspect.signature(verb).parameters)
        is_quoting = own.pop("typed", None) is not None
        for mine in own.values():
            flags = map(_parameter, every.values()) if mine.name == "given" else (mine,)
            parameters += [one.replace(kind=keyword) for one in flags]
        parameters += [inspect.Parameter("help_all", keyword, default=False, annotation=HelpAll)]
        assert {*common} <= {one.name for one in parameters}, f"{verb.__name__} lacks {common}"

        @wraps(verb)
        def called(context: typer.Context, **values: Any) -> None:
            values.pop("help_all")  # its callback has shown the help
            typed = {name: values.pop(name) for name in every}
            given = {name: value for name, value in typed.items() if is_typed(context, name)}
            more: dict[str, Any] = {"given": given} if every else {}
            if is_quoting:
                more["typed"] = (str(context.info_name), *context.meta[TYPED])
            with flags_in_errors():
                verb(**values, **more)

        called.common, called.examples = common, examples  # type: ignore[attr-defined]  # what `Verb` reads
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        return called

    return decorated


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter from which typer makes the flag of a setting."""
    described, kind = setting.described, _typed_as(setting)
    metavar = None if kind in (bool, bool | None) else described.metavar
    names = f"{setting.flag}/--no{setting.flag[1:]}" if described.negatable else setting.flag
    flag = option(names, metavar, setting.help, described.panel)
    default = False if kind is bool else None
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, flag]
    )


def _typed_as(setting: Setting) -> Any:
    """Return the type that typer parses a flag to."""
    every = (setting.annotation, *get_args(setting.annotation))
    if setting.described.parse is not None or setting.names:
        return str | None
    if bool in every:
        return bool | None if setting.described.negatable else bool
    if any(get_origin(part) is tuple for part in every):
        return list[str] | None
    bases = [get_args(part)[0] if get_origin(part) is Annotated else part for part in every]
    return next((base | None for base in (int, float) if base in bases), str | None)


def option(names: str, metavar: str | None, text: str, panel: str = "") -> Any:
    """Return an option with a long and optionally a short name; without a metavar it is a switch."""
    return typer.Option(*names.split(), metavar=metavar, rich_help_panel=panel or None, help=text, show_default=False)


def require_device(name: str) -> None:
    """Raise ConfigError for an unknown device."""
    if name not in DEVICES:
        raise ConfigError(f"--device {name!r}", fix=f"choose from {', '.join(DEVICES)}")


def decoding_of(given: Mapping[str, Any]) -> AnyDecoding:
    if "length_penalty" in given and "beam_size" not in given:
        raise ConfigError("--length-penalty is a setting of beam search", fix="add --beam-size 5, or leave it out")
    if given.get("temperature") == 0:
        raise ConfigError("--temperature 0: the scores cannot be divided by 0", fix=GREEDY)
    named = said(SampleConfig, given) | said(BeamConfig, given)
    if "beam_size" in given:
        if drawn := [one.flag for one in own(SampleConfig) if one.name in given and one not in own(BeamConfig)]:
            fix = "use --n-best" if drawn == ["--num-samples"] else "leave one of them out"
            verb = "is" if len(drawn) == 1 else "are"
            raise ConfigError(f"{', '.join(drawn)} {verb} for sampling, --beam-size for beam search", fix=fix)
        if (best := named.get("n_best", 1)) > named["beam_size"]:
            raise ConfigError(
                f"--n-best {best} is more than --beam-size {named['beam_size']}",
                fix=f"--beam-size {best}, or a lower --n-best",
            )
    return decoding(named)
