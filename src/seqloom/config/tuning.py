"""Tuning: what is searched, and between which bounds."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import NameList
from seqloom.errors import ConfigError

Bound = Annotated[float, Meta(ge=0.0, le=1e9, examples=[0.1])]
Budgets = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=2**40, examples=[256])], ...], Meta(max_length=64, examples=[(256,)])
]
SizeName = Literal["tiny", "small", "base", "big"]
ScheduleName = Literal["constant", "linear", "cosine", "plateau"]


class RangeConfig(Config, tag="range", kw_only=True):
    """Numbers from low to high; `log`: as many between 1 and 10 as between 10 and 100."""

    low: Bound
    high: Bound
    log: bool = False

    def check(self) -> None:
        if self.low > self.high:
            raise ConfigError(f"the range goes from {self.low:g} down to {self.high:g}", fix="exchange the two")
        if self.log and not self.low:
            raise ConfigError("a logarithmic range begins above 0", fix="give a small number, or log = false")


class SpaceConfig(Config, tag="space", kw_only=True):
    """What trials are drawn from. A range of one number, or one choice, is not searched but taken."""

    models: NameList = ()  # recipes; empty: the usual one of the task
    sizes: tuple[SizeName, ...] = ("tiny", "small")
    rate: RangeConfig = RangeConfig(low=3e-4, high=3e-2, log=True)
    dropout: RangeConfig = RangeConfig(low=0.0, high=0.5)
    batch: Budgets = ()  # symbols with padding; empty: half, once and twice what is usual for the data
    warm_up: RangeConfig = RangeConfig(low=0.0, high=0.2)  # of the steps
    decay: RangeConfig = RangeConfig(low=1e-4, high=0.3, log=True)  # of AdamW
    schedules: tuple[ScheduleName, ...] = ("linear", "cosine", "constant")

    def check(self) -> None:
        for name in ("sizes", "schedules"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty", fix="give at least one, or leave it out")
        for name, most in (("dropout", 1.0), ("rate", 1_000.0), ("decay", 10.0), ("warm_up", 1.0)):
            if (high := getattr(self, name).high) >= most:
                raise ConfigError(f"{name} up to {high:g}", fix=f"stay below {most:g}")
