"""The learning rate of a step: a pure function of where the run stands.

    rate_at = rate x warm-up(step) x schedule(step, share) x factor

    warm-up        rises along a line to 1 over the first steps
    constant       1
    linear         1 -> final along a line over the share of the run that is done
    cosine         1 -> final along half a cosine (Loshchilov and Hutter 2017)
    inverse-root   sqrt(warm-up steps / step) behind the warm-up (Vaswani et al. 2017)
    plateau        1; its `factor` shrinks when validations stop getting better

`rate` is what the user says (`TrainingConfig.rate`), else `default_rate` of `training/defaults.py`, by model and
size. Nothing is counted here, so a run that goes on from a checkpoint has the same rates: there is no state to forget.
"""

import math

from seqloom.config.training import (
    AnySchedule,
    ConstantConfig,
    CosineConfig,
    InverseRootConfig,
    LinearConfig,
    PlateauConfig,
    TrainingConfig,
)
from seqloom.training.state import TrainingState


def rate_at(config: TrainingConfig, step: int, share: float, factor: float) -> float:
    """The rate of the step after `step` steps, when `share` (0..1) of the run is done.

    >>> config = TrainingConfig(rate=1.0, schedule=LinearConfig(warm_up=4))
    >>> [rate_at(config, step, step / 8, 1.0) for step in (0, 3, 4, 8)]
    [0.25, 0.625, 0.5, 0.0]
    """
    warm_up = config.schedule.warm_up
    warmth = min(1.0, (step + 1) / warm_up) if warm_up else 1.0
    return config.rate * warmth * _shape(config.schedule, step, share) * factor


def plateau(config: TrainingConfig, standing: TrainingState, better: bool) -> None:
    """Make `standing.factor` smaller after so many validations in a row that were not better."""
    if not isinstance(config.schedule, PlateauConfig):
        return
    standing.plateau = 0 if better else standing.plateau + 1
    if standing.plateau == config.schedule.patience:
        standing.factor *= config.schedule.factor
        standing.plateau = 0


def _shape(schedule: AnySchedule, step: int, share: float) -> float:
    """What the schedule makes of the rate behind the warm-up, 0..1."""
    match schedule:
        case LinearConfig(final=final):
            return 1 - (1 - final) * share
        case CosineConfig(final=final):
            return final + (1 - final) * (1 + math.cos(math.pi * share)) / 2
        case InverseRootConfig(warm_up=warm_up):
            first = max(1, warm_up)
            return math.sqrt(first / max(first, step + 1))
        case ConstantConfig() | PlateauConfig():
            return 1.0
