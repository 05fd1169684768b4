"""The training state: everything besides tensors that a run needs to resume. A checkpoint keeps it as JSON.

No random state is kept, because none is needed: the order of examples is a function of (seed, epoch, index), and
dropout draws from a generator seeded by (seed, step, micro-batch, rank).
"""

import msgspec

from seqloom.errors import ConfigError

FORMAT = 3  # 2 had other names for most fields


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What bit-identical results depend on besides the configuration. It is compared when a run is resumed."""

    seqloom: str
    torch: str
    python: str
    device: str  # "cpu", "cuda: NVIDIA H200", "mps"
    capability: str  # of the processor: "AVX512"
    threads: int
    ranks: int
    sharded: bool


class Machine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The part of a checkpoint that differs between two equal runs."""

    environment: Environment
    seconds: float = 0.0  # of training, without the time between a stop and its resume


class LossSums(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Sums since the last step event."""

    steps: int = 0
    loss: float = 0.0
    weight: float = 0.0
    norm: float = 0.0
    largest: float = 0.0
    clipped: int = 0
    skipped: int = 0
    elements: int = 0  # with padding
    tokens: int = 0  # without


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A validation that the run remembers."""

    step: int
    metrics: dict[str, float]
    lr: float  # of the schedule at that step


class TrainingState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The state after a step. It changes in one place, `training.loop`, together with the weights."""

    format: int = FORMAT
    step: int = 0  # optimizer steps taken, skipped ones counted
    epoch: int = 0  # the next position in the data
    index: int = 0
    plan_hash: str = ""  # of the order of batches in which epoch and index are a position
    seed: int = 0  # with `step` the state of every generator
    examples: int = 0
    tokens: int = 0
    order_hash: str = ""  # running sha256 over the ids of all examples, in order
    sums: LossSums = msgspec.field(default_factory=LossSums)
    not_finite: int = 0  # steps in a row
    micro_batches: int = 1  # micro-batches of a step; doubles when memory runs out
    plateau_factor: float = 1.0  # of the learning rate, set by the plateau schedule
    plateau_count: int = 0  # validations without improvement, for the plateau schedule
    patience_count: int = 0  # the same for early stopping
    last_validation: int = -1  # its step: no step is validated twice
    best: Validation | None = None
    chosen: Validation | None = None  # whose weights are in RUN/model: the best one, or a later one that is as good
    lowest_loss: float | None = None  # on the dev set
    loss_scale: float = 0.0  # in fp16; 0: losses are not scaled
    scale_steps: int = 0  # since the loss scale last changed
    metrics_lines: int = 0  # of metrics.jsonl
    end_reason: str = ""  # empty while the run is not finished
    end_amount: float = 0.0  # the duration at which it finished: with a longer one it continues

    @property
    def epoch_number(self) -> int:
        """The epoch of the last step, counted from 1; `epoch` and `index` are the position of the next step."""
        return self.epoch + (self.index > 0)


def require_plan(run_state: TrainingState, plan: str) -> None:
    """Raise ConfigError if the batches are ordered differently now: the saved position would mean another place."""
    if run_state.plan_hash != plan:
        raise ConfigError(
            f"the order of batches has changed since the checkpoint was saved (hash {run_state.plan_hash[:12]}, now "
            f"{plan[:12]}), so the run cannot continue where it stopped",
            fix="resume with the data and the version of Seqloom that the run started with, or train in a new folder",
        )
