"""How long a run will take, and the default size and number of epochs that fit the machine.

    seconds of a step = STEP + CALL x calls + PARAMETER x weights + rows x (PRODUCT x products + NUMBER x numbers)

`Work` counts what the model computes for a row, from its configuration alone. The constants are those of one core of a
server CPU, fitted to steps of all families in two sizes, with batches of 128 to 8,192 tokens; they are not measured
again on the machine of the user. So the same command has the same configuration whenever it runs on a machine, however
busy that is. On a processor of that speed, estimates are within a factor of 2.5 for the common families
(tests/training/test_estimate.py).

A GPU is fast enough for the defaults, so there is no estimate and nothing is adapted.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from seqloom.config.models import AnyModel
from seqloom.config.training import (
    AnyDuration,
    ByLengthConfig,
    EpochsConfig,
    SecondsConfig,
    StepsConfig,
    TokenCountConfig,
    TrainingConfig,
)
from seqloom.data.prepared import Prepared
from seqloom.recipes.families import SIZES, Size
from seqloom.report.numbers import counted, rounded_duration

# Seconds on one core, forward and backward
STEP = 2.4e-3  # of a step: its batch, its loss, the call of the optimizer
CALL = 6.5e-5
PARAMETER = 3.1e-9  # the optimizer reads and writes every weight
PRODUCT = 6.7e-11
NUMBER = 7e-9
FORWARD = 1 / 3  # share of a step without the backward pass, for validation
SAVED = 3e-8  # a weight of a checkpoint
SCALING = 0.8  # cores ** SCALING times as fast as one
MOST_CORES = 16  # more do not make steps of the default size faster

LIMIT = 300.0  # seconds of a run with default settings
SLACK = 1.2  # a default that takes longer by this factor is not changed
FAR = 2.0  # nor is the size of a run whose duration was named: a smaller model costs more than some minutes
LONG = 1_800.0  # seconds of a run that another size is suggested for,
SHORT = 600.0  # if it ends within this time
FLOOR, SHARE = 5, 3  # before a smaller size is taken: at least 5 epochs and a third of the default
FEWEST = 3  # epochs that remain whatever they cost
DEFAULT_SIZES: tuple[Size, ...] = ("small", "tiny")  # by preference


class Processor(NamedTuple):
    """The CPU that a run is trained on."""

    cores: int

    def seconds(self, on_one: float) -> float:
        """The seconds of what takes this long on one core."""
        return float(on_one / min(self.cores, MOST_CORES) ** SCALING)

    def __str__(self) -> str:
        return counted(self.cores, "core")


class Pace(NamedTuple):
    """The speed of a run."""

    step: float  # seconds of a step
    steps: float  # of an epoch
    tokens: float  # of an epoch
    validation: float  # seconds of a validation with its checkpoint
    validate_every: int  # steps; 0: an epoch

    @classmethod
    def of(cls, model: AnyModel, training: TrainingConfig, prepared: Prepared, machine: Processor) -> "Pace":
        """The speed of training this model."""
        sizes = prepared.schema.target.sizes(prepared.columns)  # [N,S]
        own = sizes[prepared.splits["train"]]
        if not own.size:
            return cls(0.0, 0.0, 0.0, 0.0, 0)
        lengths = own.mean(axis=0).tolist()
        batching, tokens = training.batching, float(own.sum())
        if isinstance(batching, ByLengthConfig):
            rows = max(1.0, batching.batch_tokens // max(1.0, sum(lengths)))
        else:  # rows of one length, cut from documents of any length
            rows, lengths = float(batching.batch_rows), [batching.row_length] * len(lengths)
        work, weights = model.work(*lengths), model.parameters()
        of_rows = PRODUCT * work.products + NUMBER * work.numbers  # for each row
        step = STEP + CALL * work.calls + PARAMETER * weights + rows * of_rows
        steps = max(1.0, tokens / (rows * max(1.0, sum(lengths))))
        dev = len(prepared.splits["dev"])
        share = 1.0 if prepared.schema.target.is_text else FORWARD  # a text is also written, token by token
        validation = share * dev * (of_rows + (STEP + CALL * work.calls) / rows) + SAVED * weights
        return cls(machine.seconds(step), steps, tokens, machine.seconds(validation), training.validate_every)

    def seconds(self, duration: AnyDuration) -> float:
        """The seconds of a run of this duration, if it does not stop early."""
        match duration:
            case EpochsConfig():
                steps = duration.epochs * self.steps
            case StepsConfig():
                steps = float(duration.steps)
            case TokenCountConfig():
                steps = duration.tokens / max(1.0, self.tokens) * self.steps
            case SecondsConfig():
                return float(duration.seconds)
        return steps * self.step + steps / max(1.0, self.validate_every or self.steps) * self.validation

    def epochs_within(self, seconds: float) -> int:
        """How many epochs fit into this time."""
        return math.floor(seconds / max(1e-9, self.seconds(EpochsConfig(epochs=1))))


def fitted(paces: Mapping[Size, Pace], duration: AnyDuration, *, named: bool) -> tuple[Size, AnyDuration]:
    """The size and duration of a run that ends within the limit, or comes as near as it may.

    Args:
        paces: the speed for each size to choose from, by preference.
        duration: the duration by default, or as the user named it.
        named: whether the user named it; then it stays.
    """
    *larger, last = paces
    if named or not isinstance(duration, EpochsConfig):
        if isinstance(duration, SecondsConfig):
            return next(iter(paces)), duration
        return next((size for size in larger if paces[size].seconds(duration) <= FAR * LIMIT), last), duration
    for size, pace in paces.items():
        if pace.seconds(duration) <= SLACK * LIMIT:
            return size, duration
        floor = FEWEST if size == last else max(FLOOR, math.ceil(duration.epochs / SHARE))
        epochs = min(duration.epochs, pace.epochs_within(LIMIT))
        if epochs >= min(floor, duration.epochs):
            return size, EpochsConfig(epochs=epochs)
    return last, EpochsConfig(epochs=min(FEWEST, duration.epochs))


def estimate_line(
    wanted: tuple[Size, AnyDuration, float],
    chosen: tuple[Size, AnyDuration, float],
    machine: Processor,
    smaller: Callable[[], Mapping[str, float]],
) -> str:
    """The estimate, and what was changed, in one line.

    Args:
        wanted: size, duration and seconds of the defaults, with what the user named.
        chosen: those of the run.
        machine: where it is trained.
        smaller: seconds for the flags of smaller models, largest first; it is called only for a long run.

    >>> usual, fast = ("small", EpochsConfig(epochs=20), 1300.0), ("tiny", EpochsConfig(epochs=8), 290.0)
    >>> print(*estimate_line(usual, fast, Processor(2), dict).split("; "), sep="\\n")
    size tiny and 8 epochs instead of small and 20, to end in about 5 min on 2 cores
    --size small --epochs 20 would take about 22 min
    >>> print(estimate_line(fast, fast, Processor(1), dict))
    estimated time: about 5 min on 1 core
    """
    seconds, suggested = chosen[2], ""
    if seconds > LONG and not isinstance(chosen[1], SecondsConfig) and (others := smaller()):
        best = next((size for size, takes in others.items() if takes <= SHORT), [*others][-1])
        suggested = f"; {best} would take about {rounded_duration(others[best])}"
    if wanted[:2] == chosen[:2]:
        rest = ", and then the last validation and the report" if isinstance(chosen[1], SecondsConfig) else ""
        return f"estimated time: about {rounded_duration(seconds)} on {machine}{rest}{suggested}"
    now, before, flags = list[str](), list[str](), list[str]()
    if wanted[0] != chosen[0]:
        now, before, flags = [f"size {chosen[0]}"], [f"{wanted[0]}"], [f"--size {wanted[0]}"]
    if wanted[1] != chosen[1]:
        now.append(f"{chosen[1].amount:,} {chosen[1].unit}")
        before.append(f"{wanted[1].amount:,}")
        flags.append(f"--epochs {wanted[1].amount}")
    return (
        f"{' and '.join(now)} instead of {' and '.join(before)}, to end in about {rounded_duration(seconds)} on "
        f"{machine}; {' '.join(flags)} would take about {rounded_duration(wanted[2])}{suggested}"
    )


def smaller_sizes(size: Size) -> tuple[Size, ...]:
    """The smaller sizes that are worth training, largest first.

    >>> smaller_sizes("base"), smaller_sizes("tiny")
    (('small', 'tiny'), ())
    """
    return tuple(reversed(SIZES[1 : SIZES.index(size)]))
