"""A planted task for the tests of faithfulness: of twenty words one decides the class, and attention must find it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from inspection_common import subject_with, task_on
from seqloom.config.heads import ClassHeadConfig, Pooling
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import EncoderConfig
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.types import Batch, Padded

VOCABULARY, LENGTH, WIDTH = 60, 20, 32
WORDS = [f"w{number}" for number in range(VOCABULARY)]  # the first two are the keys: w0 says no, w1 says yes


def sentences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Word numbers [count,20], one key among them, and the class that it decides."""
    draw = np.random.default_rng(seed)
    words, keys = draw.integers(2, VOCABULARY, (count, LENGTH)), draw.integers(0, 2, count)
    words[np.arange(count), draw.integers(0, LENGTH, count)] = keys
    return words, keys


def planted_subject(folder: Path, layers: tuple[Any, ...], *, pooling: Pooling = "attention", seed: int = 1) -> Subject:
    """An untrained model that pools contextual vectors of words by attention."""
    task = task_on(folder, "classify", rows=[" ".join(WORDS) + ",no", " ".join(WORDS[1:]) + ",yes"])
    tokenizer = task.input_spec.tokenizer
    assert tokenizer is not None
    config = SequenceModelConfig(
        encoder=EncoderConfig(input=TokensConfig(vocab_size=tokenizer.vocab_size), width=WIDTH, layers=layers),
        head=ClassHeadConfig(num_classes=2),
        pooling=pooling,
    )
    return subject_with(task, config, seed=seed)


def trained(subject: Subject, *, epochs: int = 4, shuffled: bool = False) -> Subject:
    """The same model after some epochs on 2,000 sentences; with labels in random order there is nothing to learn."""
    words, keys = sentences(2000, seed=0)
    if shuffled:
        keys = np.random.default_rng(5).permutation(keys)
    tokenizer = subject.task.input_spec.tokenizer
    assert tokenizer is not None
    tokens = np.array([int(tokenizer.encode_inner([word]).row(0)[0]) for word in WORDS])
    inputs, classes = torch.from_numpy(tokens[words]), torch.from_numpy(keys)
    model: Any = subject.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=order).split(50):
            optimizer.zero_grad()
            model.loss(Batch(Padded.of(inputs[rows]), classes[rows])).mean.backward()
            optimizer.step()
    optimizer.zero_grad()
    subject.model.eval()
    return subject


def readings_of(subject: Subject, count: int, seed: int = 9) -> tuple[list[Reading], list[str]]:
    """Readings of fresh sentences, and the labels that are right."""
    words, keys = sentences(count, seed)
    texts = [" ".join(WORDS[word] for word in row) for row in words]
    return [read(subject, text) for text in texts], [("no", "yes")[key] for key in keys]
