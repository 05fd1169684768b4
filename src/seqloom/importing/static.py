"""Sentence vectors without training: the mean of word vectors, weighted or not.

    mean   v = (1/n) sum_w x_w
    sif    v = (I - u u^T) (1/n) sum_w a / (a + p(w)) x_w          Arora, Liang and Ma 2017, with a = 0.001

SIF gives frequent words low weights and removes the common direction u of all texts. p(w) and u are computed from
texts. It is a baseline that trained encoders have to beat.

The weights are multiplied into the word vectors, and I - u u^T is the linear layer of the head. So the result is an
ordinary model and can be fine-tuned. Unknown words have the vector zero.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqloom.bundle import Bundle
from seqloom.config.data import ReadingConfig
from seqloom.config.heads import VectorHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import EmbedderConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.text import read as read_lines
from seqloom.data.schema import Schema
from seqloom.data.word_vectors import first_words, known_words, open_vectors, read_vectors, wanted_words, with_words
from seqloom.errors import DataError
from seqloom.tasks.task import ModelSpec
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import blocks
from seqloom.text.special_tokens import COUNT
from seqloom.text.tokenizer import Tokenizer

Weighting = Literal["mean", "sif"]
SMOOTHING = 1e-3  # a
MOST_WORDS = 2**24 - COUNT


def static_bundle(path: Path, counts: Path | None) -> Bundle:
    """The bundle of a file of word vectors; SIF-weighted if a file of texts is given as `counts`."""
    with open_vectors(path, None, None) as file:
        for row in islice(file.rows, 1):  # a line without numbers: probably a text file
            try:
                file.read(row.numbers)
            except ValueError:
                fix = "give a file with a word and its numbers on each line"
                raise DataError(f"{path} has no word vectors: line {row.line} has no numbers", fix=fix) from None
    tokenizer = with_words(WordsConfig().fit([]), first_words(path, MOST_WORDS))
    if tokenizer.vocab_size == COUNT:
        fix = "give vectors of words and punctuation, not of phrases"
        raise DataError(f"{path} has no vector of a single word", fix=fix)
    table = _table(path, tokenizer)
    weights: dict[str, Tensor] = {}
    if counts is not None:
        table *= _weights_of(tokenizer, counts)[:, None]
        common = _common_direction(tokenizer, table, counts)
        left = np.eye(table.shape[1]) - np.outer(common, common)
        weights = {"head.linear.weight": _tensor(left), "head.linear.bias": torch.zeros(len(left))}
    weights["encoder.input.table"] = _tensor(table)
    size, width = table.shape
    config = EmbedderConfig(
        encoder=EncoderConfig(input=TokensConfig(vocab_size=size), width=width),
        head=VectorHeadConfig(size=None if counts is None else width),
    )
    notes = {"imported": {"from": "vectors", "weighting": "mean" if counts is None else "sif"}}
    return Bundle(config, ModelSpec(Schema("text", "related"), tokenizer, None), weights, notes)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def _table(path: Path, tokenizer: Tokenizer) -> np.ndarray:
    """[V,D] float32, the vector of every word; those of special tokens are zero."""
    numbers, vectors = known_words(tokenizer), read_vectors(path, wanted_words(tokenizer))
    rows = np.zeros((tokenizer.vocab_size, vectors.matrix.shape[1]), np.float32)
    found = [(numbers[word], row) for row, word in enumerate(vectors.words) if word in numbers]
    tokens, places = np.array(found, np.int64).reshape(-1, 2).T
    rows[tokens] = vectors.matrix[places]
    return rows


def _encoded(tokenizer: Tokenizer, texts: Path) -> Iterator[Ragged]:
    """The tokens of the lines of a file, in blocks; DataError for bad lines."""
    ledger = Ledger()
    table = read_lines((texts,), ReadingConfig(), ledger)
    for block in blocks(record.values[0] for record in table.records):
        yield tokenizer.encode(block)
    ledger.close()


def _weights_of(tokenizer: Tokenizer, texts: Path) -> np.ndarray:
    """[V] a / (a + p) of each word."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for rows in _encoded(tokenizer, texts):
        counts += np.bincount(rows.values, minlength=len(counts))
    shares = counts / max(1, counts.sum())
    weights: np.ndarray = (SMOOTHING / (SMOOTHING + shares)).astype(np.float32)
    return weights


def _common_direction(tokenizer: Tokenizer, table: np.ndarray, texts: Path) -> np.ndarray:
    """[D] the first right singular vector of the vectors of all texts: their common direction."""
    moment = np.zeros((table.shape[1], table.shape[1]))
    for rows in _encoded(tokenizer, texts):
        some = rows.lengths > 0
        sums = np.add.reduceat(table[rows.values].astype(np.float64), rows.starts[:-1][some], axis=0)
        means = sums / rows.lengths[some][:, None]
        moment += means.T @ means
    if not moment.any():
        raise DataError(f"no word of {texts} has a vector", fix="give texts in the language of the vectors")
    return np.asarray(np.linalg.eigh(moment).eigenvectors[:, -1])
