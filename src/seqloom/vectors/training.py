"""Training of word vectors: chunks of the corpus one after another, or by several threads that share the tables.

The random numbers of a chunk depend on (seed, epoch, chunk) only. With one thread the chunks have an order, and a seed
always gives the same file. Several threads change the tables without locks (Recht et al. 2011), so results differ.
Nothing is written before the end.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from seqloom.config.data import Format, ReadingConfig, Unit
from seqloom.config.options import said, stated, strict
from seqloom.config.tokenizers import UnicodeForm, WordsConfig, WordSplit
from seqloom.config.vectors import VectorMethod, WordVectorsConfig
from seqloom.data.readers.files import are_same
from seqloom.data.word_vectors import WordVectors, require_vector_file, write_vectors
from seqloom.errors import ConfigError
from seqloom.events import Progress, Show, Work, finished
from seqloom.report.document import Document, Paragraph, Shown, TableBlock
from seqloom.report.numbers import counted, duration
from seqloom.vectors.corpus import Corpus, CorpusFile, read_corpus
from seqloom.vectors.objectives import OBJECTIVES, TensorBlocks, VectorTables
from seqloom.vectors.tables import InputTable, SubwordTable, WordTable, drawn_rows
from seqloom.vectors.windows import BLOCK, WindowBlocks, Windows

CHUNK = 2**15  # words of the corpus between two progress events
MAX_BATCH = 1_024  # centers of a step
MAX_STEP = 1.2  # lr x pairs of the most frequent word in one batch: beyond it, summed steps overshoot and diverge
MIN_COUNT, VOCAB_SIZE = 5, 2**24


class TrainedVectors(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """A written file of word vectors, and how it was made."""

    path: str
    words: int
    dim: int
    dropped: int  # distinct words that were too rare
    corpus_words: int
    epochs: int
    method: str
    subwords: bool
    seconds: float  # of training, without reading and writing
    words_per_second: float

    def document(self) -> Document:
        rows = (
            ("words", f"{self.words:,} ({self.dropped:,} rarer ones left out)"),
            ("dimensions", self.dim),
            ("corpus", f"{counted(self.corpus_words, 'word')}, {counted(self.epochs, 'epoch')}"),
            ("method", f"{self.method} with subwords" if self.subwords else self.method),
            ("time", f"{duration(self.seconds)}, {self.words_per_second:,.0f} words/s"),
        )
        note = "The n-grams are added into the vectors; the file has none for words outside the corpus."
        return Document(
            f"Word vectors: {self.path}",
            (TableBlock(("", ""), rows), Paragraph(note if self.subwords else "")),
        )


class VectorTraining:
    """The tables of a corpus, and a step for each of its chunks."""

    def __init__(self, corpus: Corpus, config: WordVectorsConfig) -> None:
        self.corpus, self.config = corpus, config
        self.objective = OBJECTIVES[config.method]
        self.lr = self.objective.lr if config.lr is None else config.lr
        self.windows = Windows(corpus, config)
        vocabulary, dim, seed = len(corpus.words), config.dim, config.seed
        inputs: InputTable
        if config.subwords:
            inputs = SubwordTable(corpus.words, dim, seed)
        else:
            inputs = WordTable(drawn_rows(vocabulary, dim, seed))
        self.tables = VectorTables(inputs, torch.zeros(vocabulary, dim))

    @property
    def batch_blocks(self) -> int:
        """The number of blocks in a step: as many as the most frequent word allows."""
        kept = self.corpus.counts * self.windows.kept
        share = max(float((kept / kept.sum()).max()), float(self.windows.noise.max()) * self.config.negative / 5)
        pairs = 1 + self.objective.pairs * self.config.window
        centers = min(MAX_BATCH, MAX_STEP / max(self.lr * share * pairs, 1e-9))
        return max(1, int(centers) // BLOCK)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield (epoch, first word) of each chunk."""
        for epoch in range(self.config.epochs):
            yield from ((epoch, start) for start in range(0, self.corpus.size, CHUNK))

    def run(self, epoch: int, start: int) -> int:
        """Train on one chunk and return its number of words."""
        stop = min(start + CHUNK, self.corpus.size)
        drawn = self.windows.blocks(start, stop, np.random.default_rng((self.config.seed, epoch, start)))
        progress = (epoch + start / self.corpus.size) / self.config.epochs
        for batch in _batches(drawn, self.batch_blocks):
            self.objective.step(self.tables, batch, negative=self.config.negative, lr=self.lr * (1.0 - progress))
        if not torch.isfinite(self.tables.inputs.take(torch.from_numpy(drawn.centers[:1].flatten()))).all():
            raise ConfigError(f"--lr {self.lr:g}: the vectors are not finite any more", fix="use a lower --lr")
        return stop - start


def _batches(drawn: WindowBlocks, size: int) -> Iterator[TensorBlocks]:
    tensors = [torch.from_numpy(part) for part in drawn]
    for start in range(0, len(drawn.centers), size):
        yield TensorBlocks(*(part[start : start + size] for part in tensors))


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Inside the `with`, each operation runs in one thread: they are small, and so repeatable."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _results(run: Callable[[int, int], int], chunks: Iterable[tuple[int, int]], threads: int) -> Iterator[int]:
    """Yield the results of the chunks, computed in this thread or in several."""
    if threads == 1:
        yield from (run(*chunk) for chunk in chunks)
        return
    waiting: set[Future[int]] = set()
    with ThreadPoolExecutor(threads) as pool:
        for chunk in chunks:
            waiting.add(pool.submit(run, *chunk))
            if len(waiting) > threads:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        yield from (one.result() for one in waiting)


def train_vectors(corpus: Corpus, config: WordVectorsConfig) -> Work[WordVectors]:
    """Train the vectors of a corpus; yields the progress and returns words and vectors."""
    training = VectorTraining(corpus, config)
    done, total = 0, corpus.size * config.epochs
    with _one_torch_thread():
        for words in _results(training.run, training.chunks(), config.threads):
            done += words
            yield Progress("words", done, total)
        return WordVectors(corpus.words, training.tables.inputs.vectors().numpy())


def training(file: CorpusFile, out: Path, words: WordsConfig, config: WordVectorsConfig) -> Work[TrainedVectors]:
    """Read a corpus, train its vectors and write them; yields the progress."""
    require_vector_file(out)
    if are_same(file.path, out):
        raise ConfigError(f"--out {out} would overwrite the corpus", fix="give another name")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} already exists", fix="choose another name, or delete it")
    corpus = yield from read_corpus(file, words)
    began = time.perf_counter()
    found = yield from train_vectors(corpus, config)
    seconds = time.perf_counter() - began
    write_vectors(out, found)
    return TrainedVectors(
        path=os.fspath(out),
        words=len(found.words),
        dim=config.dim,
        dropped=corpus.dropped,
        corpus_words=corpus.size,
        epochs=config.epochs,
        method=config.method,
        subwords=config.subwords,
        seconds=seconds,
        words_per_second=corpus.size * config.epochs / max(seconds, 1e-9),
    )


def training_of(data: str | Path, out: str | Path, given: dict[str, Any]) -> Work[TrainedVectors]:
    """The training that settings by name describe."""
    (column,) = given.get("input") or (None,)
    file = CorpusFile(Path(data), column, ReadingConfig(**said(ReadingConfig, given)))
    words = WordsConfig(**{"min_count": MIN_COUNT, "vocab_size": VOCAB_SIZE, **said(WordsConfig, given)})
    return training(file, Path(out), words, WordVectorsConfig(**said(WordVectorsConfig, given)))


@strict
def train(
    data: str | Path,
    *,
    out: str | Path,
    method: VectorMethod | None = None,
    dim: int | None = None,
    window: int | None = None,
    negative: int | None = None,
    sample: float | None = None,
    subwords: bool | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    word_split: WordSplit | None = None,
    normalize: UnicodeForm | None = None,
    lowercase: bool | None = None,
    input: str | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    template: str | None = None,
    unit: Unit | None = None,
    show: Show | None = None,
) -> TrainedVectors:
    """Train word vectors on a file of texts and write them to a .txt, .vec or .bin file.

    Args:
        data: the corpus: a text file with a text per line, or a table with a column of texts.
        out: the file to write: .txt (GloVe), .vec (word2vec text, as fastText) or .bin (word2vec binary).
        show: is called with the progress.
        others: as the options of `seqloom vectors train`.

    The same seed gives the same file if there is one thread.
    """
    given = stated(
        {
            "method": method,
            "dim": dim,
            "window": window,
            "negative": negative,
            "sample": sample,
            "subwords": subwords,
            "epochs": epochs,
            "lr": lr,
            "seed": seed,
            "threads": threads,
            "vocab_size": vocab_size,
            "min_count": min_count,
            "word_split": word_split,
            "normalize": normalize,
            "lowercase": lowercase,
            "input": None if input is None else (input,),
            "format": format,
            "encoding": encoding,
            "delimiter": delimiter,
            "header": header,
            "template": template,
            "unit": unit,
        }
    )
    return finished(training_of(data, out, given), show)
