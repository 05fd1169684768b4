"""From seconds to steps: what a candidate costs, and how many steps it gets in a rung.

    cost of a run = overhead + steps x seconds of a step + validations x seconds of a validation

A rung shares its time equally. A candidate whose default duration costs less than its share trains in full, and what
it leaves is shared by the others. Each rung has about three times the steps of the one before and half the candidates,
so its share of the time is one and a half times as large.
"""

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from seqloom.experiments.auto.plan import Candidate, Entry
from seqloom.tasks.evaluation import answering
from seqloom.training.devices import Device
from seqloom.training.learning_rate import expected_steps, training_tokens
from seqloom.training.resolve import Resolved
from seqloom.training.run import built_model, timed_steps
from seqloom.training.step import moved

GROWTH = 1.5  # of the time from one rung to the next
FEWEST_STEPS = 100  # of a run: with fewer, models that start slowly look worse than they are
MOST_VALIDATIONS, VALIDATION_SHARE = 5, 0.2  # of a run that is shorter than usual, and their share of its time
HIGHEST_FACTOR = 3.0  # of the learning rate of a shortened run
SETTLED = 3  # evaluations of the dev set after the last step: to choose, to calibrate and to compare
WORTHWHILE = 1.5  # times the steps of the run before it; fewer would tell nothing new
TRIED_STEPS, TRIED_BATCHES = 12, 2  # of a probe
PATIENCE = 5.0  # seconds after which a probe tries no further step
WRITING = 0.5  # seconds to write checkpoints, model and report of a run
SURE = (0.8, 1.25)  # the clock overrules the plan if the time that is left is outside of this, times the plan


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of a candidate before its first run."""

    step_seconds: float
    validation_seconds: float
    overhead_seconds: float  # of each run, whatever its length
    steps: int  # of its default duration
    validations: int  # of its default duration

    def looks(self, steps: int | None) -> int:
        """The validations of a run: of the default duration all, else up to five that take a fifth of the time."""
        if steps is None:
            return self.validations
        affordable = VALIDATION_SHARE * steps * self.step_seconds / max(1e-9, self.validation_seconds)
        return max(1, min(MOST_VALIDATIONS, int(affordable)))

    def lr_factor(self, steps: int | None) -> float:
        """The factor of the learning rate in a run of so many steps: the root of how much it is shortened, at most 3.

        The default rate is for the default duration. On 5,452 questions, 130 instead of 2,094 steps gave a cnn an
        accuracy of 0.59 with the default rate and 0.79 with three times as much, a bilstm 0.72 and 0.79.
        """
        return 1.0 if steps is None else max(1.0, min(HIGHEST_FACTOR, (self.steps / steps) ** 0.5))

    def cost(self, steps: int | None, pace: float = 1.0) -> float:
        """About how many seconds a run takes; None: the default duration without early stopping."""
        seconds = (self.steps if steps is None else steps) * self.step_seconds
        return pace * (self.overhead_seconds + seconds + self.looks(steps) * self.validation_seconds)

    def steps_in(self, seconds: float, pace: float = 1.0) -> int:
        """The steps of a run that takes so long; 0 if there is no time for one.

        >>> Probe(step_seconds=0.1, validation_seconds=1, overhead_seconds=2, steps=900, validations=9).steps_in(20)
        150
        """
        most = max(0, int(seconds / pace / self.step_seconds) + 1)
        return bisect_right(range(1, most + 1), seconds, key=lambda steps: self.cost(steps, pace))


def probe(resolved: Resolved, device: Device, seconds: float) -> Probe:
    """Measure a few steps and a part of a validation; `seconds` it took to resolve the run."""
    config, prepared, task = resolved.config.training, resolved.prepared, resolved.task
    train = task.loader(prepared, "train", config.batching, seed=config.seed, workers=0)
    steps = expected_steps(config.duration, train.plan, training_tokens(prepared)) or FEWEST_STEPS
    # The lower quartile: other work on the machine makes some steps slow, and none fast.
    step = float(np.quantile(timed_steps(resolved, device, tries=TRIED_STEPS, patience=PATIENCE), 0.25))
    dev = task.loader(prepared, "dev", config.batching, seed=0, workers=0)
    model, began, state, seen = built_model(resolved, device)[0], time.monotonic(), None, 0
    with answering(model):
        for one in islice(dev.steps(until=1), TRIED_BATCHES):
            if one.batch is not None:
                _, state = task.evaluate_batch(model, moved(one.batch, device.torch), state)
            seen += 1
            if time.monotonic() - began > PATIENCE:
                break
    validation = (time.monotonic() - began) / max(1, seen) * dev.plan.count(0)
    return Probe(
        step_seconds=step,
        validation_seconds=validation,
        overhead_seconds=2 * seconds + SETTLED * validation + WRITING,  # its data is read to train and to evaluate it
        steps=steps,
        validations=max(1, round(steps / max(1, train.plan.count(0)))),
    )


def rungs_to_come(racing: int) -> int:
    """How many rungs there are until one of so many candidates is left.

    >>> [rungs_to_come(count) for count in (1, 2, 3, 4, 5)]
    [1, 2, 3, 3, 4]
    """
    return 1 if racing <= 1 else 1 + rungs_to_come(-(-racing // 2))


def share_of_rung(racing: int) -> float:
    """The share of the time that is left for a rung of so many candidates.

    >>> [round(share_of_rung(count), 2) for count in (1, 2, 4)]
    [1.0, 0.4, 0.21]
    """
    return 1 / sum(GROWTH**later for later in range(rungs_to_come(racing)))


def entries_of(
    number: int, racing: Sequence[Candidate], probes: Mapping[str, Probe], seconds: float, pace: float = 1.0
) -> tuple[Entry, ...]:
    """The runs of a rung, cheap ones first: the time is shared so that what one leaves goes to the others."""
    entries: list[Entry] = []
    waiting = sorted(racing, key=lambda one: probes[one.name].cost(None))
    for at, one in enumerate(waiting):
        measured, slice_ = probes[one.name], max(0.0, seconds) / (len(waiting) - at)
        fitting = min(measured.steps, max(FEWEST_STEPS, measured.steps_in(slice_, pace)))
        steps = None if measured.cost(None, pace) <= slice_ else fitting
        cost = measured.cost(steps, pace)
        seconds -= cost
        entry = Entry(candidate=one, rung=number, steps=steps, default_steps=measured.steps, seconds=cost)
        looks, factor = measured.looks(steps), measured.lr_factor(steps)
        entries.append(msgspec.structs.replace(entry, validations=looks, lr_factor=factor))
    return tuple(entries)


def quick_enough(
    racing: Sequence[Candidate], probes: Mapping[str, Probe], seconds: float, default: str
) -> list[Candidate]:
    """Return the candidates that can share so many seconds with at least a few steps each.

    The slowest ones are left out, but never the default recipe of the task.
    """
    kept = sorted(racing, key=lambda one: (one.recipe != default, probes[one.name].cost(FEWEST_STEPS)))
    while len(kept) > 1 and sum(probes[one.name].cost(FEWEST_STEPS) for one in kept) > seconds:
        kept.pop()
    return kept


def seconds_of_rung(racing: Sequence[Candidate], probes: Mapping[str, Probe], left: float, pace: float = 1.0) -> float:
    """The time of a rung: all that is left if every candidate trains in full in it, else its share."""
    whole = sum(probes[one.name].cost(None, pace) for one in racing)
    return left if whole <= left else left * share_of_rung(len(racing))


def agreed_left(planned: float, actual: float) -> float:
    """The seconds that are left by the plan, or by the clock if they are far apart.

    A plan gives the same rungs however often a race was stopped; the clock corrects it if speeds were measured badly.

    >>> agreed_left(100, 95), agreed_left(100, 50), agreed_left(100, 180)
    (100, 50, 180)
    """
    low, high = (bound * planned for bound in SURE)
    return planned if low <= actual <= high else actual
