"""What every plan of many runs says: which data, read how, trained where, and kept in which folder."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from seqloom.config.data import DataConfig, EncodingConfig

Why = Literal["done", "seconds", "stopped", "disk"]  # many runs ended: all that were wanted; time, a signal, the disk


class RunsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the plans; workers get one as JSON."""

    data: DataConfig  # as people gave it; runs open it sealed, as all training does
    out: str
    settings: dict[str, Any] = {}  # of `TrainingConfig`, as plain values: the same in every run
    encoding: EncodingConfig | None = None
    device: str = "auto"
    workers: int = 0  # processes that load data, for each run

    @property
    def folder(self) -> Path:
        """Where runs and results lie."""
        return Path(self.out)
