"""Row 18 of the table of concepts: one vector between encoder and decoder is too narrow for long sources.

The task is to say the source again, letter by letter. Both models are the same but for the attention, learn from the
same batches, and are judged by the length of the source.
"""

import itertools
import random
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from seqloom.config.base import with_setting
from seqloom.config.training import ByLengthConfig
from seqloom.data.check import load_data
from seqloom.data.prepared import Prepared
from seqloom.tasks.evaluation import evaluate, sliced
from seqloom.tasks.task import HeadSettings, ModelSpec, Task, task_of

LONGEST, STEPS, RATE, WIDTH = 8, 500, 0.02, 32


def write(path: Path, rows: int, seed: int) -> Path:
    """Rows of one to LONGEST letters and the same letters again, short ones more often."""
    draws = random.Random(seed)
    texts = [" ".join(draws.choices("abcd", k=1 + int(LONGEST * draws.random() ** 2))) for _ in range(rows)]
    path.write_text("source\ttarget\n" + "".join(f"{text}\t{text}\n" for text in texts))
    return path


def built(task: Task, recipe: str) -> nn.Module:
    """A model of one narrow layer on each side, without dropout."""
    config = with_setting(task.model(recipe, "nano", HeadSettings()), "dropout", 0.0)
    encoder = replace(config.encoder, width=WIDTH, repeat=1)
    decoder = replace(config.decoder, width=WIDTH, layers=config.decoder.layers[1:])
    return replace(config, encoder=encoder, decoder=decoder).build()


def trained(task: Task, prepared: Prepared, recipe: str) -> nn.Module:
    """The model after STEPS steps; its rate rises for thirty of them and then falls to zero."""
    model = built(task, recipe)
    optimizer = torch.optim.Adam(model.parameters())
    steps = task.loader(prepared, "train", ByLengthConfig(batch_tokens=400), seed=0, workers=0).steps()
    for number, step in enumerate(itertools.islice(steps, STEPS)):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (number + 1) / 30) * (1 - number / STEPS)
        optimizer.zero_grad()
        task.loss(model, step.batch, None)[0].mean.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def scores_by_length(task: Task, prepared: Prepared, model: nn.Module) -> list[float]:
    """The share of exact answers to sources of each length, the shortest first."""
    steps = task.loader(prepared, "dev", ByLengthConfig(batch_tokens=2_000), seed=0, workers=0).steps(until=1)
    found = evaluate(task, model, [step.batch for step in steps])
    lengths = [int(prepared.columns["input"].lengths[int(row)]) for row in found.ids]
    return [part.evaluation.metrics["exact_match"] for part in sliced(task, found, "length", lengths)]


@pytest.mark.slow
def test_row_18_without_attention_the_score_falls_with_the_length_of_the_source(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    train, dev = write(tmp_path / "train.tsv", 4_000, 0), write(tmp_path / "dev.tsv", 400, 1)
    prepared = load_data(train, dev=dev, task="translate", tokenizer="words")
    task = task_of(ModelSpec.of(prepared))
    narrow, looking = (
        scores_by_length(task, prepared, trained(task, prepared, recipe)) for recipe in ("seq2seq", "seq2seq-dot")
    )
    assert len(narrow) == len(looking) == LONGEST
    assert narrow[0] > 0.9 and looking[0] > 0.9  # both have learned the task
    assert max(narrow[-3:]) < 0.3  # one vector does not hold so many letters
    assert min(looking) > 0.7  # who looks back need not remember
