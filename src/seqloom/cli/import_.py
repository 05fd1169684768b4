"""`seqloom import`: convert a BERT checkpoint or word vectors to a model folder."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen


@takes(
    examples=(
        "seqloom import downloads/bert-base-uncased --out models/bert",
        "seqloom import glove.6B.100d.txt --out models/glove --counts corpus.txt",
    )
)
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder with config.json, tokenizer.json and model.safetensors, or a word vector file.",
        ),
    ],
    out: Annotated[Path, option("--out -o", "MODEL", "Model folder to write; it must not exist.")],
    pooling: Annotated[
        Literal["mean", "max", "first", "last", "sum"] | None,
        option(
            "--pooling",
            "NAME",
            "For BERT: pooling of token vectors into a text vector: mean, max, first, last or sum (default: from the "
            "checkpoint, else mean).",
        ),
    ] = None,
    weighting: Annotated[
        Literal["mean", "sif"] | None,
        option(
            "--weighting",
            "NAME",
            "For word vectors: how to average them: mean, or sif, which gives frequent words less weight (default: "
            "sif with --counts, else mean).",
        ),
    ] = None,
    counts: Annotated[
        Path | None,
        option(
            "--counts",
            "FILE",
            "For word vectors: corpus for the word frequencies of sif, one text per line (default: none).",
        ),
    ] = None,
) -> None:
    """Convert a local BERT checkpoint or word vector file into a model folder.

    Importing runs no code from the checkpoint and loads no pickle files.
    """
    from seqloom.bundle import read_bundle
    from seqloom.importing.models import facts_of, import_model

    folder = import_model(source, out, pooling=pooling, weighting=weighting, counts=counts)
    screen = Screen()
    for line in facts_of(read_bundle(folder)):  # verifies that the folder can be read
        screen.say(line)
    screen.say(f"written: {folder}")
