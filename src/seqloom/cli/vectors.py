"""`seqloom vectors`: train word vectors on your text, look up words, and evaluate vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.options import TEXT_FILE, Given, Verb, option, reworded, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.options import settings
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.vectors import WordVectorsConfig
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.report.document import Shown

VectorsFile = Annotated[
    Path, typer.Argument(metavar="VECTORS", help="A word vector file: .txt, .vec or .bin; text also with .gz.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        metavar="COUNT",
        help="Use only the first words of the file, the most frequent (default: all).",
    ),
]
TopK = Annotated[
    int,
    typer.Option(
        "--top-k", "-k", min=1, metavar="COUNT", help="Number of words to show (default: 10).", show_default=False
    ),
]
Json = Annotated[bool, option("--json", None, "Print the result as JSON (default: text).")]


@takes(
    settings(WordVectorsConfig),
    reworded(
        settings(WordsConfig),
        vocab_size="Maximum number of words, the most frequent ones (default: no limit).",
        min_count="Leave out words that occur less often than this (default: 5).",
    ),
    TEXT_FILE,
    common=("out", "method", "dim", "window", "epochs", "min_count", "subwords", "lowercase", "threads", "seed"),
    examples=(
        "seqloom vectors train corpus.txt --out vectors.txt",
        "seqloom vectors train reviews.csv --input text --dim 50 --subwords --out vectors.vec",
    ),
)
def train(
    data: Annotated[
        Path, typer.Argument(metavar="FILE", help="The corpus: a text per line, or a table with a column of texts.")
    ],
    out: Annotated[
        Path,
        option(
            "--out -o", "FILE", "Write the vectors to this file: .txt (GloVe), .vec (word2vec text) or .bin (binary)."
        ),
    ],
    json: Json = False,
    *,
    given: Given,
) -> None:
    """Train word vectors on a corpus (word2vec); the file is for `seqloom train --word-vectors`.

    Nothing is written before the end, so that an interrupted command leaves no file.
    """
    if len(given.get("input") or ()) > 1:
        raise ConfigError("--input is given more than once", fix="give one column with texts")
    from seqloom.vectors.training import training_of

    _show(followed_work(training_of(data, out, given)), json=json)


@takes(
    examples=("seqloom vectors neighbors vectors.txt king", "seqloom vectors neighbors glove.6B.100d.txt king -k 20"),
)
def neighbors(
    vectors: VectorsFile,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word of the file.")],
    top_k: TopK = 10,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Show the words with the most similar vectors, by cosine."""
    from seqloom.vectors.lookup import neighbors as nearest

    _show(nearest(vectors, word, top_k=top_k, limit=limit), json=json)


@takes(
    examples=(
        "seqloom vectors analogy vectors.txt man king woman",
        "seqloom vectors analogy glove.6B.100d.txt france paris italy --json",
    ),
)
def analogy(
    vectors: VectorsFile,
    a: Annotated[str, typer.Argument(metavar="A", help="A is to B ...")],
    b: Annotated[str, typer.Argument(metavar="B", help="... its counterpart ...")],
    c: Annotated[str, typer.Argument(metavar="C", help="... as C is to the answer.")],
    top_k: TopK = 10,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Complete "A is to B as C is to ...": the words nearest to B - A + C, without these three."""
    from seqloom.vectors.lookup import analogy as answers

    _show(answers(vectors, a, b, c, top_k=top_k, limit=limit), json=json)


@takes(
    examples=(
        "seqloom vectors evaluate vectors.txt questions-words.txt",
        "seqloom vectors evaluate vectors.txt wordsim353.csv --json",
    ),
)
def evaluate(
    vectors: VectorsFile,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='Analogies (lines of four words, ": section" lines) or similarities (two words and a number).',
        ),
    ],
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Score vectors on a file of analogies (accuracy) or of similarities (Spearman)."""
    from seqloom.vectors.evaluation import evaluate as score

    _show(score(vectors, file, limit=limit), json=json)


def _show(result: "Shown", *, json: bool) -> None:
    screen = Screen()
    screen.say_json(result.to_json()) if json else screen.show(result)


app = typer.Typer(help="Train, look up and evaluate word vectors.", no_args_is_help=True, rich_markup_mode=None)
app.command("train", cls=Verb, short_help="Train word vectors on your text.")(train)
app.command("neighbors", cls=Verb, short_help="Show the words with the most similar vectors.")(neighbors)
app.command("analogy", cls=Verb, short_help="Complete an analogy: A is to B as C is to ...")(analogy)
app.command("evaluate", cls=Verb, short_help="Score vectors on analogies or similarities.")(evaluate)
