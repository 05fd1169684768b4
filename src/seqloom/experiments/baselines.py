"""Batches from which baselines are learned and on which they are evaluated: the same for every experiment."""

from collections.abc import Iterator
from typing import Any

from seqloom.config.data import SplitName
from seqloom.config.training import AnyBatching
from seqloom.data.prepared import Prepared
from seqloom.nn.types import Batch
from seqloom.tasks.task import Task
from seqloom.training.step import elements_of

TRAIN_TOKENS = 1_000_000  # of the training set, from which baselines are learned


def batches_of(task: Task, prepared: Prepared, split: SplitName, batching: AnyBatching) -> Iterator[Batch[Any, Any]]:
    """The batches of a split, as a model is evaluated on them."""
    loader = task.loader(prepared, split, batching, seed=0, workers=0)
    return (step.batch for step in loader.steps(until=1) if step.batch is not None)


def training_batches(
    task: Task, prepared: Prepared, batching: AnyBatching, most: int = TRAIN_TOKENS
) -> list[Batch[Any, Any]]:
    """The first batches of the training set, with at most this many tokens in all, but at least one batch."""
    found, tokens = list[Batch[Any, Any]](), 0
    for batch in batches_of(task, prepared, "train", batching):
        tokens += elements_of(batch)[1]
        if found and tokens > most:
            break
        found.append(batch)
    return found
