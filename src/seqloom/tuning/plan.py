"""A tuning as a value: what is searched, on which data, how long, and where it is kept. Workers get it as JSON."""

from pathlib import Path
from typing import Literal

from seqloom.config.tuning import SpaceConfig
from seqloom.errors import ConfigError
from seqloom.training.plans import RunsPlan

MOST_TRIALS, MOST_JOBS = 1_000_000, 256

PrunerName = Literal["median", "hyperband", "none"]


class Plan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a worker needs to know; `settings` are not searched."""

    storage: str  # sqlite:///FILE or postgresql://...
    study: str
    space: SpaceConfig = SpaceConfig()
    trials: int = 20  # in all, over all processes and machines
    seconds: float = 0.0  # after which no trial begins or goes on; 0: no limit
    pruner: PrunerName = "median"
    seed: int = 0  # of the draws

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= MOST_TRIALS:
            raise ConfigError(f"{self.trials:,} trials", fix=f"take 1 to {MOST_TRIALS:,}")
        if not 0 <= self.seconds < float("inf"):
            raise ConfigError(f"{self.seconds:g} seconds", fix="take a positive number, or 0 for no limit")

    def trial_folder(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.folder / "trials" / f"{number:03d}"
