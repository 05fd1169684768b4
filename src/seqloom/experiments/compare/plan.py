"""A comparison as a value: which models, on which data, with how much of what each, and where it is kept.

A budget says what is equal:

    parameters   every recipe made as wide as gives about so many weights; each reads the data equally often
    symbols      every model reads so many symbols of the training part
    seconds      every model trains so long on this machine
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from seqloom.config.base import Config
from seqloom.config.data import Part
from seqloom.config.models import AnyModel
from seqloom.config.stacks import StackConfig
from seqloom.errors import ConfigError
from seqloom.experiments.compare.results import Comparison
from seqloom.experiments.workers import RunsPlan, Why
from seqloom.recipes.bodies import Size

MOST_SEEDS, MOST_MODELS = 1_000, 100

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


class PlannedModel(NamedTuple):
    """One run of a comparison: a model and a seed."""

    model: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its folders."""
        return f"{self.model}-{self.seed}"


class ComparisonPlan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    def entries(self) -> list[PlannedModel]:
        """All runs: every model with its first seed, then every model with its second, ..."""
        return [PlannedModel(model, seed) for seed in range(self.seeds) for model in self.models]

    def run_folder(self, entry: PlannedModel) -> Path:
        """The run folder of an entry."""
        return self.folder / "runs" / entry.name

    def judged_folder(self, entry: PlannedModel) -> Path:
        """What came of judging it on the plan's part."""
        return self.folder / "judged" / self.part / entry.name


NEAR = 1.25  # times more or less than was asked is still about as many
LARGEST_STEP = 64  # heads and kernels divide widths: the least width that all of them accept is below this
MOST_STEPS = 4_096
WIDE = ("hidden", "filters")  # settings that grow with the width


def scaled(model: AnyModel, parameters: int) -> tuple[AnyModel, str]:
    """The model whose number of parameters is nearest, and what people should know where that is not near."""
    step = next((step for step in range(1, LARGEST_STEP + 1) if _made(model, step) and _made(model, 2 * step)), None)
    best = model
    if step is not None:
        low, high = 1, MOST_STEPS  # bisected: more width is more parameters
        while high - low > 1:
            middle = (low + high) // 2
            made = _made(model, middle * step)
            low, high = (middle, high) if made is not None and made.parameters() <= parameters else (low, middle)
        found = [made for steps in (low, high) if (made := _made(model, steps * step)) is not None]
        best = min(found, key=lambda one: abs(one.parameters() - parameters))
    count = best.parameters()
    if parameters / NEAR <= count <= parameters * NEAR:
        return best, ""
    why = "has no width to change" if step is None else "comes no nearer"
    return best, f"{why}: {count:,} parameters instead of {parameters:,}"


def _made(model: AnyModel, width: int) -> AnyModel | None:
    """The model in this width; None where its parts do not go with it."""
    parts = [getattr(model, field) for field in model.__struct_fields__]
    first = next(part for part in parts if isinstance(part, StackConfig))
    try:
        made: AnyModel = _widened(model, width / first.width)
    except ConfigError:
        return None
    return made


def _widened(held: Any, factor: float, *, grows: bool = False) -> Any:
    """The same with every width in it times the factor; a picture's stays."""
    if isinstance(held, tuple):
        return tuple(_widened(part, factor, grows=grows) for part in held)
    if not isinstance(held, Config):
        return max(1, round(held * factor)) if grows else held
    wide = (*WIDE, "width") if isinstance(held, StackConfig) else WIDE
    fields = held.__struct_fields__
    changed = {name: _widened(getattr(held, name), factor, grows=name in wide) for name in fields}
    return msgspec.structs.replace(held, **changed)


# What a comparison says while it goes on.
class ComparisonBegun(NamedTuple):
    """A comparison begins or goes on."""

    folder: Path
    wanted: int  # runs in all
    finished: int  # runs that are judged already
    said: tuple[str, ...]
    together: int = 1  # of those that are left, at the same time


class RunBegun(NamedTuple):
    """A run begins, or goes on after it was interrupted."""

    entry: PlannedModel
    said: str  # its size


class RunEnded(NamedTuple):
    """A run is trained and judged, or came to nothing: then `problem` says why."""

    entry: PlannedModel
    score: float | None
    seconds: float
    problem: str = ""


class Measuring(NamedTuple):
    """All runs are judged; now their speed and size are measured."""

    models: int


class ComparisonEnded(NamedTuple):
    """Nothing more for now; `comparison` is None as long as runs are missing."""

    why: Why
    comparison: Comparison | None
    exit_code: int  # 0, 128 + signal, 4 for a disk


ComparisonReport = ComparisonBegun | RunBegun | RunEnded | Measuring | ComparisonEnded
