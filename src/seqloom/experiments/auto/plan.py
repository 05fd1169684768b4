"""The plan of a race: data, time, folder and candidates; and the events of a race.

A candidate is a recipe in one size, possibly with another head, learning rate or dropout, or with character n-grams.
The table `PORTFOLIO` lists the candidates for each task, cheapest first. Recipes that the task does not support for the
kind of input are left out.
"""

import math
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from seqloom.config.data import Task as TaskName
from seqloom.config.heads import HeadKind
from seqloom.config.inputs import CharEncoderName
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import StepsConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.experiments.auto.results import Leaderboard
from seqloom.experiments.workers import RunsPlan, Why
from seqloom.recipes.families import SIZES, Size
from seqloom.report.numbers import duration
from seqloom.tasks.encoders import has_words
from seqloom.tasks.task import HeadSettings
from seqloom.training.events import Report
from seqloom.training.learning_rate import training_tokens
from seqloom.training.request import RunRequest, is_solved
from seqloom.training.resolve import Resolved, resolve

MINUTES = 5.0  # the default
MOST_MINUTES = 60.0 * 24 * 365
INIT = "init"  # the name of the candidate that starts from another model
BASELINE = "linear"
HIGHEST_LR = 0.01  # a factor does not raise the learning rate above this
# A token and its character n-grams take about 30 us of a core. They may take a fifth of the time of the race.
NGRAMS_OF_TOKEN, NGRAMS_SHARE = 3e-5, 0.2


class AutoPlan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a race."""

    minutes: float = MINUTES
    models: tuple[str, ...] = ()  # names of recipes; empty: the portfolio of the task
    init: str = ""  # a model to fine-tune as one more candidate

    def __post_init__(self) -> None:
        if not 0 < self.minutes <= MOST_MINUTES:
            raise ConfigError(f"--minutes {self.minutes:g}", fix="give a positive number, such as 5")
        if len(set(self.models)) < len(self.models):
            raise ConfigError(f"models: {', '.join(self.models)}", fix="name each recipe once")
        msgspec.structs.force_setattr(self, "settings", {"keep_checkpoints": 1} | self.settings)

    @property
    def seconds(self) -> float:
        """The time limit of the race."""
        return 60 * self.minutes


class RaceCandidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model in the race, with its settings."""

    name: str
    recipe: str = ""  # empty: use the model of --init
    size: Size = "small"
    head: HeadKind | None = None  # None: the default head of the task
    char_encoder: CharEncoderName | None = None  # None: the default of the task
    lr_factor: float = 1.0  # multiplies the default learning rate
    dropout: float | None = None  # None: the dropout of the recipe
    variant_of: str = ""  # the candidate that this one is a variant of

    @property
    def is_solved(self) -> bool:
        """Whether Newton's method solves it, so that there are no steps to shorten."""
        return is_solved(self.recipe, {})


LINEAR = (
    RaceCandidate(name="linear", recipe="linear"),
    RaceCandidate(name="linear-ngrams", recipe="linear", char_encoder="ngrams"),
)
PORTFOLIO: dict[TaskName, tuple[RaceCandidate, ...]] = {
    "classify": (
        *LINEAR,
        *(
            RaceCandidate(name=name, recipe=name)
            for name in ("bag", "cnn", "bilstm", "transformer", "conv2d", "patch-transformer")
        ),
    ),
    "regress": (
        *LINEAR,
        *(RaceCandidate(name=name, recipe=name) for name in ("bag", "cnn", "bilstm", "transformer")),
    ),
    "tag": (
        *(RaceCandidate(name=name, recipe=name) for name in ("cnn", "gru", "bilstm")),
        *(RaceCandidate(name=f"bilstm-{head}", recipe="bilstm", head=head) for head in get_args(HeadKind)),
        RaceCandidate(name="transformer", recipe="transformer"),
    ),
    "translate": tuple(RaceCandidate(name=name, recipe=name) for name in ("seq2seq-additive", "transformer")),
    "lm": tuple(RaceCandidate(name=name, recipe=name) for name in ("gru", "lstm", "transformer")),
}


def portfolio(plan: AutoPlan, first: Resolved) -> tuple[RaceCandidate, ...]:
    """The candidates of a race, cheapest first; ConfigError for an unsupported task or recipe.

    `first` is the data as most candidates read it.
    """
    task = first.task
    if task.name not in PORTFOLIO:
        raise ConfigError(
            f"auto does not know which models suit the task {task.name}; it works for {', '.join(PORTFOLIO)}",
            fix="use `seqloom train` or `seqloom tune`",
        )
    offered = task.recipes()
    reasons = {one: _left_out(one, plan, first) for one in PORTFOLIO[task.name]}
    usual = tuple(one for one, reason in reasons.items() if reason is None)
    known = {one.name: one for one in usual}
    known |= {name: RaceCandidate(name=name, recipe=name) for name in offered if name not in known}
    lacking = {one.name: reason for one, reason in reasons.items() if reason is not None}
    for name in plan.models:
        if name not in known and name in lacking:
            raise ConfigError(f"--models {name}: {lacking[name].problem}", fix=lacking[name].fix)
        if name not in known:
            raise ConfigError(f"--models: {task.name} has no model '{name}'", fix=did_you_mean(name, known))
    default = [one.name for one in usual if one.name in known]
    default += [
        name for name in offered[:1] if name not in default
    ]  # the default of `seqloom train` is always included
    names = [*(plan.models or default)]
    if BASELINE in known and BASELINE not in names:
        names = [BASELINE, *names]
    chosen = [*(known[name] for name in names), *([RaceCandidate(name=INIT)] if plan.init else [])]
    for one in chosen:  # raises for a recipe that cannot do the task
        if one.recipe:
            task.model(one.recipe, one.size, HeadSettings(kind=one.head or task.default_head(one.recipe)))
    return tuple(chosen)


class Lack(NamedTuple):
    """Why a candidate is left out of a race, and what to do about it."""

    problem: str
    fix: str


def _left_out(one: RaceCandidate, plan: AutoPlan, first: Resolved) -> Lack | None:
    """What a candidate of the portfolio lacks; None if it races."""
    task, schema = first.task, first.prepared.schema
    if one.recipe not in task.recipes():
        return Lack(f"it does not read {schema.input.noun}", f"choose from {', '.join(task.recipes())}")
    if one.head is not None and one.head == task.default_head(one.recipe):
        return Lack(f"its head is the default of {one.recipe} for this data", f"give {one.recipe}")
    if one.head not in (None, *task.heads):
        return Lack(f"this data has no {one.head} head", f"give {one.recipe}")
    return None if one.char_encoder is None else _no_ngrams(plan, first)


def _no_ngrams(plan: AutoPlan, first: Resolved) -> Lack | None:
    """Why the character n-grams of words cannot be counted, or not in a small part of the time."""
    if not has_words(first.prepared.schema):
        return Lack(
            f"character n-grams are for one text, but the input is {first.prepared.schema.input}", "leave it out"
        )
    tokenizer = first.config.encoding.tokenizer
    if not isinstance(tokenizer, WordsConfig):
        return Lack(
            f"character n-grams are those of words, but the tokens are {tokenizer.kind()}",
            "give --tokenizer words, or leave it out",
        )
    tokens = training_tokens(first.prepared)
    seconds = NGRAMS_OF_TOKEN * tokens / NGRAMS_SHARE
    if seconds <= plan.seconds:
        return None
    minutes = math.ceil(100 * seconds / 60) / 100
    return Lack(
        f"counting the character n-grams of {tokens:,} tokens would take too much of {duration(plan.seconds)}",
        f"give --minutes {minutes:g} or more, or leave it out",
    )


def larger(size: Size) -> Size | None:
    """The next larger size, if there is one.

    >>> larger("small"), larger("big")
    ('base', None)
    """
    at = SIZES.index(size) + 1
    return SIZES[at] if at < len(SIZES) else None


def request_of(plan: AutoPlan, entry: "Entry") -> RunRequest:
    """The request for a run: either the default duration, or a fixed number of steps with a schedule of that length."""
    settings, candidate = dict(plan.shared), entry.candidate
    if entry.steps is not None:
        every = -(-entry.steps // max(1, entry.validations))
        settings |= {"duration": StepsConfig(steps=entry.steps), "patience": 0, "validate_every": every}
    if not candidate.recipe:
        return RunRequest(training=settings | {"init": plan.init}, encoding=plan.encoding)
    return RunRequest(
        model=candidate.recipe,
        size=candidate.size,
        head=candidate.head,
        char_encoder=candidate.char_encoder,
        dropout=candidate.dropout,
        training=settings,
        encoding=plan.encoding,
    )


def resolved_run(plan: AutoPlan, entry: "Entry") -> Resolved:
    """The resolved settings and data of an entry's run."""
    resolved = resolve(plan.data, request_of(plan, entry), cache=plan.cache)
    config, default = resolved.config, resolved.config.training.lr
    lr = entry.lr(default)
    if lr == default:
        return resolved
    training = msgspec.structs.replace(config.training, lr=lr)
    return resolved._replace(config=msgspec.structs.replace(config, training=training))


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A planned run: a candidate, its number of steps and its estimated time."""

    candidate: RaceCandidate
    rung: int = 0  # 0: not part of a rung (baseline and variants)
    steps: int | None  # None: the default duration of the candidate
    default_steps: int | None = None  # None: not known before training
    validations: int = 1  # only used if `steps` is given
    lr_factor: float = 1.0  # multiplies the learning rate; a shortened run needs a higher one
    seconds: float = 0.0  # its estimated time

    @property
    def name(self) -> str:
        """The name of its run folder and evaluation folder."""
        return f"{self.candidate.name}-rung-{self.rung}" if self.rung else self.candidate.name

    @property
    def is_complete(self) -> bool:
        """Whether it trains for the default duration."""
        return self.steps is None

    def lr(self, default: float) -> float:
        """The learning rate of the run, if this is the default of its model."""
        if not self.candidate.recipe:  # a rate above the default would destroy what the model of --init has learned
            return default * min(1.0, self.candidate.lr_factor)
        # A shortened run has a higher learning rate, but few models learn above the limit. Variants are free to try it.
        return min(default * self.lr_factor, max(default, HIGHEST_LR)) * self.candidate.lr_factor

    def effective_lr_factor(self, default: float | None) -> float:
        """The learning rate of the run / the default of its model; None: the default is not known.

        >>> entry = Entry(candidate=RaceCandidate(name="cnn", recipe="cnn"), steps=100, lr_factor=3.0)
        >>> entry.effective_lr_factor(0.001), entry.effective_lr_factor(0.005), entry.effective_lr_factor(0.05)
        (3.0, 2.0, 1.0)
        """
        return self.lr_factor * self.candidate.lr_factor if default is None else self.lr(default) / default

    @property
    def length(self) -> str:
        """The length of its training, as text."""
        if self.steps is None:
            return "in full" if self.default_steps is None else f"in full, up to {self.default_steps:,} steps"
        default = "" if self.default_steps is None else f" of {self.default_steps:,}"
        return f"{self.steps:,}{default} steps"


# The events of a race.
class AutoStarted(NamedTuple):
    """A race starts or is resumed."""

    folder: Path
    candidates: tuple[str, ...]
    metric: str
    seconds: float  # the time limit
    spent: float  # seconds spent before this start
    messages: tuple[str, ...]


class Probed(NamedTuple):
    """The speed of a candidate has been measured."""

    candidate: str
    step_seconds: float
    whole_seconds: float  # estimated, for the default duration


class RungStarted(NamedTuple):
    """A rung starts; the number of steps of each candidate has been decided."""

    rung: int
    entries: tuple[Entry, ...]
    dropped: tuple[str, ...]  # candidates that do not continue


class CandidateStarted(NamedTuple):
    """A run starts, or is resumed after an interruption."""

    entry: Entry
    folder: Path
    left: float  # seconds left in the race


class CandidateReport(NamedTuple):
    """An event of a run's training."""

    entry: Entry
    report: Report
    left: float


class CandidateEnded(NamedTuple):
    """A run has been trained and evaluated, or has failed for the reason in `problem`."""

    entry: Entry
    score: float | None
    best: bool  # whether it is the best run so far
    seconds: float
    left: float
    problem: str = ""


class AutoEnded(NamedTuple):
    """The race has ended; `reason` is "seconds" if the time was up before all planned runs were done."""

    reason: Why
    leaderboard: Leaderboard | None  # None: no candidate has a score yet
    exit_code: int  # 0, 128 + signal number, or 4 for a disk error


AutoEvent = AutoStarted | Probed | RungStarted | CandidateStarted | CandidateReport | CandidateEnded | AutoEnded
