"""A comparison as a value: which models, on which data, with how much of what each, and where it is kept.

A budget says what is equal:

    parameters   every recipe made as wide as gives about so many weights; each reads the data equally often
    symbols      every model reads so many symbols of the training part
    seconds      every model trains so long on this machine
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from seqloom.data.schema import Part
from seqloom.errors import ConfigError
from seqloom.recipes import Size
from seqloom.training.plans import RunsPlan

MOST_SEEDS, MOST_JOBS, MOST_MODELS = 1_000, 256, 100

BudgetKind = Literal["parameters", "symbols", "seconds"]
UNITS: dict[BudgetKind, str] = {"parameters": "parameters", "symbols": "symbols", "seconds": "seconds of training"}


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model gets."""

    kind: BudgetKind = "symbols"
    amount: float | None = None  # None: as the data and the usual recipe have it

    def __post_init__(self) -> None:
        if self.kind not in UNITS:
            raise ConfigError(f"a budget of {self.kind!r}", fix=f"choose from {', '.join(UNITS)}")
        if self.amount is not None and not 0 < self.amount < float("inf"):
            raise ConfigError(f"a budget of {self.amount:g} {self.kind}", fix="take a positive number")

    def shown(self) -> str:
        """The budget in words.

        >>> Budget(kind="symbols", amount=20000).shown()
        '20,000 symbols each'
        """
        amount = "" if self.amount is None else f"{self.amount:,.10g} "
        return f"{amount}{UNITS[self.kind]} each"


class Entry(NamedTuple):
    """One run of a comparison: a model and a seed."""

    model: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its folders."""
        return f"{self.model}-{self.seed}"


class Plan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a worker needs to know."""

    models: tuple[str, ...]  # recipes
    budget: Budget = Budget()
    seeds: int = 3
    part: Part = "dev"  # on which models are judged
    size: Size = "small"
    wishes: dict[str, Any] = msgspec.field(default_factory=dict)  # what every recipe is told: dropout, smoothing, ...

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ConfigError(f"{self.seeds:,} seeds", fix=f"take 1 to {MOST_SEEDS:,}; 3 or more tell models apart")
        if self.part not in ("dev", "test"):
            raise ConfigError(f"models judged on {self.part!r}", fix="take dev, or test for a last look")
        if not 1 <= len(self.models) <= MOST_MODELS or len(set(self.models)) < len(self.models):
            raise ConfigError(f"models {', '.join(self.models) or 'none'}", fix="name each recipe once")

        if self.budget.kind != "parameters" and "length" in self.settings:
            raise ConfigError(
                f"a length beside a budget of {self.budget.kind}", fix="the budget says how long; leave the length out"
            )

    def entries(self) -> list[Entry]:
        """All runs: every model with its first seed, then every model with its second, ..."""
        return [Entry(model, seed) for seed in range(self.seeds) for model in self.models]

    def run_folder(self, entry: Entry) -> Path:
        """The run folder of an entry."""
        return self.folder / "runs" / entry.name

    def judged_folder(self, entry: Entry) -> Path:
        """What came of judging it on the plan's part."""
        return self.folder / "judged" / self.part / entry.name

    @property
    def cache(self) -> Path:
        """Where prepared data is kept between runs: beside them, so that it is read once."""
        return self.folder / "prepared"
