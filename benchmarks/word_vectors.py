"""Training of word vectors against gensim on one text: words per second and agreement of the results.

python benchmarks/word_vectors.py [corpus.txt] [threads]

Both train with their default settings, one after the other in each round; words per second are medians. Other programs
on the machine disturb wall time more than CPU time, so both are shown. `nearest` is the share of the ten nearest words
of frequent words that a training has in common with the first one of gensim; gensim's own row is one with another seed,
the most that can be expected. Without a corpus, sentences are generated from classes of words, and `class` is the share
of nearest words that are of the same class. Without gensim (`pip install gensim`), its rows are left out.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.config.tokenizers import WordsConfig
from seqloom.config.vectors import VectorMethod, WordVectorsConfig
from seqloom.data.word_vectors import WordVectors
from seqloom.events import finished
from seqloom.files.disk import temporary_folder
from seqloom.vectors.corpus import Corpus, CorpusFile, read_corpus
from seqloom.vectors.lookup import VectorSpace
from seqloom.vectors.training import train_vectors

ROUNDS = 3
EPOCHS = 5
SENTENCES = 30_000  # of a generated corpus
FREQUENT = 500  # words whose neighbors are compared
METHODS: tuple[VectorMethod, ...] = ("skip-gram", "cbow")


def generated(path: Path) -> None:
    """Write sentences of a hidden Markov chain over 40 classes with 100 words each, some words far more frequent."""
    draw = np.random.default_rng(0)
    following = draw.dirichlet(np.full(40, 0.05), 40).cumsum(1)
    with path.open("w") as file:
        for _ in range(SENTENCES):
            kind, words = int(draw.integers(40)), []
            for chance, place in zip(draw.random(20), draw.random(20), strict=True):
                kind = min(39, int(np.searchsorted(following[kind], chance)))
                words.append(f"c{kind}w{int(100 * place**3)}")
            file.write(" ".join(words) + "\n")


def seqloom_trains(corpus: Corpus, method: VectorMethod, threads: int, seed: int) -> WordVectors:
    config = WordVectorsConfig(method=method, epochs=EPOCHS, threads=threads, seed=seed)
    return finished(train_vectors(corpus, config))


def gensim_trains(model: Any, sentences: list[list[str]]) -> WordVectors:
    model.train(sentences, total_examples=len(sentences), epochs=EPOCHS)
    return WordVectors(tuple(model.wv.index_to_key), model.wv.vectors)


def measured(call: Callable[[], WordVectors]) -> tuple[WordVectors, float, float]:
    """Return the vectors, and the wall and CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def agreement(one: WordVectors, other: WordVectors) -> float:
    """Return the mean share of the ten nearest words that two trainings have in common."""
    first, second = VectorSpace(one), VectorSpace(other)
    words = [word for word in one.words if word in set(other.words)][:FREQUENT]
    common = [set(first.neighbors(word).words) & set(second.neighbors(word).words) for word in words]
    return statistics.mean(len(some) / 10 for some in common)


def purity(vectors: WordVectors) -> float:
    """Return the mean share of the ten nearest words of the same class in a generated corpus."""
    space = VectorSpace(vectors)
    kinds = {word: word.partition("w")[0] for word in vectors.words}
    words = vectors.words[:FREQUENT]
    return statistics.mean(kinds[word] == kinds[near] for word in words for near in space.neighbors(word).words)


def main(arguments: Sequence[str]) -> None:
    """Print a row for each program and method."""
    threads = int(arguments[1]) if len(arguments) > 1 else 1
    with temporary_folder("vectors") as folder:
        path = Path(arguments[0]) if arguments else folder / "corpus.txt"
        if not arguments:
            generated(path)
        corpus = finished(read_corpus(CorpusFile(path), WordsConfig(word_split="space", min_count=5)))
    words = np.array(corpus.words, object)
    sentences = [words[corpus.texts.row(row)].tolist() for row in range(corpus.texts.rows)]
    try:
        from gensim.models import Word2Vec
    except ImportError:
        Word2Vec = None
        print("gensim is not installed: its rows are left out")
    total = corpus.size * EPOCHS
    print(f"{corpus.size:,} words, {len(corpus.words):,} distinct, {EPOCHS} epochs, threads: {threads}")
    print(f"{'method':10} {'program':14} {'words/s':>10} {'words/CPU s':>12} {'nearest':>8}")
    for method in METHODS:
        results: dict[str, list[tuple[WordVectors, float, float]]] = {}
        for seed in range(ROUNDS):
            if Word2Vec is not None:
                model = Word2Vec(sg=int(method == "skip-gram"), workers=threads, seed=seed, sample=1e-3, min_count=1)
                model.build_vocab(sentences)
                results.setdefault("gensim", []).append(measured(partial(gensim_trains, model, sentences)))
            trained = measured(partial(seqloom_trains, corpus, method, threads, seed))
            results.setdefault("seqloom", []).append(trained)
        reference = results.get("gensim", results["seqloom"])[0][0]
        for program, runs in results.items():
            wall, cpu = (statistics.median(run[part] for run in runs) for part in (1, 2))
            near = agreement(reference, runs[-1][0])
            classes = "" if arguments else f"  class {purity(runs[-1][0]):.2f}"
            print(f"{method:10} {program:14} {total / wall:10,.0f} {total / cpu:12,.0f} {near:8.2f}{classes}")


if __name__ == "__main__":
    main(sys.argv[1:])
