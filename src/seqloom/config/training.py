"""Training: the optimiser, its rate over time, how batches are made, when to stop, and what is kept."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Rate
from seqloom.config.data import DataConfig, EncodingConfig, Name, NameList, Seed, Task
from seqloom.config.models import AnyModel
from seqloom.errors import ConfigError

LearningRate = Annotated[float, Meta(ge=0.0, le=1_000.0, examples=[0.001])]
Decay = Annotated[float, Meta(ge=0.0, le=10.0, examples=[0.0])]
Norm = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Count = Annotated[int, Meta(ge=1, le=2**40, examples=[1])]
Steps = Annotated[int, Meta(ge=0, le=2**40, examples=[0])]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Pieces = Annotated[int, Meta(ge=1, le=65_536, examples=[1])]
Share = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.1])]
Strength = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Strengths = Annotated[tuple[Strength, ...], Meta(min_length=1, max_length=100, examples=[(1.0,), (1.0, 0.1)])]


class SgdConfig(Config, tag="sgd", kw_only=True):
    """v <- momentum v + g + decay w;  w <- w - rate v. Decay is L2: it goes through the momentum."""

    momentum: Rate = 0.9
    nesterov: bool = False
    decay: Decay = 0.0

    def check(self) -> None:
        if self.nesterov and not self.momentum:
            raise ConfigError("nesterov looks ahead along the momentum, which is 0", fix="give a momentum")


class AdamConfig(Config, tag="adam", kw_only=True):
    """Adam (Kingma and Ba 2015). Decay is L2: it goes through the moments."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    epsilon: Rate = 1e-8
    decay: Decay = 0.0


class AdamWConfig(Config, tag="adamw", kw_only=True):
    """Adam with decoupled decay (Loshchilov and Hutter 2019): w <- w - rate decay w beside the step."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    epsilon: Rate = 1e-8
    decay: Decay = 0.01


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


class ScheduleConfig(Config, kw_only=True):
    """Base of the schedules: the rate rises along a line over the first steps, then follows the schedule."""

    warm_up: Steps = 0


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

    warm_up: Steps = 4_000


class PlateauConfig(ScheduleConfig, tag="plateau", kw_only=True):
    """The rate is multiplied by a factor when so many validations in a row were not better."""

    factor: Rate = 0.5
    patience: Count = 2


AnySchedule = ConstantConfig | LinearConfig | CosineConfig | InverseRootConfig | PlateauConfig


class EpochsConfig(Config, tag="epochs", kw_only=True):
    """Train so many times over the data."""

    count: Count = 10


class StepsConfig(Config, tag="steps", kw_only=True):
    """Train so many steps."""

    count: Count


class SymbolsConfig(Config, tag="symbols", kw_only=True):
    """Train until so many symbols (or steps of vectors, or rows of pixels) were read, padding not counted."""

    count: Count


class SecondsConfig(Config, tag="seconds", kw_only=True):
    """Train for so long; how far a run comes then depends on the machine, and two runs differ."""

    count: Seconds


AnyLength = EpochsConfig | StepsConfig | SymbolsConfig | SecondsConfig


class ByLengthConfig(Config, tag="by-length", kw_only=True):
    """Rows of about one length, together at most so many symbols with their padding."""

    budget: Count = 4_096


class StreamsConfig(Config, tag="streams", kw_only=True):
    """Running text in so many rows, so many symbols a step; the state goes on, its gradient does not (lm only)."""

    rows: Count = 32
    length: Count = 64


class PacksConfig(Config, tag="packs", kw_only=True):
    """Whole documents side by side in so many rows of so many symbols, kept apart (lm only)."""

    rows: Count = 16
    length: Count = 256


AnyFeed = ByLengthConfig | StreamsConfig | PacksConfig


class TrainingConfig(Config, tag="training", kw_only=True):
    """Everything that decides which weights come out, besides the data and the model."""

    length: AnyLength = EpochsConfig()
    feed: AnyFeed = ByLengthConfig()
    optimiser: AnyOptimiser = AdamWConfig()
    rate: LearningRate = 1e-3
    schedule: AnySchedule = LinearConfig(warm_up=100)
    clip: Norm = 1.0  # the largest norm of a gradient; 0: as it is
    pieces: Pieces = 1  # micro-batches of one step: less memory, the same gradient
    validate_every: Steps = 0  # steps; 0: at the end of each epoch
    metric: Name | None = None  # the figure of the dev part that decides which weights are shipped; None: the task's
    patience: Steps = 0  # validations in a row without a better metric or a lower loss; then it ends; 0: never
    save_every: Steps = 0  # steps; 0: after each validation
    keep: Count = 2  # newest checkpoints, beside the one that is shipped
    average: Rate = 0.0  # decay of the moving average of the weights that is validated and shipped; 0: none
    average_last: Count = 1  # the shipped weights are the mean of so many last checkpoints; 1: the chosen one alone
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    compile: bool = False  # only where every batch has one shape
    init: Name | None = None  # a model folder whose weights are the start
    freeze: NameList = ()  # patterns of the names of weights that stay as they are
    report_every: Count = 10  # steps between two lines in metrics.jsonl
    seed: Seed = 0
    deterministic: bool = False  # refuse kernels whose sums depend on timing

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
    data: DataConfig
    encoding: EncodingConfig
    model: AnyModel
    training: TrainingConfig
