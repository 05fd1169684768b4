"""`seqloom recipes`: the families, what each is for and how large it is; with a name, its configuration."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.table import Table

from seqloom import recipes as library
from seqloom.cli.terminal import Screen
from seqloom.config.inputs import TokensConfig
from seqloom.errors import ConfigError, did_you_mean

VOCABULARY = 10_000  # of the sizes shown; a vocabulary is often most of a small model


def make(name: str, shape: str, size: library.Size) -> Any:
    """The configuration of a recipe for text of 10,000 symbols and 2 classes, or for 28 x 28 pictures and 10."""
    symbols = TokensConfig(vocab_size=VOCABULARY)
    made: dict[str, Callable[[], Any]] = {
        "classifier": lambda: library.classifier(name, inputs=symbols, num_classes=2, size=size),
        "tagger": lambda: library.tagger(name, inputs=symbols, num_tags=9, size=size),
        "language-model": lambda: library.language_model(name, vocab_size=VOCABULARY, size=size),
        "translator": lambda: library.translator(name, source=symbols, target_vocab_size=VOCABULARY, size=size),
        "masked-model": lambda: library.masked_model(name, inputs=symbols, size=size),
        "embedder": lambda: library.embedder(name, inputs=symbols, size=size),
        "picture-classifier": lambda: library.picture_classifier(name, height=28, width=28, num_classes=10, size=size),
    }
    if shape not in made:
        raise ConfigError(f"there is no shape '{shape}'", fix=did_you_mean(shape, made))
    return made[shape]()


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this recipe's configuration as TOML.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="NAME", help="The shape of model, where a recipe makes several.")
    ] = None,
    size: Annotated[library.Size | None, typer.Option(help="How large; without it all are listed.")] = None,
) -> None:
    """List the families, or print one as TOML."""
    if name is not None:
        if name not in library.RECIPES:
            raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(name, library.RECIPES))
        config = make(name, shape or library.RECIPES[name].shapes[0], size or "small")
        Screen().print(config.to_toml(), markup=False, soft_wrap=True, end="")
        return
    shown = [recipe for recipe in library.RECIPES.values() if shape is None or shape in recipe.shapes]
    if not shown:
        make("", shape or "", "small")  # refuses the shape, naming those there are
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    sizes = library.SIZES[1:] if size is None else (size,)
    for heading in sizes:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is for")
    for recipe in shown:
        counts = [_brief(make(recipe.name, shape or recipe.shapes[0], each).parameters()) for each in sizes]
        table.add_row(recipe.name, *counts, f"{recipe.purpose}\n[dim]makes: {', '.join(recipe.shapes)}[/dim]")
    console, counted = Screen(), f"of the {shape}" if shape else "of the first that each makes"
    console.print(table)
    console.print(
        f"\nThe numbers are weights, {counted}, for {VOCABULARY:,} symbols (pictures: 28 x 28).\n"
        "`seqloom recipes NAME --shape SHAPE --size SIZE` prints a configuration to start from.",
    )


def _brief(count: int) -> str:
    """A count of weights in three digits: 1.25M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g}{name}"
    return str(count)
