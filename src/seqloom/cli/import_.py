"""`seqloom import`: a model from elsewhere becomes a model folder as training writes it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.terminal import Screen


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder with config.json, tokenizer.json and model.safetensors, or a file of word vectors.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="The model folder to write; it must not exist.")],
    pooling: Annotated[
        Literal["mean", "max", "first", "last", "sum"] | None,
        typer.Option(help="How the vectors of a text become one; else as the checkpoint says, or mean."),
    ] = None,
    weighting: Annotated[
        Literal["mean", "sif"] | None,
        typer.Option(help="Of word vectors: all words alike, or frequent ones less; sif where --counts is given."),
    ] = None,
    counts: Annotated[
        Path | None, typer.Option(metavar="FILE.txt", help="Texts, one a line, in which sif counts words.")
    ] = None,
) -> None:
    """Make a model folder of a local BERT checkpoint, exactly, or of a file of word vectors.

    No code of the checkpoint is run, and no pickle is opened.
    """
    from seqloom.bundle import read_bundle
    from seqloom.importing.models import import_model, said_of

    folder = import_model(source, out, pooling=pooling, weighting=weighting, counts=counts)
    screen = Screen()
    for line in said_of(read_bundle(folder)):  # read as anybody will read it
        screen.say(line)
    screen.say(f"written: {folder}")
