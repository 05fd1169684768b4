"""The command line: one verb per file, each parses, calls the library and shows what came back."""

import io
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from seqloom.cli import (
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
    train,
    translate,
    tune,
    verify,
)
from seqloom.cli.terminal import Panels, TwoPanels, exit_code_of
from seqloom.errors import RejectedError, SeqloomError
from seqloom.training.launcher import few_kernels
from seqloom.version import __version__

STOPPED = 130  # what shells expect of a command that was stopped from the keyboard


class Verbs(TyperGroup):
    """Verbs that say one word when they are stopped from the keyboard, and know one another's options."""

    def invoke(self, ctx: Any) -> Any:
        """What the verb returns."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(STOPPED) from None
        except Exception as error:
            if hasattr(error, "possibilities"):  # an option that the verb lacks; some typers bring a click of their own
                self._tell_owners(error)
            raise

    def _tell_owners(self, error: Any) -> None:
        """Add the verbs that have an option to the error of one that lacks it: better than options spelt alike."""
        owners = [
            name for name, verb in self.commands.items() if any(error.option_name in one.opts for one in verb.params)
        ]
        if owners:
            have = "has" if len(owners) == 1 else "have"
            error.message, error.possibilities = f"{error.message}; seqloom {', '.join(owners)} {have} it", []


app = typer.Typer(
    cls=Verbs,
    help="A workbench for neural sequence models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", short_help="Train on embedded data and show what came of it.")(demo.demo)
app.command("train", cls=Panels, short_help="Train a model on your data.")(train.train)
app.command("evaluate", cls=TwoPanels, short_help="Judge a model, with intervals, slices and errors.")(
    evaluate.evaluate
)
app.command("predict", cls=TwoPanels, short_help="Answer a file or a stream of inputs.")(predict.predict)
app.command("generate", short_help="Go on with texts: sample, beam, stream.")(generate.generate)
app.command("translate", cls=TwoPanels, short_help="Translate or caption a file or a stream.")(translate.translate)
app.command("import", short_help="Take over a BERT checkpoint or word vectors.")(import_.import_)
app.command("embed", cls=TwoPanels, short_help="Make a file of vectors of a file of texts.")(embed.embed)
app.command("index", cls=TwoPanels, short_help="Make an index of documents to search in.")(index.index)
app.command("search", short_help="Search in an index, by meaning, by words or by both.")(search.search)
app.command("dedupe", cls=TwoPanels, short_help="Mark near duplicates in a copy of a file.")(dedupe.dedupe)
app.command("label", cls=TwoPanels, short_help="Label many rows with few answers.")(label.label)
app.command("inspect", cls=TwoPanels, short_help="Look inside a model: attention, gates, attributions.")(
    inspect.inspect
)
app.command(
    "graph",
    short_help="Walk through an expression, forward and back.",
    context_settings={"ignore_unknown_options": True},  # -x*y is an expression
)(graph.graph)
app.command("doctor", short_help="Say what is wrong with a run, and what to change.")(doctor.doctor)
app.command("compare", cls=Panels, short_help="Find out which of several models is better.")(compare.compare)
app.command("tune", cls=Panels, short_help="Let a search choose the settings.")(tune.tune)
app.command("recipes", short_help="List the recipes, or show one.")(recipes.recipes)
app.add_typer(data.app, name="data")
app.add_typer(verify.app, name="verify")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqloom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """A workbench for neural sequence models."""


def main() -> None:
    """Run a command; its exit code is one of those in `seqloom.cli.terminal`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our characters shows question marks
    try:
        with few_kernels():  # from here on, as the trial before a run makes some
            app()
    except OSError as error:
        _say(f"error: {error.strerror or error}")
        sys.exit(exit_code_of(error))
    except RejectedError as error:  # begins with the place, as compilers' messages do
        _say(str(error))
        sys.exit(2)
    except SeqloomError as error:
        _say(f"error: {error}")
        sys.exit(exit_code_of(error))


def _say(text: str) -> None:
    """Tell people why a command ends; of several processes that end so, one tells."""
    from seqloom.training.launcher import first_to_say

    if first_to_say(text):
        typer.echo(text, err=True)
