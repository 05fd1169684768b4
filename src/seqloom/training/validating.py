"""A look at the dev part: metrics over all ranks, and a few examples of what the model says."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import torch

from seqloom.data.schema import Part
from seqloom.tasks.judging import Evaluation, evaluate
from seqloom.tasks.showing import input_shown
from seqloom.training.pieces import moved
from seqloom.training.reports import Sample
from seqloom.training.session import Session
from seqloom.types import Batch

SAMPLES = 4


class Look(NamedTuple):
    """What a look at the dev part found."""

    metrics: dict[str, float]
    samples: tuple[Sample, ...]
    evaluation: Evaluation | None  # of this rank's share; None if it has none


def look(session: Session) -> Look:
    """The metrics of the model's present weights on the dev part."""
    if not len(session.prepared.parts["dev"]):
        return Look({}, (), None)
    batches = _batches(session, "dev")
    first = next(batches, None)  # a rank may have no share in a small part
    evaluation = None if first is None else evaluate(session.task, session.model, chain([first], batches))
    metrics = _summed(session, evaluation)
    return Look(metrics, _samples(session, evaluation), evaluation)


def _batches(session: Session, part: Part) -> Iterator[Batch[Any, Any]]:
    """This rank's share of a part; all of it where the weights are sharded, because then all ranks compute together."""
    ranks, training = session.ranks, session.config.training
    rank, count = (0, 1) if ranks.sharded else (ranks.rank, ranks.count)
    loader = session.task.loader(session.prepared, part, training.feed, seed=0, workers=0, rank=rank, ranks=count)
    for step in loader.steps(until=1):
        if step.batch is not None:
            yield moved(step.batch, session.device.torch)


def _summed(session: Session, evaluation: Evaluation | None) -> dict[str, float]:
    sums = torch.zeros(session.task.statistics, dtype=torch.float64)
    if evaluation is not None:
        sums += torch.from_numpy(evaluation.statistics.sum(axis=0))
    if not session.ranks.sharded:
        sums = session.ranks.sum(sums)
    return {name: float(value) for name, value in session.task.measure(sums.numpy()).items()}


def _samples(session: Session, evaluation: Evaluation | None) -> tuple[Sample, ...]:
    if evaluation is None:
        return ()
    shown = evaluation.judged[:SAMPLES]
    return tuple(
        Sample(input_shown(session.task.meaning, session.prepared, int(one.id)), one.said, one.true, one.right)
        for one in shown
    )
