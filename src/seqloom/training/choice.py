"""Which weights a run ships: the latest that are not worse than the best by more than the noise of the dev part.

    step        100    200    300    400
    accuracy   0.80   0.83   0.82   0.79        noise 0.015: step 200 is the best, and step 300 as good: it is shipped

The best of many looks is in part the luckiest one, and behind it the learning rate has fallen: later weights jump about
less, and on new data they are mostly better. So the best is shipped only if it is better than what came later by more
than one standard error of their difference (Breiman et al. 1984 choose the simplest tree so). The difference is paired,
for both have seen the same examples.

- All are compared with the best of the whole run, so that no run drifts down step by step.
- Only where the rate is lower than at the best. With a constant rate later is not better by itself; nor is it in a
  warm-up, or while a plateau schedule waits.
- Of fewer than `LEAST` examples the noise is not known: the best is shipped.
- The metric decides alone, also where the loss has grown: most classifiers grow too sure while they still get better,
  and what is shipped is read with a temperature. Whoever wants the least loss decides by it (`--metric loss`). Where
  not one example tells two looks apart, as an exact match that is always 0, the loss decides in the same way.
"""

import numpy as np
import torch
from torch import Tensor

from seqloom.metrics.jackknife import PairedDifference, paired_differences
from seqloom.tasks.contract import Task
from seqloom.training.bettering import LOSS, is_better, validation
from seqloom.training.checkpoints import Checkpoint
from seqloom.training.session import Session
from seqloom.training.standing import Standing
from seqloom.training.validating import Look

BEST = "best"  # the group of tensors in a checkpoint
LEAST = 10  # examples
ROUNDING = 1 + 1e-9  # one example of difference is exactly one standard error: no last digit may decide


class CheckpointChoice:
    """Chooses the weights that are shipped; keeps the statistics of each example at the best validation."""

    def __init__(self, session: Session, resumed: Checkpoint | None) -> None:
        kept = {} if resumed is None else resumed.tensors.get(BEST, {})
        self._session, self._rows = session, kept["rows"].numpy() if kept else None

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint keeps of it."""
        return {} if self._rows is None else {BEST: {"rows": torch.from_numpy(self._rows)}}

    def take(self, found: Look, standing: Standing, is_best: bool, rate: float) -> bool:
        """Whether the weights of this look are shipped: where the run stands says so from now on."""
        best = standing.best
        if best is None or not (is_best or rate < best.rate):
            return False
        rows = found.rows(self._session)
        known = len(rows) >= LEAST and bool(np.isfinite(rows).all())
        if is_best:
            self._rows = rows if known else None
        elif not (known and self._is_as_good(rows) and self._is_new(found, standing)):
            return False
        standing.chosen = validation(found.metrics, standing, rate)
        return True

    def _is_as_good(self, rows: np.ndarray) -> bool:
        best = self._rows
        if best is None or not np.array_equal(rows[:, 0], best[:, 0]):
            return False
        return is_as_good(self._session.task, rows[:, 1:], best[:, 1:])

    def _is_new(self, found: Look, standing: Standing) -> bool:
        """Whether nothing of this step is chosen yet, or something worse: of its weights and a mean the better one."""
        chosen = standing.chosen
        if chosen is None or chosen.step != standing.step:
            return True
        return is_better(self._session.task.metric, found.metrics, chosen.metrics)


def is_as_good(task: Task, rows: np.ndarray, best: np.ndarray) -> bool:
    """Whether `best` [N,S] is better than `rows` [N,S], of the same examples, by one standard error at most."""
    found = paired_differences(best, rows, task.summed, task.measure)
    decisive = task.metric if found[task.metric.name] != PairedDifference(0.0, 0.0) else LOSS
    lead, error = found[decisive.name]
    return (lead if decisive.higher_is_better else -lead) <= error * ROUNDING
