"""How far a run is: the share of its length that is done, and whether it is over."""

from typing import Any

from seqloom.config.training import AnyLength, EpochsConfig, SecondsConfig, StepsConfig, SymbolsConfig
from seqloom.data.loader import BatchPlan
from seqloom.training.state import TrainingState

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
