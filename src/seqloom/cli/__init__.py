"""The command line: one verb per file; each parses its options, calls the library and shows the result."""

import io
import sys
import warnings
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from seqloom.cli import (
    auto,
    bench,
    compare,
    data,
    dedupe,
    demo,
    doctor,
    embed,
    evaluate,
    generate,
    graph,
    import_,
    index,
    inspect,
    label,
    predict,
    recipes,
    search,
    serve,
    train,
    translate,
    tune,
    vectors,
    verify,
)
from seqloom.cli.options import Verb
from seqloom.cli.terminal import exit_code_of
from seqloom.config.base import quoted
from seqloom.config.options import new_name
from seqloom.errors import RejectedError, SeqloomError, SeqloomWarning
from seqloom.nn.ops.kernels import few_kernels
from seqloom.version import __version__

STOPPED = 130  # the exit code that shells expect after Ctrl-C
RESUME = ("resume", "resume_from_checkpoint", "continue")  # options of other programs that Seqloom does not need
# Old options whose values have changed too.
HINTS = {
    "test": "--split test",
    "on_test": "--split test",
    "shares": "--dev-size and --test-size",
    "streams": "--batching streams",
    "packs": "--batching packs",
}


class Verbs(TyperGroup):
    """The group of verbs: prints "stopped" after Ctrl-C, and suggests the right name of an unknown option."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(STOPPED) from None
        except Exception as error:
            if hasattr(error, "possibilities"):  # an unknown option; some versions of typer bundle their own click
                self._suggest(error)
            found: Any = error.__cause__
            if hasattr(found, "errors") and hasattr(error, "message"):  # a value that pydantic cannot parse
                error.message = _plain_message(found.errors()[0], error.message)
            raise

    def _suggest(self, error: Any) -> None:
        """Suggest the name of the option in this verb, or the verbs that have it, or similar names."""
        name = error.option_name.lstrip("-").removeprefix("no-").replace("-", "_")
        if name in RESUME:
            error.message, error.possibilities = f"{error.message}; run the same command again to resume", []
            return
        if name == "help_all":  # of a group such as `data`
            error.message, error.possibilities = f"{error.message}; use --help", []
            return
        own = {one.name: one for one in error.ctx.command.params}
        if (new := new_name(name, own)) is not None:
            flag = max(own[new].opts, key=len)  # the long one
            error.message, error.possibilities = f"{error.message}; use {HINTS.get(name, flag)}", []
            return
        verbs = dict(_verbs(self))
        every = {one.name for verb in verbs.values() for one in verb.params}
        known = name if any(error.option_name in _flags(verb) for verb in verbs.values()) else new_name(name, every)
        owners = [title for title, verb in verbs.items() if known in {one.name for one in verb.params}]
        if owners and known is not None:
            flag = error.option_name if known == name else f"--{known.replace('_', '-')}"
            called = "it" if known == name else flag
            have = "has" if len(owners) == 1 else "have"
            error.message = f"{error.message}; seqloom {', '.join(owners)} {have} {called}"
            error.possibilities = []
        elif error.possibilities:
            (near,) = get_close_matches(error.option_name, error.possibilities, n=1, cutoff=0.0)
            error.message, error.possibilities = f"{error.message}. Did you mean {near}?", []


def _plain_message(problem: Any, message: str) -> str:
    """Return a sentence for a value that is not a number; other messages stay as they are."""
    kind = str(problem["type"]).partition("_")[0]
    wanted = {"int": "an integer", "float": "a number"}.get(kind)
    return f"expected {wanted}, found {quoted(str(problem['input']))}." if wanted else message


def _verbs(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every verb with its name, including `data check`."""
    for name, verb in group.commands.items():
        yield from _verbs(verb, f"{before}{name} ") if hasattr(verb, "commands") else [(f"{before}{name}", verb)]


def _flags(verb: Any) -> set[str]:
    return {flag for one in verb.params for flag in (*one.opts, *one.secondary_opts)}


app = typer.Typer(
    cls=Verbs,
    help="Train, evaluate, compare and inspect neural sequence models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", cls=Verb, short_help="Train on built-in data and show the result.")(demo.demo)
app.command("train", cls=Verb, short_help="Train a model on your data.")(train.train)
app.command("auto", cls=Verb, short_help="Find the best model for your data within a few minutes.")(auto.auto)
app.command("evaluate", cls=Verb, short_help="Evaluate a model, with confidence intervals.")(evaluate.evaluate)
app.command("predict", cls=Verb, short_help="Predict labels, tags or numbers for rows of a file.")(predict.predict)
app.command("generate", cls=Verb, short_help="Generate text from prompts with a language model.")(generate.generate)
app.command("translate", cls=Verb, short_help="Translate a file or standard input.")(translate.translate)
app.command("import", cls=Verb, short_help="Import a BERT checkpoint or word vectors.")(import_.import_)
app.command("embed", cls=Verb, short_help="Compute vectors for a file of texts.")(embed.embed)
app.command("index", cls=Verb, short_help="Build a search index of documents.")(index.index)
app.command("search", cls=Verb, short_help="Search an index by meaning, by words or by both.")(search.search)
app.command("serve", cls=Verb, short_help="Serve models over HTTP.")(serve.serve)
app.command("dedupe", cls=Verb, short_help="Find near duplicates in a file and mark them in a copy.")(dedupe.dedupe)
app.command("label", cls=Verb, short_help="Label data by hand in the terminal, with suggestions.")(label.label)
app.command("inspect", cls=Verb, short_help="Look inside a model: attention, gates, attributions.")(inspect.inspect)
app.command(
    "graph",
    cls=Verb,
    short_help="Show the computation graph and gradient of an expression.",
    context_settings={"ignore_unknown_options": True},  # -x*y is an expression, not an option
)(graph.graph)
app.command("doctor", cls=Verb, short_help="Diagnose a training run and suggest what to change.")(doctor.doctor)
app.command("bench", cls=Verb, short_help="Measure the speed of a model on this machine, with advice.")(bench.bench)
app.command("compare", cls=Verb, short_help="Train several models with the same budget and compare them.")(
    compare.compare
)
app.command("tune", cls=Verb, short_help="Tune hyperparameters.")(tune.tune)
app.command("recipes", cls=Verb, short_help="List the model architectures (recipes), or show one.")(recipes.recipes)
app.add_typer(data.app, name="data")
app.add_typer(vectors.app, name="vectors")
app.add_typer(verify.app, name="verify")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqloom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Train, evaluate, compare and inspect neural sequence models."""


def main() -> None:
    """Run a command and exit with a code of `seqloom.cli.terminal`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without a character shows a question mark
    try:
        with few_kernels(), warnings.catch_warnings():  # kernels: also for the trial steps before a run
            others = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
                if issubclass(category, SeqloomWarning):  # a message like the others, without a line of our code
                    typer.echo(f"warning: {message}", err=True)
                else:
                    others(message, category, *place, **named)

            warnings.showwarning = show
            app()
    except OSError as error:
        _say(f"error: {error.strerror or error}")
        sys.exit(exit_code_of(error))
    except RejectedError as error:  # starts with file and line, like messages of compilers
        _say(str(error))
        sys.exit(2)
    except SeqloomError as error:
        _say(f"error: {error}")
        sys.exit(exit_code_of(error))


def _say(text: str) -> None:
    """Print why a command ends; with several processes, only one prints it."""
    from seqloom.training.launcher import first_to_say

    if first_to_say(text):
        typer.echo(text, err=True)
