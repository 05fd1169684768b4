"""Where a run stands: everything besides tensors that decides how it goes on. A checkpoint keeps it as JSON.

Nothing random is kept, because nothing random goes on: the order of examples is a function of (seed, epoch, index),
and whatever a step draws (dropout) comes from a generator seeded by (seed, step, piece, rank).
"""

import msgspec

from seqloom.errors import ConfigError

FORMAT = 2


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What bit-equality depends on besides the configuration: recorded, and compared when a run goes on."""

    seqloom: str
    torch: str
    python: str
    device: str  # "cpu", "cuda: NVIDIA H200", "mps"
    capability: str  # of the processor: "AVX512"
    threads: int
    ranks: int
    sharded: bool


class Machine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a checkpoint keeps that is not the same in two equal runs; bit-equality is not claimed for it."""

    environment: Environment
    seconds: float = 0.0  # of training, stops not counted


class LossSums(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What was added up since the last report."""

    steps: int = 0
    loss: float = 0.0
    weight: float = 0.0
    norm: float = 0.0
    largest: float = 0.0
    clipped: int = 0
    skipped: int = 0
    elements: int = 0  # with padding
    symbols: int = 0  # without


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A validation that the run remembers."""

    step: int
    metrics: dict[str, float]
    rate: float  # the learning rate to which the schedule had come


class TrainingState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a run stands after a step. It changes in one place, `training.loop`, together with the weights."""

    format: int = FORMAT
    step: int = 0  # optimiser steps taken, skipped ones counted
    epoch: int = 0  # the next position in the plan
    index: int = 0
    plan: str = ""  # fingerprint of the plan in which epoch and index are a position
    seed: int = 0  # with `step` the state of every generator
    examples: int = 0
    symbols: int = 0
    order: str = ""  # running sha256 over the ids of all examples, in order
    sums: LossSums = msgspec.field(default_factory=LossSums)
    not_finite: int = 0  # steps in a row
    pieces: int = 1  # micro-batches of a step; doubles when memory runs out
    factor: float = 1.0  # what the plateau schedule made of the rate
    plateau: int = 0  # validations in a row that were not better, for the schedule
    waited: int = 0  # the same for patience
    validated: int = -1  # the step of the last validation: none is looked at twice
    best: Validation | None = None
    chosen: Validation | None = None  # whose weights are shipped: the best one, or a later one that is as good
    lowest: float | None = None  # loss on the dev part
    scale: float = 0.0  # of the losses in fp16; 0: not scaled
    grown: int = 0  # steps since the scale last changed
    lines: int = 0  # of metrics.jsonl
    ended: str = ""  # why, if it is over
    asked: float = 0.0  # the length for which it is over: for a larger one it goes on


def require_plan(standing: TrainingState, plan: str) -> None:
    """Raise ConfigError where the steps to come are not those of the run: its position would be another place."""
    if standing.plan != plan:
        raise ConfigError(
            f"the run stands in the plan of batches {standing.plan[:12]}, and now the plan is {plan[:12]}: the batches "
            "to come would not be those it has not read yet",
            fix="go on with the data and the Seqloom that it began with, or train in another folder",
        )
