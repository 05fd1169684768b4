"""`seqloom recipes`: list the recipes with purpose and size, or print the configuration of one."""

from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer
from rich.table import Table

from seqloom import recipes as library
from seqloom.cli.options import Given, option, takes
from seqloom.cli.terminal import Screen
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.options import said, settings
from seqloom.errors import ConfigError, did_you_mean
from seqloom.training.request import RunRequest

VOCABULARY = 10_000  # of the models whose sizes are listed


def make(name: str, kind: str, size: library.AnySize) -> Any:
    """Return the configuration of a recipe for text with 10,000 tokens and 2 classes, or 28 x 28 pictures and 10."""
    tokens = TokensConfig(vocab_size=VOCABULARY)
    made: dict[str, Callable[[], Any]] = {
        "classifier": lambda: library.classifier(name, inputs=tokens, num_classes=2, size=size),
        "tagger": lambda: library.tagger(name, inputs=tokens, num_tags=9, size=size),
        "language-model": lambda: library.language_model(name, vocab_size=VOCABULARY, size=size),
        "translator": lambda: library.translator(name, source=tokens, target_vocab_size=VOCABULARY, size=size),
        "masked-model": lambda: library.masked_model(name, inputs=tokens, size=size),
        "embedder": lambda: library.embedder(name, inputs=tokens, size=size),
        "graph-classifier": lambda: library.graph_model(
            name, inputs=tokens, head=ClassHeadConfig(num_classes=2), size=size
        ),
        "graph-tagger": lambda: library.graph_tagger(name, inputs=tokens, num_tags=9, size=size),
        "picture-classifier": lambda: library.picture_classifier(name, height=28, width=28, num_classes=10, size=size),
    }
    if kind not in made:
        raise ConfigError(f"there is no kind of model '{kind}'", fix=did_you_mean(kind, made))
    return made[kind]()


@takes(
    settings(RunRequest, "width", "layers", "heads"),
    common=("kind", "size", "width"),
    examples=("seqloom recipes", "seqloom recipes lstm --size base", "seqloom recipes lstm --width 300"),
)
def recipes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Recipe to print as TOML (default: list all recipes)."),
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            "NAME",
            f"Kind of model: {', '.join(get_args(library.ModelKind))} (default: all, or with NAME the first kind "
            "that the recipe supports).",
        ),
    ] = None,
    size: Annotated[
        library.Size | None, option("--size", "NAME", "Model size: nano, tiny, small, base or big (default: all).")
    ] = None,
    *,
    given: Given,
) -> None:
    """List the model architectures (recipes), or print one as TOML."""
    if name is not None:
        if name not in library.RECIPES:
            raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(name, library.RECIPES))
        sized = library.Dimensions(size or "small", **said(RunRequest, given))
        config = make(name, kind or library.RECIPES[name].kinds[0], sized)
        Screen().print(config.to_toml(), markup=False, soft_wrap=True, end="")
        return
    if given:
        flags = ", ".join(f"--{dimension}" for dimension in given)
        raise ConfigError(f"{flags} without a recipe", fix="name the recipe that you want to print")
    shown = [recipe for recipe in library.RECIPES.values() if kind is None or kind in recipe.kinds]
    if not shown:
        make("", kind or "", "small")  # raises the error that lists the kinds
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    sizes = library.SIZES[1:] if size is None else (size,)
    for heading in sizes:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("description")
    for recipe in shown:
        counts = [_brief(make(recipe.name, kind or recipe.kinds[0], each).parameters()) for each in sizes]
        table.add_row(recipe.name, *counts, f"{recipe.purpose}\n[dim]kinds: {', '.join(recipe.kinds)}[/dim]")
    console, counted = Screen(), f"of the {kind}" if kind else "of the first kind of model in each row"
    console.print(table)
    console.print(
        f"\nThe numbers are parameters {counted}, with a vocabulary of {VOCABULARY:,} tokens or pictures of 28 x 28 "
        "pixels.\n`seqloom recipes NAME --kind KIND --size SIZE` prints a configuration that you can edit.",
    )


def _brief(count: int) -> str:
    """Format a number of weights with three digits: 1.25M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g}{name}"
    return str(count)
