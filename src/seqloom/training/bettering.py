"""Which validation is the best so far, and whether a run still gets anywhere: one rule for all tasks.

The metric of the task decides; where it is equal, the loss on the dev part does. A metric that counts whole answers
stays at 0, or at 1, for many validations while the loss tells good weights from better ones. For the same reason
patience waits for either of them: a run whose dev loss still falls is not done.
"""

import math
from collections.abc import Mapping

from seqloom.tasks.contract import Metric
from seqloom.training.standing import Standing, Validation

LOSS = Metric("loss", higher_is_better=False)


def is_better(metric: Metric, found: Mapping[str, float], best: Mapping[str, float] | None) -> bool:
    """Whether a look at the dev part is better than the best one: by the metric, and by the loss if that is equal.

    >>> is_better(Metric("accuracy"), {"accuracy": 1.0, "loss": 0.1}, {"accuracy": 1.0, "loss": 0.2})
    True
    """
    value, before = found.get(metric.name, math.nan), None if best is None else best.get(metric.name)
    if value == before and best is not None:
        return LOSS.better(found.get("loss", math.nan), best.get("loss"))
    return metric.better(value, before)


def judge(metric: Metric, found: Mapping[str, float], standing: Standing, rate: float) -> tuple[bool, bool]:
    """Whether a look is the best so far, and whether it got anywhere: where the run stands says so from now on."""
    better = is_better(metric, found, standing.best.metrics if standing.best else None)
    better = better or not found  # without a dev part the last one counts
    falls = LOSS.better(found.get("loss", math.nan), standing.lowest)
    if falls:
        standing.lowest = found["loss"]
    if better:
        standing.best = validation(found, standing, rate)
    standing.waited, standing.validated = 0 if better or falls else standing.waited + 1, standing.step
    return better, better or falls


def validation(found: Mapping[str, float], standing: Standing, rate: float) -> Validation:
    """What a run remembers of a look: the figures that are finite."""
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return Validation(step=standing.step, metrics=finite, rate=rate)
