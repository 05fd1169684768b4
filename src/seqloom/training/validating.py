"""A look at the dev part: metrics over all ranks, and a few examples of what the model says.

Each rank judges its share, and only sums travel. Which weights are shipped may depend on the rows of all, and what is
shipped says more - intervals, and what was taken for what: rows are gathered when they are asked for.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.data.schema import Part
from seqloom.tasks.contract import Judged, Task
from seqloom.tasks.judging import Confusion, Evaluation, answering, evaluate
from seqloom.tasks.showing import input_shown
from seqloom.training.originals import inputs_shown
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

    def value(self, session: Session) -> float:
        """The metric that decides which weights are shipped; NaN without a dev part."""
        return self.metrics.get(session.task.metric.name, math.nan)

    def rows(self, session: Session) -> np.ndarray:
        """[N,1+S] the id and the statistics of each example of all ranks, in the order of ids, on all of them alike."""
        task, mine = session.task, self.evaluation
        table = np.empty((0, 1 + task.statistics))
        if mine is not None:
            table = np.column_stack([np.array(mine.ids, np.float64), mine.statistics])
        if not session.ranks.sharded:
            shares = session.ranks.gather(table.tobytes())
            table = np.frombuffer(b"".join(shares)).reshape(-1, 1 + task.statistics)
        table = table[np.argsort(table[:, 0], kind="stable")]
        table[:, 1:] = task.agreed(table[:, 1:], table[:, 1:])
        return table

    def gathered(self, session: Session) -> "Look":
        """The same with the evaluation of all ranks together, on all of them."""
        ranks = session.ranks
        if not self.metrics or ranks.sharded or ranks.count == 1:
            return self
        mine = self.evaluation
        rows = ranks.gather(b"" if mine is None else mine.statistics.astype(np.float64).tobytes())
        confused = ranks.gather(json.dumps(() if mine is None else mine.confusion).encode())
        table = np.frombuffer(b"".join(rows)).reshape(-1, session.task.statistics)
        table, metrics = session.task.agreed(table, table), self.metrics | session.task.measure_rows(table)
        confusion = _added(json.loads(data) for data in confused)
        judged = () if mine is None else mine.judged
        return self._replace(evaluation=Evaluation(session.task.name, metrics, len(table), table, judged, confusion))


def look(session: Session) -> Look:
    """The metrics of the model's present weights on the dev part."""
    if not len(session.prepared.parts["dev"]):
        return Look({}, (), None)
    batches = share_of(session, "dev")
    first = next(batches, None)  # a rank may have no share in a small part
    evaluation = None if first is None else evaluate(_looking(session), session.model, chain([first], batches))
    metrics = _summed(session, evaluation)
    return Look(metrics, _samples(session, evaluation), evaluation)


def _looking(session: Session) -> Task:
    """The task as dev is judged; where it is prepared for that, by all of dev, on every rank alike."""
    with answering(session.model):
        return session.task.looking(session.model, batches_of(session, "dev"))


def share_of(session: Session, part: Part) -> Iterator[Batch[Any, Any]]:
    """This rank's share of a part; all of it where the weights are sharded, because then all ranks compute together."""
    rank, count = (0, 1) if session.ranks.sharded else (session.ranks.rank, session.ranks.count)
    return batches_of(session, part, rank, count)


def batches_of(session: Session, part: Part, rank: int = 0, count: int = 1) -> Iterator[Batch[Any, Any]]:
    """The batches of a part, or one rank's share of them."""
    training = session.config.training
    loader = session.task.loader(session.prepared, part, training.feed, seed=0, workers=0, rank=rank, ranks=count)
    for step in loader.steps(until=1):
        if step.batch is not None:
            yield moved(step.batch, session.device.torch)


def _summed(session: Session, evaluation: Evaluation | None) -> dict[str, float]:
    rows = np.empty((0, session.task.statistics)) if evaluation is None else evaluation.statistics
    sums = torch.from_numpy(session.task.summed(rows))
    if not session.ranks.sharded:
        sums = session.ranks.sum(sums)
    return {name: float(value) for name, value in session.task.measure(sums.numpy()).items()}


def _added(shares: Iterable[Confusion]) -> Confusion:
    counted = Counter[tuple[str, str]]()
    for true, said, count in chain.from_iterable(shares):
        counted[true, said] += count
    return tuple((*pair, count) for pair, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _samples(session: Session, evaluation: Evaluation | None) -> tuple[Sample, ...]:
    if evaluation is None:
        return ()
    shown = evaluation.judged[:SAMPLES]
    inputs = inputs_shown(session, [int(one.id) for one in shown])
    return tuple(_sample(session, one, text) for one, text in zip(shown, inputs, strict=True))


def _sample(session: Session, judged: Judged, text: str) -> Sample:
    """What is shown of an example; where the true answer is the input itself, it is shown alike."""
    same = judged.true == input_shown(session.task.meaning, session.prepared, int(judged.id))
    return Sample(text, judged.said, text if same else judged.true, judged.right)
