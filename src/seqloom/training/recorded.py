"""Training steps as CUDA graphs: all kernels of a step (loss, backward pass, clipping, optimizer) in one launch.

    batch ──copy──▶ fixed tensors ─┐
    seed, learning rate ───────────┼─▶ replay ─▶ weights, moments, carried state, statistics
                                   │
    another shape, micro-batches ──┴─▶ the plain step

Only `cuda_graphs` asks for this. A recorded step computes what the plain one computes, with the same kernels and the
same random numbers, so a run may switch between the two at any step. The first steps of each shape are plain: they show
whether the device waits for launches, which is when recording pays, and they load the kernels. A step that cannot be
recorded stays plain, and the user is told why.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.config.training import MuonConfig, TrainingConfig
from seqloom.errors import ConfigError
from seqloom.nn.capture import GraphRecorder, Record, Run, fill, fixed
from seqloom.nn.types import Batch
from seqloom.tasks.task import Batcher
from seqloom.training.devices import Device, Ranks, release
from seqloom.training.loss import without_layout
from seqloom.training.optimizers import set_lr
from seqloom.training.state import TrainingState
from seqloom.training.step import AnyBatch, Update, drawing, moved, rows_of

WARM_UP = 2  # plain steps of a shape before it is recorded
BOUND = 0.6  # share of a plain step in which the host launches kernels, above which recording pays
MOST_SHAPES = 64  # that are recorded
TRIED = 200  # plain steps after which a run whose shapes do not repeat says so


class RecordedStep(NamedTuple):
    """A step of one shape of batch, and the tensors that it reads and writes."""

    batch: AnyBatch
    state: Any  # carried; None if there is none
    seen: Tensor  # [4] the numbers of the step
    replay: Run


class KnownShape(NamedTuple):
    """What is known about one shape of batch."""

    steps: int = 0  # plain ones
    pays: bool = True
    recorded: RecordedStep | None = None


def require_recordable(config: TrainingConfig, ranks: Ranks, device: Device) -> None:
    """Raise ConfigError if the steps of a run can never be recorded."""
    if device.torch.type != "cuda":
        raise ConfigError(f"--cuda-graphs needs a CUDA GPU, found {device.torch.type}", fix="leave --cuda-graphs out")
    if ranks.count > 1:
        raise ConfigError(
            f"--cuda-graphs needs one process, found {ranks.count}, which exchange gradients during a step",
            fix="leave --cuda-graphs out, or train with one process",
        )
    if isinstance(config.optimizer, MuonConfig):
        raise ConfigError("--cuda-graphs cannot be used with muon", fix="leave --cuda-graphs out, or use adamw")
    if config.accumulate > 1:
        raise ConfigError(
            f"--cuda-graphs and --accumulate {config.accumulate} cannot be combined: a recorded step has one part",
            fix="leave one of them out",
        )


class RecordedUpdate(Update):
    """Gradient descent whose steps are recorded by the shape of the batch."""

    def __init__(
        self,
        task: Batcher,
        model: nn.Module,
        config: TrainingConfig,
        ranks: Ranks,
        device: Device,
        *,
        record: Record | None = None,
        share_of: Callable[[torch.device, Run], float] | None = None,
    ) -> None:
        """`record` and `share_of` are a CUDA graph and a clock, unless a test has no GPU."""
        super().__init__(task, model, config, ranks, device)
        self._record = GraphRecorder(device.torch) if record is None else record
        self._share_of = launching if share_of is None else share_of
        self._shapes: dict[Any, KnownShape] = {}
        self._told: list[str] = []
        self._reason = ""  # why no further shape is recorded

    def step(
        self, batch: AnyBatch | None, *, carried: bool, run_state: TrainingState, lr: float, stop: bool = False
    ) -> None:
        shape = None if batch is None or run_state.micro_batches > 1 else shape_of(batch)
        known = self._shapes.get(shape, KnownShape())
        if shape is not None and self._is_due(known):
            assert batch is not None
            known = known._replace(recorded=self._recorded(batch))
            self._shapes[shape] = known
        if known.recorded is not None:
            assert batch is not None
            self._replay(known.recorded, batch, carried=carried, run_state=run_state, lr=lr, stop=stop)
            return

        def plain() -> None:
            Update.step(self, batch, carried=carried, run_state=run_state, lr=lr, stop=stop)

        if shape is None or self._reason or known.steps >= WARM_UP:
            plain()
        elif known.steps + 1 < WARM_UP:
            plain()
            self._shapes[shape] = known._replace(steps=known.steps + 1)
        else:
            self._shapes[shape] = KnownShape(known.steps + 1, pays=self._share_of(self._device.torch, plain) > BOUND)
        self._give_up()

    def notices(self) -> list[str]:
        told, self._told = self._told, []
        return told

    def _is_due(self, known: KnownShape) -> bool:
        """Whether a shape is recorded now."""
        return not self._reason and known.recorded is None and known.pays and known.steps >= WARM_UP

    def _recorded(self, batch: AnyBatch) -> RecordedStep | None:
        """The step of a batch of this shape; None if it cannot be recorded, and then no other is tried."""
        if not all(isinstance(group["lr"], Tensor) for group in self._optimizer.param_groups):
            self._reason = "the optimizer has its learning rate on the host"
            self._told.append(f"steps are launched kernel by kernel: {self._reason}")
            return None
        inputs, targets = map(without_layout, moved(batch, self._device.torch)[:2])
        static = Batch(fixed(inputs), fixed(targets))
        state, seen = fixed(self._carried), torch.zeros(4, device=self._device.torch)

        def run() -> None:
            self._optimizer.zero_grad(set_to_none=True)
            summed = self._passes(self._task.divided(self._model, 1).task, static, state)
            found = self._change(summed)
            fill(state, self._kept(found.hold, state, summed.state))
            seen.copy_(found.together())

        try:
            replay = self._record(run)
        except RuntimeError as error:  # also out of memory: the tensors of a recorded step cannot be used by others
            self._reason = str(error).splitlines()[0]
            self._told.append(f"steps are launched kernel by kernel, because recording failed: {self._reason}")
            return None
        finally:
            self._optimizer.zero_grad(set_to_none=True)  # their memory belongs to the recorded step
        release(self._device.torch)  # what plain steps have used
        if not any(known.recorded for known in self._shapes.values()):
            self._told.append("steps of one shape are recorded as a CUDA graph, because launches took most of the time")
        return RecordedStep(static, state, seen, replay)

    def _replay(
        self,
        recorded: RecordedStep,
        batch: AnyBatch,
        *,
        carried: bool,
        run_state: TrainingState,
        lr: float,
        stop: bool,
    ) -> None:
        fill(recorded.batch[:2], moved(batch, self._device.torch)[:2])
        if recorded.state is not None:
            before = self._carried if carried else self._model.initial_state(rows_of(batch))  # type: ignore[operator]
            fill(recorded.state, before)
        set_lr(self._optimizer, lr)
        with drawing(run_state.seed, run_state.step, 0, self._ranks.rank, self._device.torch):
            recorded.replay()
        self._carried = recorded.state
        self._count(recorded.seen.clone(), batch, run_state, stop)

    def _give_up(self) -> None:
        """Try no further shapes if they hardly repeat, or if there are too many."""
        if self._reason:
            return
        recorded = sum(known.recorded is not None for known in self._shapes.values())
        if recorded >= MOST_SHAPES:
            self._reason = f"{MOST_SHAPES} shapes of batches are recorded"
        elif not recorded and sum(known.steps for known in self._shapes.values()) >= TRIED and len(self._shapes) > 1:
            self._reason = "batches have too many shapes"
            self._told.append(f"steps are launched kernel by kernel: {self._reason} to be recorded as CUDA graphs")


def shape_of(batch: AnyBatch) -> Any:
    """What must agree between two batches so that one recorded step serves both."""

    def told(part: Any) -> Any:
        if isinstance(part, Tensor):
            return tuple(part.shape), part.dtype
        if isinstance(part, tuple):
            return type(part), *map(told, part)
        return part

    return told(without_layout(batch.inputs)), told(without_layout(batch.targets))


def launching(device: torch.device, step: Run) -> float:
    """The share of a step's time in which the host launches kernels."""
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    step()
    launched = time.perf_counter()
    torch.cuda.synchronize(device)
    return (launched - began) / max(1e-9, time.perf_counter() - began)
