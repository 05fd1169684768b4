"""The learning rate range test (Smith 2017): a short run whose learning rate grows until the loss explodes.

    loss │‾‾‾‾‾‾‾╲                ╱
         │        ╲   steepest   ╱ blow-up
         │         ╲____________╱
         └───────────────────────────── lr, logarithmic
         1e-6        ▲         ▲      10
                  suggestion: where the loss falls fastest, and never above a tenth of the blow-up

It takes ordinary training steps on a copy of the model; weights and random generators of the caller do not change. The
same seed gives the same result.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace
from torch import nn

from seqloom.config.training import TrainingConfig
from seqloom.data.loader import Step
from seqloom.errors import ConfigError, DataError
from seqloom.report.figures.line import Line, Series
from seqloom.tasks.task import Task
from seqloom.training.devices import Alone, Device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

LOWEST, HIGHEST, STEPS = 1e-6, 10.0, 120
SMOOTHED = 0.9  # of the running mean: about ten steps
EXPLODED = 2.0  # times the lowest mean: the test is over
BELOW = 10.0  # the suggested learning rate is at least this many times below the explosion
SHOWN = 1.5  # multiples of the initial loss that the figure shows
NOT_FINITE = 3  # steps in a row, after which nothing changes
FEWEST = 10  # steps with a finite loss


class RangeTest(NamedTuple):
    """Learning rates, the loss at each, and the suggested learning rate."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]  # of each step
    smoothed: tuple[float, ...]  # running means
    suggestion: float
    exploded: float | None  # the learning rate at which the loss exploded; None if it did not

    @property
    def figure(self) -> Line:
        """The loss over the logarithm of the learning rate, up to the explosion."""
        top = SHOWN * self.smoothed[0]
        falling = max(range(len(self.smoothed)), key=lambda at: (self.smoothed[at] <= top, at))
        x = [math.log10(lr) for lr in self.rates[: falling + 2]]
        curves = {"loss": self.losses[: len(x)], "smoothed": self.smoothed[: len(x)]}
        blown = "" if self.exploded is None else f"; the loss explodes at {self.exploded:.2g}"
        return Line(
            title="Learning rate range test",
            caption=f"Suggested: --lr {self.suggestion:g}{blown}",
            series=[Series(name=name, x=x, y=[min(y, top) for y in values]) for name, values in curves.items()],
            x_label="log10 of the learning rate",
            y_label="loss",
        )

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def range_test(
    task: Task,
    model: nn.Module,
    config: TrainingConfig,
    steps: Iterable[Step[Any]],
    device: Device,
    *,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    count: int = STEPS,
) -> RangeTest:
    """Run the test and suggest a learning rate.

    Args:
        task: the task.
        model: the model; it is copied.
        config: the training configuration; its learning rate is ignored.
        steps: the steps of a loader of the training set.
        device: where to compute.
        lowest: the first learning rate.
        highest: the last learning rate.
        count: the number of steps.
    """
    if not 0 < lowest < highest or count < FEWEST:
        raise ConfigError(
            f"a range test from {lowest:g} to {highest:g} in {count} steps",
            fix=f"give two learning rates above 0, the lower one first, and at least {FEWEST} steps",
        )
    if config.strengths:
        raise ConfigError("newton has no learning rate to find", fix="add --optimizer adamw")
    taken = list(_taken(task, model, config, islice(steps, count), device, rising(lowest, highest, count)))
    finite = [(lr, loss) for lr, loss in taken if math.isfinite(loss)]
    if len(finite) < FEWEST:
        raise DataError(
            f"the loss was finite in only {len(finite)} steps, too few to suggest a learning rate",
            fix="check the data with `seqloom data check`, or start at a lower learning rate",
        )
    rates, losses = zip(*finite, strict=True)
    smoothed = _smoothed(losses)
    blown = len(finite) < len(taken) or smoothed[-1] > EXPLODED * min(smoothed)
    exploded = taken[-1][0] if blown else None
    return RangeTest(rates, losses, smoothed, suggested(rates, smoothed, exploded), exploded)


def rising(lowest: float, highest: float, count: int) -> list[float]:
    """`count` learning rates from the lowest to the highest, on a logarithmic scale.

    >>> rising(1.0, 100.0, 3)
    [1.0, 10.0, 100.0]
    """
    return [lowest * (highest / lowest) ** (at / (count - 1)) for at in range(count)]


def suggested(rates: tuple[float, ...], smoothed: tuple[float, ...], exploded: float | None) -> float:
    """The learning rate at which the loss falls fastest, at most a tenth of the one at which it exploded; one digit."""
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__)
    falls = [after - before for before, after in pairwise(smoothed[: max(2, lowest + 1)])]
    steepest = rates[min(range(len(falls)), key=falls.__getitem__)]
    limit = rates[lowest] if exploded is None else min(rates[lowest], exploded / BELOW)
    return float(f"{min(steepest, limit):.0e}")


def _taken(
    task: Task,
    model: nn.Module,
    config: TrainingConfig,
    steps: Iterable[Step[Any]],
    device: Device,
    rates: list[float],
) -> Iterator[tuple[float, float]]:
    """The learning rate and loss of each step until the loss explodes; the last loss may be infinite.

    A single skipped step means nothing, because fp16 searches for its loss scale that way. Three in a row do.
    """
    plain = replace(config, ema=0.0, average_checkpoints=1, compile=False, cuda_graphs=False)
    run_state = TrainingState(seed=config.seed, micro_batches=config.accumulate)
    update = Update(task, copy.deepcopy(model), plain, Alone(), device)
    losses: list[float] = []
    for lr, step in zip(rates, steps, strict=False):
        update.step(step.batch, carried=step.carried, run_state=run_state, lr=lr)
        run_state.step += 1
        tally = update.read()
        if tally.not_finite >= NOT_FINITE:
            yield lr, math.inf
            return
        if tally.weight:
            losses.append(tally.loss / tally.weight)
            yield lr, losses[-1]
        smoothed = _smoothed(losses)
        if len(losses) >= FEWEST and smoothed[-1] > EXPLODED * min(smoothed):
            return


def _smoothed(losses: Iterable[float]) -> tuple[float, ...]:
    """Running means with bias correction, as in Adam."""
    mean, smoothed = 0.0, []
    for at, loss in enumerate(losses, start=1):
        mean = SMOOTHED * mean + (1 - SMOOTHED) * loss
        smoothed.append(mean / (1 - SMOOTHED**at))
    return tuple(smoothed)
