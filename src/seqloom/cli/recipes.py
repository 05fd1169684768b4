"""`seqloom recipes`: list the recipes with purpose and size, or print the configuration of one."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from seqloom import recipes as library
from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.errors import ConfigError, did_you_mean

VOCABULARY = 10_000  # of the counted models


def make(name: str, shape: str, size: library.Size) -> Any:
    """The configuration of a recipe for text of 10,000 tokens and 2 classes, or for 28 x 28 pictures and 10."""
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
    if shape not in made:
        raise ConfigError(f"there is no shape '{shape}'", fix=did_you_mean(shape, made))
    return made[shape]()


@takes(examples=("seqloom recipes", "seqloom recipes lstm --size base"))
def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Print the configuration of this recipe as TOML (default: list all recipes)."
        ),
    ] = None,
    shape: Annotated[
        str | None, option("--shape", "NAME", "Kind of model, where a recipe makes several (default: all).")
    ] = None,
    size: Annotated[
        library.Size | None, option("--size", "NAME", "Model size: tiny, small, base or big (default: all).")
    ] = None,
) -> None:
    """List the recipes, or print one as TOML."""
    if name is not None:
        if name not in library.RECIPES:
            raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(name, library.RECIPES))
        config = make(name, shape or library.RECIPES[name].shapes[0], size or "small")
        Screen().print(config.to_toml(), markup=False, soft_wrap=True, end="")
        return
    shown = [recipe for recipe in library.RECIPES.values() if shape is None or shape in recipe.shapes]
    if not shown:
        make("", shape or "", "small")  # raises the error that lists the shapes
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    sizes = library.SIZES[1:] if size is None else (size,)
    for heading in sizes:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is for")
    for recipe in shown:
        counts = [_brief(make(recipe.name, shape or recipe.shapes[0], each).parameters()) for each in sizes]
        table.add_row(recipe.name, *counts, f"{recipe.purpose}\n[dim]makes: {', '.join(recipe.shapes)}[/dim]")
    console, counted = Screen(), f"of the {shape}" if shape else "of the first kind of model that each recipe makes"
    console.print(table)
    console.print(
        f"\nThe numbers are weights {counted}, for {VOCABULARY:,} tokens (pictures: 28 x 28).\n"
        "`seqloom recipes NAME --shape SHAPE --size SIZE` prints a configuration to start from.",
    )


def _brief(count: int) -> str:
    """A number of weights in three digits: 1.25M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g}{name}"
    return str(count)
