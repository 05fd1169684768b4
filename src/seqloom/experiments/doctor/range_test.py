"""The learning-rate range test (Smith 2017): one short run with a rate that grows until the loss explodes.

    loss │‾‾‾‾‾‾‾╲                ╱
         │        ╲   steepest   ╱ blow-up
         │         ╲____________╱
         └───────────────────────────── rate, logarithmic
         1e-6        ▲         ▲      10
                  suggestion: where the loss falls fastest, and never above a tenth of the blow-up

The steps are those of training, on a copy of the model; nothing of the caller's changes, neither weights nor any
generator. The same seed gives the same test.
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
SMOOTHED = 0.9  # what is kept of the mean at each step: about ten steps are seen together
EXPLODED = 2.0  # times the lowest mean: the test is over
BELOW = 10.0  # at least so many times below the blow-up lies a rate that holds for a whole run
SHOWN = 1.5  # times the first loss, which is as high as a picture goes
NOT_FINITE = 3  # steps in a row, after which nothing changes any more
FEWEST = 10  # steps with a finite loss


class RangeTest(NamedTuple):
    """Rates, the loss at each, and the rate to take."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]  # of each step by itself
    smoothed: tuple[float, ...]  # with their predecessors
    suggestion: float
    exploded: float | None  # the rate at which the loss blew up; None if it never did

    @property
    def figure(self) -> Line:
        """The loss over the logarithm of the rate, up to where it blows up: that must not flatten the rest."""
        top = SHOWN * self.smoothed[0]
        falling = max(range(len(self.smoothed)), key=lambda at: (self.smoothed[at] <= top, at))
        x = [math.log10(rate) for rate in self.rates[: falling + 2]]
        curves = {"loss": self.losses[: len(x)], "smoothed": self.smoothed[: len(x)]}
        blown = "" if self.exploded is None else f"; the loss blows up at {self.exploded:.2g}"
        return Line(
            title="Learning-rate range test",
            caption=f"Suggested: --rate {self.suggestion:g}{blown}",
            series=[Series(name=name, x=x, y=[min(y, top) for y in values]) for name, values in curves.items()],
            x_label="rate, as a power of ten",
            y_label="loss",
        )

    def to_json(self) -> dict[str, Any]:
        """The test as plain values."""
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
    """The loss while the rate grows from `lowest` to `highest` in `count` steps, and the rate to take.

    `steps` are those of a loader of the training part; as many are read as are needed.
    """
    if not 0 < lowest < highest or count < FEWEST:
        raise ConfigError(
            f"a range test from {lowest:g} to {highest:g} in {count} steps",
            fix=f"give two rates above 0, the lower one first, and at least {FEWEST} steps",
        )
    if config.strengths:
        raise ConfigError("newton takes no rate, so there is none to find", fix="add --optimiser adamw")
    taken = list(_taken(task, model, config, islice(steps, count), device, rising(lowest, highest, count)))
    finite = [(rate, loss) for rate, loss in taken if math.isfinite(loss)]
    if len(finite) < FEWEST:
        raise DataError(
            f"the loss was finite for {len(finite)} steps, too few to choose a rate",
            fix="begin at a lower rate, or look at the data with seqloom data check",
        )
    rates, losses = zip(*finite, strict=True)
    smoothed = _smoothed(losses)
    blown = len(finite) < len(taken) or smoothed[-1] > EXPLODED * min(smoothed)
    exploded = taken[-1][0] if blown else None
    return RangeTest(rates, losses, smoothed, suggested(rates, smoothed, exploded), exploded)


def rising(lowest: float, highest: float, count: int) -> list[float]:
    """So many rates from the lowest to the highest, each the same factor above the one before.

    >>> rising(1.0, 100.0, 3)
    [1.0, 10.0, 100.0]
    """
    return [lowest * (highest / lowest) ** (at / (count - 1)) for at in range(count)]


def suggested(rates: tuple[float, ...], smoothed: tuple[float, ...], exploded: float | None) -> float:
    """The rate at which the loss falls fastest, at most a tenth of the one at which it blew up, in one digit."""
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
    """The rate and loss of each step until the loss has exploded; the last loss is infinite if nothing was finite.

    A single step that is skipped says nothing: fp16 looks for its scale that way. Three in a row do.
    """
    plain = replace(config, average=0.0, average_last=1, compile=False)
    standing = TrainingState(seed=config.seed, pieces=config.pieces)
    update = Update(task, copy.deepcopy(model), plain, Alone(), device)
    losses: list[float] = []
    for rate, step in zip(rates, steps, strict=False):
        update.step(step.batch, carried=step.carried, standing=standing, rate=rate)
        standing.step += 1
        tally = update.read()
        if tally.not_finite >= NOT_FINITE:
            yield rate, math.inf
            return
        if tally.weight:
            losses.append(tally.loss / tally.weight)
            yield rate, losses[-1]
        smoothed = _smoothed(losses)
        if len(losses) >= FEWEST and smoothed[-1] > EXPLODED * min(smoothed):
            return


def _smoothed(losses: Iterable[float]) -> tuple[float, ...]:
    """Running means, without the pull of their beginning at zero (as Adam corrects its moments)."""
    mean, smoothed = 0.0, []
    for at, loss in enumerate(losses, start=1):
        mean = SMOOTHED * mean + (1 - SMOOTHED) * loss
        smoothed.append(mean / (1 - SMOOTHED**at))
    return tuple(smoothed)
