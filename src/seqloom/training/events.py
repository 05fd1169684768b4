"""What a run says while it goes on: typed reports, which the terminal, the log, the pages and tests consume.

    Begun ─▶ Stepped ... Stepped ─▶ Validated ─▶ Saved ─▶ Stepped ... ─▶ Ended
                  └─▶ Noticed (something to know: a skipped step, a halved micro-batch, a full disk)

Numbers that a resumed run repeats exactly are in `Stepped`, `Validated` and `Ended`; those that depend on the machine
(seconds, bytes) stand in `Pace`, and go to another file.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from seqloom.training.state import Environment


class Begun(NamedTuple):
    """A run begins or goes on."""

    folder: Path
    step: int  # 0, or the step of the checkpoint that it goes on from
    parameters: int
    trained: int  # parameters that are not frozen
    steps: int | None  # expected in all; None where a clock decides
    checkpoint_bytes: int
    environment: Environment
    said: tuple[str, ...]  # what was chosen and why: device, precision, kernels; what was skipped when resuming


class Pace(NamedTuple):
    """How fast it goes; never the same twice."""

    seconds: float  # since the run began, stops not counted
    symbols_per_second: float
    waited: float  # share of the time in which a step waited for data
    memory: int  # bytes: the peak of the process, or of the device
    remaining: float | None  # seconds to the end, None while unknown


class Stepped(NamedTuple):
    """Some steps since the last such report."""

    step: int
    epoch: int
    share: float  # of the whole run, 0..1
    loss: float  # mean over these steps
    rate: float
    norm: float  # of the gradient before clipping, mean over these steps
    largest: float  # of the norms
    clipped: float  # share of these steps
    skipped: int  # of these steps, because something was not finite
    symbols: int  # read since the run began
    padding: float  # share of the elements of these steps
    pace: Pace


class Sample(NamedTuple):
    """One example of a validation."""

    input: str
    said: str
    true: str
    right: bool | None  # None where answers are only better or worse


class Validated(NamedTuple):
    """A look at the dev part."""

    step: int
    epoch: int
    metrics: dict[str, float]
    best: bool
    chosen: bool  # its weights are shipped: it is the best, or later than it and as good
    samples: tuple[Sample, ...]
    pace: Pace


class Saved(NamedTuple):
    """A checkpoint was written, or could not be."""

    step: int
    path: Path
    problem: str = ""


class Noticed(NamedTuple):
    """Something that people should know."""

    step: int
    code: str  # "step.skipped", "memory.halved", "disk.full", "resume.threads", ...
    text: str
    fix: str = ""


Why = Literal["done", "patience", "stopped", "not-finite", "disk"]


class Ended(NamedTuple):
    """The run is over, or stops for now."""

    step: int
    why: Why
    best_step: int
    chosen_step: int  # whose weights are shipped: the best one, or a later one that is as good
    metrics: dict[str, float]  # of the chosen validation
    pace: Pace
    exit_code: int  # 0, 128 + signal, 4 for a disk, 5 for numbers that are not finite


Report = Begun | Stepped | Validated | Saved | Noticed | Ended
