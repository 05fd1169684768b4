"""Training: optimizer, learning rate, batches, duration and checkpoints; and the search space of tuning."""

from typing import Annotated, Literal, get_args

from msgspec import Meta

from seqloom.config.base import Config, Rate
from seqloom.config.data import DataConfig, EncodingConfig, Name, NameList, Seed, Task
from seqloom.config.models import AnyModel
from seqloom.config.options import BATCHES, DURATION, MACHINE, MODEL, OPTIMIZER, RUN, Flag
from seqloom.errors import ConfigError, did_you_mean

LearningRate = Annotated[float, Meta(ge=0.0, le=1_000.0, examples=[0.001])]
Decay = Annotated[float, Meta(ge=0.0, le=10.0, examples=[0.0])]
Norm = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Count = Annotated[int, Meta(ge=1, le=2**40, examples=[1])]
Steps = Annotated[int, Meta(ge=0, le=2**40, examples=[0])]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Parts = Annotated[int, Meta(ge=1, le=65_536, examples=[1])]
Share = Annotated[float, Meta(ge=0.0, le=1.0, examples=[0.1])]
Precision = Literal["float32", "bf16", "fp16"]
Strength = Annotated[float, Meta(ge=0.0, le=1e9, examples=[1.0])]
Strengths = Annotated[tuple[Strength, ...], Meta(min_length=1, max_length=100, examples=[(1.0,), (1.0, 0.1)])]


WEIGHT_DECAY = Flag(
    "Weight decay: decoupled in adamw, sparse-adamw and muon, L2 in sgd and adam (default: 0 for sgd and adam, else "
    "0.01).",
    "NUMBER",
    OPTIMIZER,
)


MOMENTUM = Flag("Momentum of sgd and muon (default: 0.9 for sgd, 0.95 for muon).", "NUMBER", OPTIMIZER)


class SgdConfig(Config, tag="sgd", kw_only=True):
    """v <- momentum v + g + weight_decay w;  w <- w - lr v. The decay is L2: it is part of the momentum."""

    momentum: Annotated[Rate, MOMENTUM] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[Decay, WEIGHT_DECAY] = 0.0

    def check(self) -> None:
        if self.nesterov and not self.momentum:
            raise ConfigError("nesterov needs a momentum above 0, but momentum is 0", fix="give a momentum above 0")


class AdamConfig(Config, tag="adam", kw_only=True):
    """Adam (Kingma and Ba 2015). The decay is L2: it is part of the moments."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Rate = 1e-8
    weight_decay: Annotated[Decay, WEIGHT_DECAY] = 0.0


class AdamWConfig(Config, tag="adamw", kw_only=True):
    """Adam with decoupled decay (Loshchilov and Hutter 2019): w <- w - lr weight_decay w in addition to the step."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Rate = 1e-8
    weight_decay: Annotated[Decay, WEIGHT_DECAY] = 0.01


class SparseAdamWConfig(Config, tag="sparse-adamw", kw_only=True):
    """AdamW that changes only the rows of a table of word vectors that have a gradient: those of the batch's words."""

    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Rate = 1e-8
    weight_decay: Annotated[Decay, WEIGHT_DECAY] = 0.01


class MuonConfig(Config, tag="muon", kw_only=True):
    """Muon (Jordan et al. 2024) for matrices between hidden vectors, AdamW for all other weights; one learning rate."""

    momentum: Annotated[Rate, MOMENTUM] = 0.95
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Rate = 1e-8
    weight_decay: Annotated[Decay, WEIGHT_DECAY] = 0.01


def _strengths(text: str) -> tuple[float, ...]:
    """The strengths in a text, with commas between them."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise ConfigError(repr(text), fix="give a number, such as 0.3, or several, such as 1,0.3,0.1") from None


class NewtonConfig(Config, tag="newton", kw_only=True):
    """Newton's method on the complete training set, for linear models; it solves one L2 strength after another.

    An epoch is a strength s: the sum of losses + s/2 |w|^2 is minimized, starting from the previous solution.
    """

    l2: Annotated[
        Strengths,
        Flag(
            "Strength of the L2 penalty with newton; with several, separated by commas, the best on the dev set is "
            "kept (default: 3,1,0.3,0.1,0.03,0.01,0.003; 1 without a dev set).",
            "NUMBERS",
            OPTIMIZER,
            parse=_strengths,
        ),
    ] = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
    tolerance: Annotated[float, Meta(ge=0.0, le=1.0)] = 1e-5  # largest gradient of the mean objective at convergence

    @property
    def weight_decay(self) -> float:
        """Always 0: the strengths are the only decay."""
        return 0.0


AnyOptimizer = SgdConfig | AdamConfig | AdamWConfig | SparseAdamWConfig | MuonConfig | NewtonConfig


WARMUP = Flag(
    "Number of warmup steps, in which the learning rate rises to its peak (default: for linear and cosine a tenth of "
    "all steps, at most 100; for inverse-sqrt 4,000; else 0).",
    "STEPS",
    OPTIMIZER,
)


class ScheduleConfig(Config, kw_only=True):
    """Base of the schedules: the learning rate rises linearly during the warmup, and then follows the schedule.

    A warmup of None is chosen when a run starts: a tenth of all steps, at most 100.
    """

    warmup: Annotated[Steps | None, WARMUP] = None


class ConstantConfig(ScheduleConfig, tag="constant", kw_only=True):
    """The learning rate stays the same."""

    warmup: Annotated[Steps, WARMUP] = 0


class LinearConfig(ScheduleConfig, tag="linear", kw_only=True):
    """The learning rate falls linearly to a fraction of its peak."""

    final: Share = 0.0


class CosineConfig(ScheduleConfig, tag="cosine", kw_only=True):
    """The learning rate falls along half a cosine to a fraction of its peak (Loshchilov and Hutter 2017)."""

    final: Share = 0.0


class InverseSqrtConfig(ScheduleConfig, tag="inverse-sqrt", kw_only=True):
    """The learning rate falls with 1 / sqrt(step) after the warmup (Vaswani et al. 2017)."""

    warmup: Annotated[Steps, WARMUP] = 4_000


class PlateauConfig(ScheduleConfig, tag="plateau", kw_only=True):
    """The learning rate is multiplied by `factor` after `patience` validations without improvement."""

    warmup: Annotated[Steps, WARMUP] = 0

    factor: Rate = 0.5
    patience: Count = 2


AnySchedule = ConstantConfig | LinearConfig | CosineConfig | InverseSqrtConfig | PlateauConfig


class DurationConfig(Config, kw_only=True):
    """Base of the durations of training: one number, named by its unit."""

    @property
    def unit(self) -> str:
        """The unit: epochs, steps, tokens or seconds."""
        (name,) = self.__struct_fields__
        return name

    @property
    def amount(self) -> float:
        """The number of units."""
        number: float = getattr(self, self.unit)
        return number


class EpochsConfig(DurationConfig, tag="epochs", kw_only=True):
    """Train for a number of passes over the training set."""

    epochs: Annotated[
        Count,
        Flag(
            "Train for this many epochs (default: 3 to 60, fewer for more data, and to end within five minutes on the "
            "CPU).",
            "COUNT",
            DURATION,
            changeable=True,
        ),
    ] = 10


class StepsConfig(DurationConfig, tag="steps", kw_only=True):
    """Train for a number of optimizer steps."""

    steps: Annotated[
        Count, Flag("Train for this many steps instead of epochs (default: off).", "COUNT", DURATION, changeable=True)
    ]


class TokenCountConfig(DurationConfig, tag="token-count", kw_only=True):
    """Train until a number of tokens (or vectors, or rows of pixels) has been read, padding not counted."""

    tokens: Annotated[
        Count,
        Flag(
            "Train until this many tokens have been read, instead of epochs (default: off).",
            "COUNT",
            DURATION,
            changeable=True,
        ),
    ]


class SecondsConfig(DurationConfig, tag="seconds", kw_only=True):
    """Train for a time; the number of steps then depends on the machine, so two runs differ."""

    seconds: Annotated[
        Seconds,
        Flag("Train for this many seconds instead of epochs (default: off).", "COUNT", DURATION, changeable=True),
    ]


AnyDuration = EpochsConfig | StepsConfig | TokenCountConfig | SecondsConfig


class ByLengthConfig(Config, tag="by-length", kw_only=True):
    """Batches of rows of similar length, with at most `batch_tokens` tokens, padding included."""

    batch_tokens: Annotated[
        Count,
        Flag("Batch size in tokens, padding included (default: 128 to 8,192, more for more data).", "COUNT", BATCHES),
    ] = 4_096


BATCH_ROWS = Flag(
    "Number of sequences per batch, with --batching streams or packs (default: 32 for streams, 16 for packs).",
    "COUNT",
    BATCHES,
)
ROW_LENGTH = Flag(
    "Length of a sequence in tokens, with --batching streams or packs (default: 64 for streams, 256 for packs).",
    "COUNT",
    BATCHES,
)


class StreamsConfig(Config, tag="streams", kw_only=True):
    """Running text in rows whose state is carried from batch to batch; gradients stop at the border (lm only)."""

    batch_rows: Annotated[Count, BATCH_ROWS] = 32
    row_length: Annotated[Count, ROW_LENGTH] = 64


class PacksConfig(Config, tag="packs", kw_only=True):
    """Complete documents packed into rows, isolated from each other (lm only)."""

    batch_rows: Annotated[Count, BATCH_ROWS] = 16
    row_length: Annotated[Count, ROW_LENGTH] = 256


AnyBatching = ByLengthConfig | StreamsConfig | PacksConfig


def _precision(name: str) -> dict[str, str]:
    """The given precision; `auto` leaves it open."""
    if name not in ("auto", *get_args(Precision)):
        raise ConfigError(repr(name), fix=did_you_mean(name, ["auto", *get_args(Precision)]))
    return {} if name == "auto" else {"precision": name}


class TrainingConfig(Config, tag="training", kw_only=True):
    """All settings of training that affect the weights."""

    duration: Annotated[AnyDuration, Flag(says="how long to train")] = EpochsConfig()
    batching: Annotated[
        AnyBatching,
        Flag(
            "How to make batches: {names}; by-length puts examples of similar length together; for language models, "
            "streams reads contiguous text and carries the hidden state over to the next batch (truncated BPTT), and "
            "packs concatenates several documents into one sequence (default: by-length; for a language model of "
            "running text or long documents, streams if the model is recurrent, else packs).",
            "NAME",
            BATCHES,
        ),
    ] = ByLengthConfig()
    optimizer: Annotated[
        AnyOptimizer, Flag("Optimizer: {names} (default: adamw; newton for the linear recipe).", "NAME", OPTIMIZER)
    ] = AdamWConfig()
    lr: Annotated[
        LearningRate,
        Flag("Peak learning rate (default: depends on model and size).", "NUMBER", OPTIMIZER),
    ] = 1e-3  # of a bare config; a run gets its own default from `default_training` in training/learning_rate.py
    schedule: Annotated[
        AnySchedule,
        Flag("Learning rate schedule: {names} (default: linear decay; constant with newton).", "NAME", OPTIMIZER),
    ] = LinearConfig(warmup=100)
    clip_norm: Annotated[
        Norm, Flag("Clip the gradient to this norm; 0 turns clipping off (default: 1).", "NUMBER", OPTIMIZER)
    ] = 1.0
    accumulate: Annotated[
        Parts,
        Flag(
            "Split each batch into this many parts and accumulate their gradients, to save memory; the total batch "
            "size stays the same (default: 1).",
            "COUNT",
            BATCHES,
            changeable=True,
        ),
    ] = 1
    validate_every: Annotated[
        Steps, Flag("Number of steps between validations (default: after each epoch).", "STEPS", RUN)
    ] = 0
    metric: Annotated[
        Name | None,
        Flag(
            "Dev set metric that chooses the best checkpoint: loss, or for classify and tag: accuracy, f1, macro_f1; "
            "regress: mse, rmse, mae, r2, and spearman for numbers per step; lm: perplexity, bits_per_byte; masked: "
            "perplexity, accuracy; translate: exact_match, bleu, bleu_tokenized, chrf; embed: accuracy, pearson "
            "(default: depends on the task).",
            "NAME",
            RUN,
        ),
    ] = None
    patience: Annotated[
        Steps,
        Flag(
            "Stop early after this many validations without improvement; 0 never stops early (default: 5).",
            "COUNT",
            DURATION,
            changeable=True,
        ),
    ] = 0  # validations without a better metric or a lower loss
    save_every: Annotated[
        Steps, Flag("Number of steps between checkpoints (default: after each validation).", "STEPS", RUN)
    ] = 0
    keep_checkpoints: Annotated[
        Count,
        Flag(
            "Keep this many of the newest checkpoints, besides the best one (default: 2).",
            "COUNT",
            RUN,
            changeable=True,
        ),
    ] = 2
    ema: Annotated[
        Rate,
        Flag(
            "Evaluate and save an exponential moving average of the weights with this decay, such as 0.999 (default: "
            "off).",
            "NUMBER",
            OPTIMIZER,
        ),
    ] = 0.0  # the average is validated and saved; 0: no average
    average_checkpoints: Annotated[
        Count,
        Flag(
            "Average this many of the last checkpoints into the final weights (default: 1, no averaging).",
            "COUNT",
            OPTIMIZER,
        ),
    ] = 1
    precision: Annotated[
        Precision,
        Flag(
            "Precision: auto, float32, bf16 or fp16 (default: auto, bf16 if the GPU supports it, else float32).",
            "NAME",
            MACHINE,
            parse=_precision,
        ),
    ] = "float32"
    compile: Annotated[
        bool,
        Flag(
            "Compile the model with torch.compile; faster if batches have few different shapes (default: off).",
            panel=MACHINE,
        ),
    ] = False
    cuda_graphs: Annotated[
        bool,
        Flag(
            "Record training steps as CUDA graphs and replay them; faster on a GPU if the model is small and batches "
            "have few different shapes; experimental (default: off).",
            panel=MACHINE,
        ),
    ] = False
    init: Annotated[
        Name | None,
        Flag("Start from the weights of this run or model folder (default: random weights).", "MODEL", MODEL),
    ] = None
    freeze: Annotated[
        NameList,
        Flag(
            "Do not train weights whose names match this pattern, such as 'encoder.*'; can be repeated "
            "(default: train all).",
            "PATTERN",
            MODEL,
        ),
    ] = ()
    log_every: Annotated[Count, Flag("Number of steps between lines of metrics.jsonl (default: 10).", "STEPS", RUN)] = (
        10
    )
    seed: Annotated[
        Seed, Flag("Random seed for initial weights, data order and dropout (default: 0).", "NUMBER", OPTIMIZER)
    ] = 0
    deterministic: Annotated[
        bool, Flag("Use only deterministic GPU kernels; slower (default: off).", panel=MACHINE)
    ] = False

    def check(self) -> None:
        if self.ema and self.average_checkpoints > 1:
            raise ConfigError(
                "ema and average_checkpoints cannot be combined: both average the weights", fix="leave one of them out"
            )
        if self.strengths:
            self._require_solving()

    @property
    def strengths(self) -> tuple[float, ...]:
        """The strengths of L2 that newton solves for; empty for other optimizers."""
        return self.optimizer.l2 if isinstance(self.optimizer, NewtonConfig) else ()

    def _require_solving(self) -> None:
        """Raise ConfigError for settings of gradient descent, which newton would ignore."""
        others = {
            name: getattr(self, name) for name in ("ema", "compile", "cuda_graphs", "freeze") if getattr(self, name)
        }
        if self.average_checkpoints > 1:
            others["average_checkpoints"] = self.average_checkpoints
        if self.lr != 1.0:
            others["lr"] = self.lr
        if self.schedule != ConstantConfig():
            others["schedule"] = self.schedule.kind()
        if others:
            raise ConfigError(
                f"{', '.join(others)} cannot be used with newton, which does not use gradient descent",
                fix="leave it out, or use adamw",
            )


class RunConfig(Config, tag="run", kw_only=True):
    """All settings of a run, as in `config.toml` of its folder."""

    task: Task
    data: Annotated[DataConfig, Flag()]
    encoding: EncodingConfig
    model: AnyModel
    training: Annotated[TrainingConfig, Flag()]


Bound = Annotated[float, Meta(ge=0.0, le=1e9, examples=[0.1])]
Budgets = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=2**40, examples=[256])], ...], Meta(max_length=64, examples=[(256,)])
]
SizeName = Literal["nano", "tiny", "small", "base", "big"]
ScheduleName = Literal["constant", "linear", "cosine", "plateau"]


class RangeConfig(Config, tag="range", kw_only=True):
    """Numbers from low to high; with `log`, on a logarithmic scale."""

    low: Bound
    high: Bound
    log: bool = False

    def check(self) -> None:
        if self.low > self.high:
            raise ConfigError(f"low {self.low:g} is above high {self.high:g}", fix="swap the two")
        if self.log and not self.low:
            raise ConfigError("a logarithmic range must start above 0", fix="give a small number, or log = false")


class SpaceConfig(Config, tag="space", kw_only=True):
    """The search space of tuning. A range of one number, or a single choice, is fixed."""

    models: NameList = ()  # recipes; empty: the default of the task
    sizes: tuple[SizeName, ...] = ("tiny", "small")
    lr: RangeConfig = RangeConfig(low=3e-4, high=3e-2, log=True)
    dropout: RangeConfig = RangeConfig(low=0.0, high=0.5)
    batch_tokens: Budgets = ()  # tokens with padding; empty: half, once and twice the default for the data
    warmup: RangeConfig = RangeConfig(low=0.0, high=0.2)  # of the steps
    weight_decay: RangeConfig = RangeConfig(low=1e-4, high=0.3, log=True)  # of AdamW
    schedules: tuple[ScheduleName, ...] = ("linear", "cosine", "constant")

    def check(self) -> None:
        for name in ("sizes", "schedules"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty", fix="give at least one, or leave it out")
        for name, most in (("dropout", 1.0), ("lr", 1_000.0), ("weight_decay", 10.0), ("warmup", 1.0)):
            if (high := getattr(self, name).high) >= most:
                raise ConfigError(f"{name}: high is {high:g}", fix=f"use less than {most:g}")
