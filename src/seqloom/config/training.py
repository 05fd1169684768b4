"""Training: the optimiser, its rate over time, batches, when to stop, and what is kept; tuning: what is searched."""

from typing import Annotated, Literal, get_args

from msgspec import Meta

from seqloom.config.base import Config, Rate
from seqloom.config.data import DataConfig, EncodingConfig, Name, NameList, Seed, Task
from seqloom.config.models import AnyModel
from seqloom.config.options import BATCHES, LENGTH, MACHINE, MODEL, OPTIMISER, RUN, Flag
from seqloom.errors import ConfigError, did_you_mean

LearningRate = Annotated[float, Meta(ge=0.0, le=1_000.0, examples=[0.001])]
Decay = Annotated[float, Meta(ge=0.0, le=10.0, examples=[0.0])]
Norm = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Count = Annotated[int, Meta(ge=1, le=2**40, examples=[1])]
Steps = Annotated[int, Meta(ge=0, le=2**40, examples=[0])]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Pieces = Annotated[int, Meta(ge=1, le=65_536, examples=[1])]
Share = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.1])]
Precision = Literal["float32", "bf16", "fp16"]
Strength = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Strengths = Annotated[tuple[Strength, ...], Meta(min_length=1, max_length=100, examples=[(1.0,), (1.0, 0.1)])]


DECAY = Flag("Weight decay; L2 of sgd and adam, decoupled of adamw.", "NUMBER", OPTIMISER)


class SgdConfig(Config, tag="sgd", kw_only=True):
    """v <- momentum v + g + decay w;  w <- w - rate v. Decay is L2: it goes through the momentum."""

    momentum: Annotated[Rate, Flag("Of sgd.", "RATE", OPTIMISER)] = 0.9
    nesterov: bool = False
    decay: Annotated[Decay, DECAY] = 0.0

    def check(self) -> None:
        if self.nesterov and not self.momentum:
            raise ConfigError("nesterov looks ahead along the momentum, which is 0", fix="give a momentum")


class AdamConfig(Config, tag="adam", kw_only=True):
    """Adam (Kingma and Ba 2015). Decay is L2: it goes through the moments."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    epsilon: Rate = 1e-8
    decay: Annotated[Decay, DECAY] = 0.0


class AdamWConfig(Config, tag="adamw", kw_only=True):
    """Adam with decoupled decay (Loshchilov and Hutter 2019): w <- w - rate decay w beside the step."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    epsilon: Rate = 1e-8
    decay: Annotated[Decay, DECAY] = 0.01


class NewtonConfig(Config, tag="newton", kw_only=True):
    """Newton steps on the whole training set, for linear models: one strength of L2 after another, solved.

    An epoch is a strength s: the sum of losses + s/2 |w|^2 is made as small as it gets, from the solution before it.
    """

    strengths: Strengths = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
    tolerance: Annotated[float, Meta(ge=0.0, le=1.0)] = 1e-5  # the largest slope of the mean objective at its end

    @property
    def decay(self) -> float:
        """None beside the strengths."""
        return 0.0


AnyOptimiser = SgdConfig | AdamConfig | AdamWConfig | NewtonConfig


WARM_UP = Flag("Steps in which the rate rises; else a tenth of all, 100 at most.", "STEPS", OPTIMISER)


class ScheduleConfig(Config, kw_only=True):
    """Base of the schedules: the rate rises along a line over the first steps, then follows the schedule."""

    warm_up: Annotated[Steps, WARM_UP] = 0


class ConstantConfig(ScheduleConfig, tag="constant", kw_only=True):
    """The rate stays."""


class LinearConfig(ScheduleConfig, tag="linear", kw_only=True):
    """The rate falls along a line to a share of itself at the end."""

    final: Share = 0.0


class CosineConfig(ScheduleConfig, tag="cosine", kw_only=True):
    """The rate falls along half a cosine to a share of itself at the end (Loshchilov and Hutter 2017)."""

    final: Share = 0.0


class InverseRootConfig(ScheduleConfig, tag="inverse-root", kw_only=True):
    """The rate falls with 1 / sqrt(step) after the warm-up (Vaswani et al. 2017)."""

    warm_up: Annotated[Steps, WARM_UP] = 4_000


class PlateauConfig(ScheduleConfig, tag="plateau", kw_only=True):
    """The rate is multiplied by a factor when so many validations in a row were not better."""

    factor: Rate = 0.5
    patience: Count = 2


AnySchedule = ConstantConfig | LinearConfig | CosineConfig | InverseRootConfig | PlateauConfig


class EpochsConfig(Config, tag="epochs", kw_only=True):
    """Train so many times over the data."""

    count: Annotated[
        Count,
        Flag(
            "Go so many times over the data; else 3 to 60 times, by its size.", "COUNT", LENGTH, "--epochs", free=True
        ),
    ] = 10


class StepsConfig(Config, tag="steps", kw_only=True):
    """Train so many steps."""

    count: Annotated[Count, Flag("Or take so many steps.", "COUNT", LENGTH, "--steps", free=True)]


class SymbolsConfig(Config, tag="symbols", kw_only=True):
    """Train until so many symbols (or steps of vectors, or rows of pixels) were read, padding not counted."""

    count: Annotated[Count, Flag("Or read so many symbols.", "COUNT", LENGTH, "--symbols", free=True)]


class SecondsConfig(Config, tag="seconds", kw_only=True):
    """Train for so long; how far a run comes then depends on the machine, and two runs differ."""

    count: Annotated[Seconds, Flag("Or train for so long.", "COUNT", LENGTH, "--seconds", free=True)]


AnyLength = EpochsConfig | StepsConfig | SymbolsConfig | SecondsConfig


class ByLengthConfig(Config, tag="by-length", kw_only=True):
    """Rows of about one length, together at most so many symbols with their padding."""

    budget: Annotated[
        Count, Flag("Symbols in one step, with padding; else 128 to 8,192, by the data.", "SYMBOLS", BATCHES, "--batch")
    ] = 4_096


def _rectangle(text: str) -> dict[str, int]:
    """The rows and symbols of a size such as 32x64."""
    rows, across, symbols = text.partition("x")
    if not (across and rows.isdecimal() and symbols.isdecimal()):
        raise ConfigError(f"{text!r} is no size", fix="write it like 32x64: rows x symbols")
    return {"rows": int(rows), "length": int(symbols)}


def _size(feed: "StreamsConfig | PacksConfig") -> str:
    return f"{feed.rows}x{feed.length}"


class StreamsConfig(Config, tag="streams", kw_only=True):
    """Running text in so many rows, so many symbols a step; the state goes on, its gradient does not (lm only)."""

    rows: Annotated[
        Count,
        Flag(
            "Or running text in rows whose state is carried (lm).",
            "ROWSxLENGTH",
            BATCHES,
            "--streams",
            _rectangle,
            _size,
        ),
    ] = 32
    length: Count = 64


class PacksConfig(Config, tag="packs", kw_only=True):
    """Whole documents side by side in so many rows of so many symbols, kept apart (lm only)."""

    rows: Annotated[
        Count,
        Flag("Or whole documents side by side, kept apart (lm).", "ROWSxLENGTH", BATCHES, "--packs", _rectangle, _size),
    ] = 16
    length: Count = 256


AnyFeed = ByLengthConfig | StreamsConfig | PacksConfig


def _precision(name: str) -> dict[str, str]:
    """The precision that is named; `auto` leaves it open."""
    if name not in ("auto", *get_args(Precision)):
        raise ConfigError(repr(name), fix=did_you_mean(name, ["auto", *get_args(Precision)]))
    return {} if name == "auto" else {"precision": name}


class TrainingConfig(Config, tag="training", kw_only=True):
    """Everything that decides which weights come out, besides the data and the model."""

    length: Annotated[AnyLength, Flag(says="how long")] = EpochsConfig()
    feed: Annotated[AnyFeed, Flag(says="how batches are made")] = ByLengthConfig()
    optimiser: Annotated[
        AnyOptimiser, Flag("One of {names}; else adamw, and newton for linear.", "NAME", OPTIMISER)
    ] = AdamWConfig()
    rate: Annotated[
        LearningRate,
        Flag("The learning rate; else by model and size, 0.001 or so; none for newton.", "NUMBER", OPTIMISER),
    ] = 1e-3  # of a bare config; a run gets its own default from `default_training` in training/learning_rate.py
    schedule: Annotated[AnySchedule, Flag("One of {names}; else linear.", "NAME", OPTIMISER)] = LinearConfig(
        warm_up=100
    )
    clip: Annotated[Norm, Flag("The largest norm of a gradient; else 1; 0: no limit.", "NORM", OPTIMISER)] = 1.0
    pieces: Annotated[
        Pieces, Flag("Compute each step in so many pieces: less memory, same result.", "COUNT", BATCHES, free=True)
    ] = 1
    validate_every: Annotated[Steps, Flag("Look at the dev part; else after each epoch.", "STEPS", RUN)] = 0
    metric: Annotated[
        Name | None, Flag("The figure of the dev part that decides what is best; else the task's.", "NAME", RUN)
    ] = None
    patience: Annotated[
        Steps,
        Flag("End after so many validations without a better one; else 5; 0: never.", "COUNT", LENGTH, free=True),
    ] = 0  # without a better metric or a lower loss
    save_every: Annotated[Steps, Flag("Write a checkpoint; else after each validation.", "STEPS", RUN)] = 0
    keep: Annotated[
        Count, Flag("Newest checkpoints to keep, beside the shipped one; else 2.", "COUNT", RUN, free=True)
    ] = 2
    average: Annotated[Rate, Flag("Ship a moving average of the weights, such as 0.999.", "DECAY", OPTIMISER)] = (
        0.0  # it is validated too; 0: none
    )
    average_last: Annotated[Count, Flag("Ship the mean of so many last checkpoints.", "COUNT", OPTIMISER)] = (
        1  # 1: the chosen one alone
    )
    precision: Annotated[
        Precision, Flag("auto, float32, bf16 or fp16; else auto.", "NAME", MACHINE, parse=_precision)
    ] = "float32"
    compile: Annotated[bool, Flag("Compile the model; for batches of one shape.", panel=MACHINE)] = False
    init: Annotated[Name | None, Flag("Start from the weights of this run or model folder.", "MODEL", MODEL)] = None
    freeze: Annotated[
        NameList, Flag("Weights that stay, by name: 'encoder.*'; may be repeated.", "PATTERN", MODEL)
    ] = ()
    report_every: Count = 10  # steps between two lines in metrics.jsonl
    seed: Annotated[Seed, Flag("Of the first weights, order and dropout.", "NUMBER", OPTIMISER)] = 0
    deterministic: Annotated[bool, Flag("Refuse kernels whose sums depend on the timing of a GPU.", panel=MACHINE)] = (
        False
    )

    def check(self) -> None:
        if self.average and self.average_last > 1:
            raise ConfigError(
                "average and average_last both say which weights are shipped", fix="leave one of them out"
            )
        if self.strengths:
            self._require_solving()

    @property
    def strengths(self) -> tuple[float, ...]:
        """The strengths of L2 that the weights are solved for; none where they are learned by batches."""
        return self.optimiser.strengths if isinstance(self.optimiser, NewtonConfig) else ()

    def _require_solving(self) -> None:
        """Refuse what is for steps by batches: it would change nothing, and nobody would notice."""
        others = {name: getattr(self, name) for name in ("average", "compile", "freeze") if getattr(self, name)}
        if self.average_last > 1:
            others["average_last"] = self.average_last
        if self.rate != 1.0:
            others["rate"] = self.rate
        if self.schedule != ConstantConfig():
            others["schedule"] = self.schedule.kind()
        if others:
            raise ConfigError(
                f"{', '.join(others)}: newton solves for all weights at once", fix="leave it out, or take adamw"
            )


class RunConfig(Config, tag="run", kw_only=True):
    """A whole run: what `config.toml` in a run folder says, with nothing left to be inferred."""

    task: Task
    data: Annotated[DataConfig, Flag()]
    encoding: EncodingConfig
    model: AnyModel
    training: Annotated[TrainingConfig, Flag()]


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
