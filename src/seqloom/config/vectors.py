"""Settings of `seqloom vectors train`; the words themselves are found as by a `words` tokenizer."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import Seed
from seqloom.config.options import DURATION, MACHINE, MODEL, OPTIMIZER, Flag
from seqloom.config.training import LearningRate

VectorMethod = Literal["skip-gram", "cbow"]
Dim = Annotated[int, Meta(ge=2, le=4_096, examples=[8])]
Window = Annotated[int, Meta(ge=1, le=100, examples=[2])]
Negative = Annotated[int, Meta(ge=1, le=100, examples=[5])]
Sample = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.001])]
Passes = Annotated[int, Meta(ge=1, le=100_000, examples=[1])]
Threads = Annotated[int, Meta(ge=1, le=256, examples=[1])]


class WordVectorsConfig(Config, tag="word-vectors", kw_only=True):
    """How word vectors are trained (Mikolov et al. 2013)."""

    method: Annotated[
        VectorMethod,
        Flag(
            "What is predicted: {names}; skip-gram predicts the words around a word, cbow a word from the words around "
            "it (default: skip-gram).",
            "NAME",
            MODEL,
        ),
    ] = "skip-gram"
    dim: Annotated[Dim, Flag("Size of the vectors (default: 100).", "COUNT", MODEL)] = 100
    window: Annotated[
        Window,
        Flag(
            "Maximum distance of two words that count as neighbors, drawn from 1 to this (default: 5).", "COUNT", MODEL
        ),
    ] = 5
    negative: Annotated[Negative, Flag("Number of noise words for each pair (default: 5).", "COUNT", MODEL)] = 5
    sample: Annotated[
        Sample,
        Flag(
            "Leave out occurrences of words more frequent than this share of the corpus, the more the more frequent; 0 "
            "keeps all (default: 0.001).",
            "SHARE",
            MODEL,
        ),
    ] = 1e-3
    subwords: Annotated[
        bool,
        Flag(
            "Build the vector of a word from its character n-grams too, as fastText does (default: off).", None, MODEL
        ),
    ] = False
    epochs: Annotated[Passes, Flag("Number of passes over the corpus (default: 5).", "COUNT", DURATION)] = 5
    lr: Annotated[
        LearningRate | None,
        Flag(
            "Learning rate at the start; it falls linearly to 0 (default: 0.025 for skip-gram, 0.075 for cbow).",
            "NUMBER",
            OPTIMIZER,
        ),
    ] = None
    seed: Annotated[
        Seed, Flag("Random seed; the same seed gives the same file with one thread (default: 0).", "NUMBER", OPTIMIZER)
    ] = 0
    threads: Annotated[
        Threads,
        Flag("Number of threads; results of more than one are not repeatable (default: 1).", "COUNT", MACHINE),
    ] = 1
