"""Where a run stands: everything besides tensors that decides how it goes on. A checkpoint keeps it as JSON.

Nothing random is kept, because nothing random goes on: the order of examples is a function of (seed, epoch, index),
and whatever a step draws (dropout) comes from a generator seeded by (seed, step, piece, rank).
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from seqloom.config.training import AnyLength, EpochsConfig, SecondsConfig, StepsConfig, SymbolsConfig
from seqloom.data.loader import BatchPlan
from seqloom.errors import ConfigError
from seqloom.tasks.task import LOSS, Metric

FORMAT = 2


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What bit-equality depends on besides the configuration: recorded, and compared when a run goes on."""

    seqloom: str
    torch: str
    python: str
    device: str  # "cpu", "cuda: NVIDIA H200", "mps"
    capability: str  # of the processor: "AVX512"
    threads: int
    ranks: int
    sharded: bool


class Machine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a checkpoint keeps that is not the same in two equal runs; bit-equality is not claimed for it."""

    environment: Environment
    seconds: float = 0.0  # of training, stops not counted


class LossSums(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What was added up since the last report."""

    steps: int = 0
    loss: float = 0.0
    weight: float = 0.0
    norm: float = 0.0
    largest: float = 0.0
    clipped: int = 0
    skipped: int = 0
    elements: int = 0  # with padding
    symbols: int = 0  # without


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A validation that the run remembers."""

    step: int
    metrics: dict[str, float]
    rate: float  # the learning rate to which the schedule had come


class TrainingState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a run stands after a step. It changes in one place, `training.loop`, together with the weights."""

    format: int = FORMAT
    step: int = 0  # optimiser steps taken, skipped ones counted
    epoch: int = 0  # the next position in the plan
    index: int = 0
    plan: str = ""  # fingerprint of the plan in which epoch and index are a position
    seed: int = 0  # with `step` the state of every generator
    examples: int = 0
    symbols: int = 0
    order: str = ""  # running sha256 over the ids of all examples, in order
    sums: LossSums = msgspec.field(default_factory=LossSums)
    not_finite: int = 0  # steps in a row
    pieces: int = 1  # micro-batches of a step; doubles when memory runs out
    factor: float = 1.0  # what the plateau schedule made of the rate
    plateau: int = 0  # validations in a row that were not better, for the schedule
    waited: int = 0  # the same for patience
    validated: int = -1  # the step of the last validation: none is looked at twice
    best: Validation | None = None
    chosen: Validation | None = None  # whose weights are shipped: the best one, or a later one that is as good
    lowest: float | None = None  # loss on the dev part
    scale: float = 0.0  # of the losses in fp16; 0: not scaled
    grown: int = 0  # steps since the scale last changed
    lines: int = 0  # of metrics.jsonl
    ended: str = ""  # why, if it is over
    asked: float = 0.0  # the length for which it is over: for a larger one it goes on


def require_plan(standing: TrainingState, plan: str) -> None:
    """Raise ConfigError where the steps to come are not those of the run: its position would be another place."""
    if standing.plan != plan:
        raise ConfigError(
            f"the run stands in the plan of batches {standing.plan[:12]}, and now the plan is {plan[:12]}: the batches "
            "to come would not be those it has not read yet",
            fix="go on with the data and the Seqloom that it began with, or train in another folder",
        )


# -----------------------------------------------------------------------------
# How far a run is: the share of its length that is done, and whether it is over.
# -----------------------------------------------------------------------------

COUNTED = 5_000  # steps, after which an epoch is taken to be like those before it


def share_done(length: AnyLength, standing: TrainingState, plan: BatchPlan[Any], seconds: float) -> float:
    """The share of the run that is done, 0..1: what schedules and the display go by."""
    match length:
        case EpochsConfig():
            done = standing.epoch + standing.index / plan.count(standing.epoch) if standing.index else standing.epoch
        case StepsConfig():
            done = standing.step
        case SymbolsConfig():
            done = standing.symbols
        case SecondsConfig():
            done = seconds
    return min(1.0, done / length.count) if length.count else 1.0


def is_over(length: AnyLength, standing: TrainingState, seconds: float) -> bool:
    """Whether nothing is left to do."""
    match length:
        case EpochsConfig():
            return standing.epoch >= length.count
        case StepsConfig():
            return standing.step >= length.count
        case SymbolsConfig():
            return standing.symbols >= length.count
        case SecondsConfig():
            return seconds >= length.count


def expected_steps(length: AnyLength, plan: BatchPlan[Any], symbols: int) -> int | None:
    """About how many steps there will be; None where a clock decides. `symbols` are those of one epoch."""
    match length:
        case EpochsConfig():
            return _steps_of(length.count, plan)
        case StepsConfig():
            return length.count
        case SymbolsConfig():
            return max(1, round(length.count / max(1, symbols) * plan.count(0)))
        case SecondsConfig():
            return None


def _steps_of(epochs: int, plan: BatchPlan[Any]) -> int:
    """The steps of so many epochs: batches are drawn anew in each, so one may have a step more than another.

    They are exact up to the limit; the epochs of large data are drawn in seconds, and too many to be counted.
    """
    epoch, steps = 0, 0
    while epoch < epochs and steps < COUNTED:
        steps += plan.count(epoch)
        epoch += 1
    return round(epochs * steps / epoch)


def goes_by_clock(length: AnyLength) -> bool:
    """Whether time decides, of which several processes have several."""
    return isinstance(length, SecondsConfig)


# -----------------------------------------------------------------------------
# Which validation is the best so far, and whether a run still gets anywhere: one rule for all tasks.
#
# The metric of the task decides; where it is equal, the loss on the dev part does. A metric that counts whole answers
# stays at 0, or at 1, for many validations while the loss tells good weights from better ones. For the same reason
# patience waits for either of them: a run whose dev loss still falls is not done.
# -----------------------------------------------------------------------------


def is_better(metric: Metric, found: Mapping[str, float], best: Mapping[str, float] | None) -> bool:
    """Whether a look at the dev part is better than the best one: by the metric, and by the loss if that is equal.

    >>> is_better(Metric("accuracy"), {"accuracy": 1.0, "loss": 0.1}, {"accuracy": 1.0, "loss": 0.2})
    True
    """
    value, before = found.get(metric.name, math.nan), None if best is None else best.get(metric.name)
    if value == before and best is not None:
        return LOSS.better(found.get("loss", math.nan), best.get("loss"))
    return metric.better(value, before)


def judge(metric: Metric, found: Mapping[str, float], standing: TrainingState, rate: float) -> tuple[bool, bool]:
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


def validation(found: Mapping[str, float], standing: TrainingState, rate: float) -> Validation:
    """What a run remembers of a look: the figures that are finite."""
    finite = {name: value for name, value in found.items() if math.isfinite(value)}
    return Validation(step=standing.step, metrics=finite, rate=rate)
