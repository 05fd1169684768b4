"""The plan of a comparison: models, data, budget and folder.

A budget says what is equal for all models:

    parameters   every recipe is scaled to about this many parameters; each trains for the same number of epochs
    tokens       every model reads this many tokens of the training set
    seconds      every model trains for this many seconds on this machine
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from seqloom.config.base import Config
from seqloom.config.models import AnyModel
from seqloom.config.old_names import name_fix
from seqloom.config.stacks import StackConfig
from seqloom.errors import ConfigError
from seqloom.experiments.compare.results import Comparison
from seqloom.experiments.workers import RunsPlan, Why
from seqloom.recipes.families import Size
from seqloom.training.request import is_solved

MOST_SEEDS, MOST_MODELS = 1_000, 100
# settings of training that apply to a model without gradient descent
OF_SOLVED = ("metric", "precision", "deterministic", "log_every", "validate_every", "save_every", "keep_checkpoints")

EvaluatedSplit = Literal["dev", "test"]
BudgetKind = Literal["parameters", "tokens", "seconds"]
UNITS: dict[BudgetKind, str] = {"parameters": "parameters", "tokens": "tokens", "seconds": "seconds of training"}


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of every model."""

    kind: BudgetKind = "tokens"
    amount: float | None = None  # None: chosen by the data and the default recipe

    def __post_init__(self) -> None:
        if self.kind not in UNITS:
            raise ConfigError(f"a budget of {self.kind!r}", fix=f"choose from {', '.join(UNITS)}")
        if self.amount is not None and not 0 < self.amount < float("inf"):
            raise ConfigError(f"a budget of {self.amount:g} {self.kind}", fix="give a positive number")

    @classmethod
    def of(cls, kind: str | None, amounts: Mapping[str, float], *, epochs: bool) -> "Budget":
        """The budget by its kind or by its amount; `epochs`: whether --epochs is given too."""
        chosen = kind or next(iter(amounts), "tokens")
        if chosen not in UNITS:
            raise ConfigError(f"--budget {chosen!r}", fix=name_fix(chosen, UNITS, ordered=True))
        if others := [name for name in amounts if name != chosen]:
            raise ConfigError(f"--{others[0]} with --budget {chosen}", fix="give only one budget")
        if chosen != "parameters" and epochs:
            usual = "" if kind or amounts else " (the default)"
            fix = f"leave --epochs out, give --{chosen} COUNT instead, or use --budget parameters"
            raise ConfigError(f"--epochs with --budget {chosen}{usual}, which already says how long to train", fix=fix)
        return cls(kind=chosen, amount=amounts.get(chosen))

    def shown(self) -> str:
        """The budget as text.

        >>> Budget(kind="tokens", amount=20000).shown()
        '20,000 tokens per model'
        """
        amount = "" if self.amount is None else f"{self.amount:,.10g} "
        return f"{amount}{UNITS[self.kind]} per model"


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
    split: EvaluatedSplit = "dev"  # that models are evaluated on
    size: Size = "small"
    margin: float | None = None  # a smaller difference counts as equal; None: 1 point, or 1 % of the best score
    model_settings: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # settings of every recipe: dropout, label_smoothing, ...
    added: str = ""  # the baseline, if the user did not name it

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ConfigError(
                f"{self.seeds:,} seeds", fix=f"give 1 to {MOST_SEEDS:,}; use 3 or more to tell models apart"
            )
        if self.margin is not None and not 0 < self.margin < float("inf"):
            raise ConfigError(f"--margin {self.margin:g}", fix="give a positive number, such as 0.01 for 1 point")
        if self.split not in get_args(EvaluatedSplit):
            raise ConfigError(f"--split {self.split!r}", fix="use dev, or test for the final evaluation")
        if not 1 <= len(self.models) <= MOST_MODELS or len(set(self.models)) < len(self.models):
            raise ConfigError(f"models: {', '.join(self.models) or 'none'}", fix="name each recipe once")

        if self.budget.kind != "parameters" and "duration" in self.settings:
            raise ConfigError(
                f"a duration with a budget of {self.budget.kind}",
                fix="the budget says how long to train: leave the duration out",
            )

    def settings_of(self, model: str) -> dict[str, Any]:
        """The training settings of a model; a baseline that was added has those that its solver can use."""
        if model != self.added or not is_solved(model, {}):
            return self.shared
        return {name: value for name, value in self.shared.items() if name in OF_SOLVED}

    def model_settings_of(self, model: str) -> dict[str, Any]:
        """The settings of its recipe, likewise."""
        given: Iterable[tuple[str, Any]] = self.model_settings.items()
        if model == self.added and is_solved(model, {}):
            given = [one for one in given if one[0] == "class_weights"]
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given}

    def entries(self) -> list[PlannedModel]:
        """All runs: every model with its first seed, then every model with its second, ..."""
        return [PlannedModel(model, seed) for seed in range(self.seeds) for model in self.models]

    def run_folder(self, entry: PlannedModel) -> Path:
        return self.folder / "runs" / entry.name

    def evaluation_folder(self, entry: PlannedModel) -> Path:
        return self.folder / "evaluations" / self.split / entry.name

    @property
    def results_folder(self) -> Path:
        """That of the test set is its own, so that the results on the dev set stay."""
        return self.folder / "test" if self.split == "test" else self.folder

    def was_evaluated(self, entry: PlannedModel) -> bool:
        """Whether the run was trained and evaluated before, on any split."""
        return any((self.folder / "evaluations" / split / entry.name).exists() for split in get_args(EvaluatedSplit))


NEAR = 1.25  # a factor that still counts as the same size
LARGEST_STEP = 64  # widths must be divisible by the number of heads
MOST_STEPS = 4_096
WIDE = ("hidden", "filters")  # settings that grow with the width


def scaled(model: AnyModel, parameters: int) -> tuple[AnyModel, str]:
    """The model scaled to the nearest number of parameters, and a message if that is not near."""
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
    why = "cannot be scaled" if step is None else "cannot be scaled any closer"
    return best, f"{why}: {count:,} parameters instead of {parameters:,}"


def _made(model: AnyModel, width: int) -> AnyModel | None:
    """The model with this width; None if its parts do not fit."""
    parts = [getattr(model, field) for field in model.__struct_fields__]
    first = next(part for part in parts if isinstance(part, StackConfig))
    try:
        made: AnyModel = _widened(model, width / first.width)
    except ConfigError:
        return None
    return made


def _widened(config: Any, factor: float, *, grows: bool = False) -> Any:
    """Return the same configuration with all widths multiplied by the factor; the size of an image stays."""
    if isinstance(config, tuple):
        return tuple(_widened(part, factor, grows=grows) for part in config)
    if not isinstance(config, Config):
        return max(1, round(config * factor)) if grows else config
    wide = (*WIDE, "width") if isinstance(config, StackConfig) else WIDE
    fields = config.__struct_fields__
    changed = {name: _widened(getattr(config, name), factor, grows=name in wide) for name in fields}
    return msgspec.structs.replace(config, **changed)


# The events of a comparison.
class ComparisonStarted(NamedTuple):
    """A comparison starts or is resumed."""

    folder: Path
    wanted: int  # runs in all
    finished: int  # runs that are finished already
    messages: tuple[str, ...]
    jobs: int = 1  # runs at the same time
    trained: int = 0  # runs that are not finished, but only have to be evaluated


class RunStarted(NamedTuple):
    """A run starts, or is resumed after an interruption."""

    entry: PlannedModel
    message: str  # its size


class RunEnded(NamedTuple):
    """A run is trained and evaluated, or failed: then `problem` says why."""

    entry: PlannedModel
    score: float | None
    seconds: float | None  # of training; None: it was trained before, and is now only evaluated
    problem: str = ""
    metric: str = ""  # of the score
    runs_left: int = 0
    seconds_left: float | None = None  # by the runs that have ended; None if that is not known


class Measuring(NamedTuple):
    """All runs are evaluated; now speed and memory are measured."""

    models: int


class ComparisonEnded(NamedTuple):
    """The comparison has ended; `comparison` is None if runs are missing."""

    reason: Why
    comparison: Comparison | None
    exit_code: int  # 0, 128 + signal, 4 for a disk


ComparisonReport = ComparisonStarted | RunStarted | RunEnded | Measuring | ComparisonEnded
