"""Convert seconds to steps: estimate the cost of each candidate and decide how many steps it gets in a rung.

    cost of a run = overhead + steps x seconds per step + validations x seconds per validation

The candidates of a rung share its time equally. If the default duration of a candidate costs less than its share, it
trains in full, and the others share the remaining time. Each rung has half the candidates of the previous rung and
about three times the steps per candidate, so it gets one and a half times as much time.
"""

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from seqloom.experiments.auto.plan import Entry, RaceCandidate
from seqloom.tasks.evaluation import answering
from seqloom.training.devices import Device
from seqloom.training.learning_rate import expected_steps, training_tokens
from seqloom.training.resolve import Resolved
from seqloom.training.run import built_model, timed_steps
from seqloom.training.step import moved

GROWTH = 1.5  # time of a rung / time of the previous rung
FEWEST_STEPS = 100  # per run; with fewer steps, models that learn slowly at first would be ranked too low
MOST_VALIDATIONS, VALIDATION_SHARE = 5, 0.2  # limits for a shortened run: their number, and their share of its time
HIGHEST_FACTOR = 3.0  # for the learning rate of a shortened run
FINAL_EVALUATIONS = 3  # of the dev set after the last step: to choose the weights, to calibrate and to compare
WORTHWHILE = 1.5  # a longer run needs at least this many times the steps of the previous run
TRIED_STEPS, TRIED_BATCHES = 12, 2  # training steps and dev batches of a probe
PATIENCE = 5.0  # seconds after which a probe starts no further step
WRITING = 0.5  # seconds to write the checkpoints, model and report of a run
DRIFT = 0.25  # of the time limit: if the measured and the planned time spent differ by more, the pace is corrected
PACES = (0.5, 4.0)  # limits of a corrected pace


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The measured speed of a candidate before its first run, and its default duration."""

    step_seconds: float
    validation_seconds: float
    overhead_seconds: float  # per run, independent of its length
    steps: int  # in the default duration
    validations: int  # in the default duration
    lr: float | None = None  # the default learning rate; None in a race of an earlier version

    def validation_count(self, steps: int | None) -> int:
        """The number of validations in a run with this many steps; None: the default duration.

        A shortened run has one to five validations, which take up to about a fifth of its time.
        """
        if steps is None:
            return self.validations
        affordable = VALIDATION_SHARE * steps * self.step_seconds / max(1e-9, self.validation_seconds)
        return max(1, min(MOST_VALIDATIONS, int(affordable)))

    def lr_factor(self, steps: int | None) -> float:
        """The factor for the learning rate of a shortened run: sqrt(default steps / steps), at most 3.

        The default learning rate suits the default duration. On 5,452 questions with 130 instead of 2,094 steps, a cnn
        had an accuracy of 0.59 with the default rate and 0.79 with three times that rate; a bilstm had 0.72 and 0.79.
        """
        return 1.0 if steps is None else max(1.0, min(HIGHEST_FACTOR, (self.steps / steps) ** 0.5))

    def cost(self, steps: int | None, pace: float = 1.0) -> float:
        """The estimated seconds of a run; None: the default duration without early stopping."""
        seconds = (self.steps if steps is None else steps) * self.step_seconds
        return pace * (self.overhead_seconds + seconds + self.validation_count(steps) * self.validation_seconds)

    def cost_of(self, steps: int) -> float:
        """The estimated seconds of a run in the default duration that early stopping ended after so many steps."""
        share = min(1.0, steps / max(1, self.steps))
        return self.overhead_seconds + steps * self.step_seconds + share * self.validations * self.validation_seconds

    def steps_in(self, seconds: float, pace: float = 1.0) -> int:
        """The most steps that a run can have in the given time; 0 if not even one step fits.

        >>> Probe(step_seconds=0.1, validation_seconds=1, overhead_seconds=2, steps=900, validations=9).steps_in(20)
        150
        """
        most = max(0, int(seconds / pace / self.step_seconds) + 1)
        return bisect_right(range(1, most + 1), seconds, key=lambda steps: self.cost(steps, pace))


def probe(resolved: Resolved, device: Device, seconds: float) -> Probe:
    """Measure a few steps and part of a validation; `seconds` is how long it took to resolve the run."""
    config, prepared, task = resolved.config.training, resolved.prepared, resolved.task
    train = task.loader(prepared, "train", config.batching, seed=config.seed, workers=0)
    steps = expected_steps(config.duration, train.plan, training_tokens(prepared)) or FEWEST_STEPS
    # Use the lower quartile, because other programs on the machine can only make steps slower.
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
        overhead_seconds=2 * seconds + FINAL_EVALUATIONS * validation + WRITING,  # the data is read twice
        steps=steps,
        validations=max(1, round(steps / max(1, train.plan.count(0)))),
        lr=config.lr,
    )


def rungs_to_come(racing: int) -> int:
    """The number of rungs until only one of this many candidates is left.

    >>> [rungs_to_come(count) for count in (1, 2, 3, 4, 5)]
    [1, 2, 3, 3, 4]
    """
    return 1 if racing <= 1 else 1 + rungs_to_come(-(-racing // 2))


def share_of_rung(racing: int) -> float:
    """The share of the remaining time for a rung with this many candidates.

    >>> [round(share_of_rung(count), 2) for count in (1, 2, 4)]
    [1.0, 0.4, 0.21]
    """
    return 1 / sum(GROWTH**later for later in range(rungs_to_come(racing)))


def entries_of(
    number: int, racing: Sequence[RaceCandidate], probes: Mapping[str, Probe], seconds: float, pace: float = 1.0
) -> tuple[Entry, ...]:
    """The runs of a rung, cheapest first; time that one candidate does not need goes to the others."""
    entries: list[Entry] = []
    waiting = sorted(racing, key=lambda one: probes[one.name].cost(None))
    for at, one in enumerate(waiting):
        measured, slice_ = probes[one.name], max(0.0, seconds) / (len(waiting) - at)
        fitting = min(measured.steps, max(FEWEST_STEPS, measured.steps_in(slice_, pace)))
        steps = None if measured.cost(None, pace) <= slice_ else fitting
        cost = measured.cost(steps, pace)
        seconds -= cost
        entry = Entry(candidate=one, rung=number, steps=steps, default_steps=measured.steps, seconds=cost)
        validations, factor = measured.validation_count(steps), measured.lr_factor(steps)
        entries.append(msgspec.structs.replace(entry, validations=validations, lr_factor=factor))
    return tuple(entries)


def quick_enough(
    racing: Sequence[RaceCandidate], probes: Mapping[str, Probe], seconds: float, default: str
) -> list[RaceCandidate]:
    """Leave out the slowest candidates until the others can run at least 100 steps each in the given time.

    The default recipe of the task is never left out.
    """
    kept = sorted(racing, key=lambda one: (one.recipe != default, probes[one.name].cost(FEWEST_STEPS)))
    while len(kept) > 1 and sum(probes[one.name].cost(FEWEST_STEPS) for one in kept) > seconds:
        kept.pop()
    return kept


def seconds_of_rung(
    racing: Sequence[RaceCandidate], probes: Mapping[str, Probe], left: float, pace: float = 1.0
) -> float:
    """The time of a rung: all the remaining time if every candidate can train in full, otherwise a share of it."""
    full = sum(probes[one.name].cost(None, pace) for one in racing)
    return left if full <= left else left * share_of_rung(len(racing))


def corrected_pace(extra: float, estimated: float, spent: float, pace: float, limit: float) -> float:
    """The pace of a race, corrected if its planned clock is far from the measured time.

    Small differences are left alone: an interrupted race repeats some work, and must make the same decisions.

    Args:
        extra: seconds spent on all but the runs.
        estimated: the estimated seconds of all runs so far.
        spent: the measured seconds of everything so far.
        pace: the pace so far.
        limit: the time limit.

    >>> corrected_pace(10, 50, 70, 1.0, 100), corrected_pace(10, 50, 110, 1.0, 100)
    (1.0, 2.0)
    """
    if not estimated or abs(spent - extra - pace * estimated) <= DRIFT * limit:
        return pace
    low, high = PACES
    return min(high, max(low, (spent - extra) / estimated))
