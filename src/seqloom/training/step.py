"""One step of training: from a batch to changed weights, for every family and task.

    batch ─▶ micro-batches ─▶ loss ─▶ backward ─┐ summed over micro-batches and ranks
                                                ▼
                 gradient = sum of d total / sum of weights ─▶ clip ─▶ optimizer ─▶ ema
                                                │
                                                └─ not finite: weights, moments, ema and carried state do not change

The loss is divided once, by the weight (real tokens, rows) of the complete step, so the gradient does not depend on how
a batch is split. The host does not wait for the device until `read`; whether a step counts is decided on the device, by
a tensor that is 0 or 1.
"""

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.files.tensors import all_finite
from seqloom.nn.types import Batch, Layout, Padded, Spelled, Subwords, count_rows, map_state, merge_rows
from seqloom.tasks.task import Batcher
from seqloom.training.checkpoint import Average, copy_all, leaves_of, plain, put, weights_of
from seqloom.training.devices import Device, HalvedError, OutOfMemoryError, Ranks, ran_out, release
from seqloom.training.loss import CompiledLoss, LossOf
from seqloom.training.optimizers import apply, build_optimizer, gradients_of, moments_of, set_lr
from seqloom.training.state import TrainingState

# A batch split by rows into micro-batches, moved to a device, and counted.
#
#     1 x 64 rows  =  4 x 16 rows  =  16 x 4 rows        the same sum of losses, so the same gradient
#
# Every tensor of a batch (padded tokens, pairs, pictures) has the rows on axis 0. The same is true of a state that is
# carried from step to step, so both are split and joined by the same code.

AnyBatch = Batch[Any, Any]
Nest = TypeVar("Nest")


def cut(batch: AnyBatch, pieces: int) -> list[AnyBatch]:
    """The batch in micro-batches, at most one per row: in order, their sizes differing by one at most.

    >>> whole = Batch(Padded.of(torch.arange(10).view(5, 2)), torch.arange(5), ids=tuple("abcde"))
    >>> [(piece.ids, piece.targets.tolist()) for piece in cut(whole, 2)]
    [(('a', 'b', 'c'), [0, 1, 2]), (('d', 'e'), [3, 4])]
    """
    rows = rows_of(batch)
    if pieces == 1 or rows == 1:
        return [batch]
    whole_ids = len(batch.ids) == rows  # packed rows contain several documents each, so ids cannot be assigned to rows

    def rows_from(start: int, stop: int) -> AnyBatch:
        inputs = _mapped(lambda tensor: tensor[start:stop], batch.inputs)
        targets = _mapped(lambda tensor: tensor[start:stop], batch.targets)
        return Batch(inputs, targets, batch.ids[start:stop] if whole_ids else ())

    return [rows_from(start, stop) for start, stop in spans(rows, pieces)]


def spans(rows: int, pieces: int) -> list[tuple[int, int]]:
    """The first row and the end of each micro-batch; none is empty.

    >>> spans(5, 2), spans(2, 4)
    ([(0, 3), (3, 5)], [(0, 1), (1, 2)])
    """
    count = min(rows, pieces)
    size, larger = divmod(rows, count)
    edges = [number * size + min(number, larger) for number in range(count + 1)]
    return list(pairwise(edges))


def rows_of(batch: AnyBatch) -> int:
    """The number of rows in a batch."""
    first = batch.inputs
    while not isinstance(first, Tensor):
        first = first[0]
    return len(first)


def cut_state(state: Any, pieces: list[tuple[int, int]]) -> list[Any]:
    """The state of the rows of each micro-batch; None for each if there is no state."""
    if state is None or len(pieces) == 1:
        return [state] * len(pieces)
    return [map_state(lambda tensor: tensor[start:stop], state) for start, stop in pieces]  # noqa: B023


def join_states(states: Sequence[Any]) -> Any:
    """The state of all rows, from the states of the micro-batches."""
    first = states[0]
    if first is None or len(states) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    joined = [join_states(parts) for parts in zip(*states, strict=True)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def moved(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """The batch on a device; to a GPU it is copied asynchronously from pinned memory."""
    if device.type == "cpu":
        return batch
    pinned = device.type == "cuda"

    def move(tensor: Tensor) -> Tensor:
        if pinned and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=pinned)

    inputs = _mapped(move, batch.inputs)
    if isinstance(inputs, Padded) and inputs.segments is not None:  # layers group packed documents on the host
        host = batch.inputs.lengths, batch.inputs.segments
        known = Layout(inputs.lengths, inputs.segments, time=inputs.values.shape[1], host=host)
        inputs = inputs._replace(shared=known)
    return batch._replace(inputs=inputs, targets=_mapped(move, batch.targets))


def elements_of(batch: AnyBatch) -> tuple[int, int]:
    """The number of input elements (tokens, vectors, rows of pixels) with padding, and without.

    For batches on the host: it reads their lengths.

    >>> elements_of(Batch(Padded.of(torch.ones(2, 3), torch.tensor([3, 1])), torch.zeros(2)))
    (6, 4)
    """
    return _counted(batch.inputs)


def _counted(inputs: Any) -> tuple[int, int]:
    if isinstance(inputs, Padded):
        rows, time = inputs.values.shape[:2]
        return rows * time, rows * time if inputs.full else int(inputs.lengths.sum())
    if isinstance(inputs, Tensor):
        elements = inputs.shape[0] * inputs.shape[1] if inputs.ndim > 1 else len(inputs)
        return elements, elements
    if isinstance(inputs, Subwords | Spelled):  # subwords are counted, or words
        return _counted(inputs[0])
    sides = [_counted(side) for side in inputs]
    return sum(elements for elements, _ in sides), sum(tokens for _, tokens in sides)


def _mapped(function: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """The same nested tuples with a function applied to all tensors."""
    if isinstance(nest, Tensor):
        return function(nest)  # type: ignore[return-value]  # a Tensor maps to a Tensor
    if not isinstance(nest, tuple):
        return nest
    parts = [_mapped(function, part) for part in nest]
    return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)


# Statistics of the steps since the last `read`: four numbers per step stay on the device until then.
#
# Whether a step counts is decided on the device too: it does not if its loss or gradient was not finite, or if three
# steps in a row were not. After that nothing changes any more, however late the host reads.

LATCH = 3  # steps in a row that were not finite; after them nothing changes
HELD = 256  # steps whose numbers are kept one by one; then they are stacked on the device


class Tally(NamedTuple):
    """Statistics since the last `read`, summed over steps, micro-batches and ranks; of skipped steps only the count."""

    steps: int
    loss: float  # summed; `loss / weight` is the mean
    weight: float
    norm: float  # of gradients before clipping, summed over steps
    largest: float
    clipped: int
    skipped: int
    not_finite: int  # steps in a row, up to now; stays at 3
    elements: int  # with padding
    tokens: int  # without
    stop: bool  # some rank was asked to stop
    scale: float = 0.0  # of the losses in fp16; 0: not scaled
    grown: int = 0


class Seen(NamedTuple):
    """One step as numbers on the device, all of shape []."""

    total: Tensor
    weight: Tensor
    norm: Tensor  # of the gradient of the total
    hold: Tensor  # 1 if the step is skipped

    def together(self) -> Tensor:
        """The numbers in one tensor, [4]."""
        return torch.stack(self)


class Tallies:
    """The steps since the last `read`."""

    def __init__(self, clip: float, ranks: Ranks, device: torch.device) -> None:
        self.clip, self.ranks, self.device = clip, ranks, device
        self.in_a_row = torch.zeros((), device=device)
        self.seen: list[Tensor] = []  # each [4]
        self.together: list[Tensor] = []  # each [steps, 4]
        self.elements, self.tokens, self.stop = 0, 0, False

    def load(self, not_finite: int) -> None:
        """Set how many steps in a row were not finite."""
        self.in_a_row.fill_(float(not_finite))

    def hold(self, loss: Tensor, norm: Tensor) -> Tensor:
        """1 if a step is skipped: its loss [2] or norm is not finite, or three steps in a row were not."""
        left = (loss.sum() + norm) * 0  # 0, or NaN: cheaper than isfinite
        return ((left != 0) | (self.in_a_row >= LATCH)).float()

    def follow(self, errs: Tensor) -> None:
        """Count a step; `errs` is 1 if it was skipped, and not only because fp16 searches for its loss scale."""
        self.in_a_row.add_(1).mul_(errs)

    def add(self, seen: Tensor, counts: tuple[int, int], stop: bool) -> None:
        """Add the numbers [4] of a step, and its numbers of elements and tokens."""
        self.seen.append(seen)
        if len(self.seen) == HELD:
            self._put_together()
        elements, tokens = counts
        self.elements, self.tokens, self.stop = self.elements + elements, self.tokens + tokens, self.stop or stop

    def read(self) -> Tally:
        """The sums over all steps and ranks; every rank must call it."""
        self._put_together()
        elements, tokens, stop = self._counts()
        steps = [step for together in self.together for step in together.tolist()]
        good = [(total, weight, _mean(norm, weight)) for total, weight, norm, hold in steps if not hold]
        norms = [norm for _, _, norm in good]
        tally = Tally(
            steps=len(steps),
            loss=sum(total for total, _, _ in good),
            weight=sum(weight for _, weight, _ in good),
            norm=sum(norms),
            largest=max(norms, default=0.0),
            clipped=sum(norm > self.clip for norm in norms) if self.clip else 0,
            skipped=len(steps) - len(good),
            not_finite=min(LATCH, int(self.in_a_row)),
            elements=elements,
            tokens=tokens,
            stop=stop > 0,
        )
        self.together, self.elements, self.tokens, self.stop = [], 0, 0, False
        return tally

    def _counts(self) -> list[int]:
        """Elements, tokens, and requests to stop, over all ranks."""
        counts = [self.elements, self.tokens, int(self.stop)]
        return counts if self.ranks.count == 1 else self.ranks.sum(torch.tensor(counts)).tolist()

    def _put_together(self) -> None:
        if self.seen:
            self.together.append(torch.stack(self.seen))
            self.seen = []


def _mean(norm: float, weight: float) -> float:
    """The gradient norm of the mean loss, rounded to 24 bits like the other numbers.

    A float64 holds the sum of very many such numbers exactly, so the sums do not depend on how often they were read: a
    run that a signal stops between two log lines logs the same numbers.
    """
    mean = norm / weight if weight else 0.0
    split = mean * (2**29 + 1)  # Dekker 1971: the upper 24 of 53 bits
    return split - (split - mean)


# Loss scaling for fp16: small gradients vanish there below 6e-8, so losses are multiplied before the backward pass.
#
#     a step with something not finite     scale / 2, the step is skipped       (Micikevicius et al. 2018)
#     2,000 good steps in a row            scale * 2
#
# While the scale is above 1 such a step is part of the search for the scale, not an error. All stays on the device.

START = 65_536.0
PATIENCE = 2_000  # good steps before the scale grows


class LossScale:
    """The loss scale, and the number of steps since it changed."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), START, device=device)
        self.grown = torch.zeros((), device=device)

    def load(self, value: float, grown: int) -> None:
        """Set the scale to that of a checkpoint, or to the initial one."""
        self.value.fill_(value or START)
        self.grown.fill_(float(grown))

    def read(self) -> tuple[float, int]:
        """The scale and the steps since it changed, on the host."""
        return self.value.item(), int(self.grown)

    def searching(self) -> Tensor:
        """1 while a step that is not finite only means that the scale is too large, else 0."""
        return (self.value > 1).float()

    def follow(self, bad: Tensor) -> None:
        """Halve the scale after a bad step, double it after many good ones."""
        self.grown.add_(1).mul_(1 - bad)
        grows = self.grown >= PATIENCE
        larger = torch.where(grows, self.value * 2, self.value)
        self.value.copy_(torch.where(bad > 0, (self.value / 2).clamp(min=1), larger))
        self.grown.mul_(~grows)


# Random numbers of a step (dropout) are a function of (seed, step, micro-batch, rank), and of nothing else.
#
# Modules use torch's global generators. Inside `drawing` these are seeded from the four numbers; afterwards their state
# is restored, so training and the caller do not disturb each other. No generator state is ever saved: a run that is
# resumed at step 20 draws the same numbers at step 21 as a run without interruption.


def seed_of(seed: int, step: int, piece: int, rank: int) -> int:
    """A 63-bit hash of the four numbers."""
    digest = hashlib.blake2b(struct.pack("<4q", seed, step, piece, rank), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def drawing(seed: int, step: int, piece: int, rank: int, device: torch.device) -> Iterator[None]:
    """A context in which the generators of host and device are seeded from these four numbers."""
    generators = _generators(device)
    before = [generator.get_state() for generator in generators]
    start = seed_of(seed, step, piece, rank)
    for generator in generators:
        generator.manual_seed(start)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    """The global generators that modules on the device use; their states are on the host."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[index]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]


TINY = torch.finfo(torch.float32).tiny  # a batch without weight has no loss either: 0 divided by anything is 0

Tensors = dict[str, Tensor]


class _Summed(NamedTuple):
    """The sums over the micro-batches of a step."""

    total: Tensor
    weight: Tensor
    state: Any


class WeightUpdate(ABC):
    """Changes the weights of a run, and owns its tensors: gradient descent (`Update`) or newton (`Solver`)."""

    _average: Average | None = None

    def __init__(self, model: nn.Module, loss: nn.Module, ranks: Ranks, device: Device) -> None:
        self._model, self._loss, self._ranks, self._device = model, loss, ranks, device
        model.train()

    @abstractmethod
    def step(
        self, batch: AnyBatch | None, *, carried: bool, run_state: TrainingState, lr: float, stop: bool = False
    ) -> None:
        """Take one step."""

    @abstractmethod
    def read(self) -> Tally:
        """The statistics since the last call."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensors]:
        """All tensors of the run, not copied: the content of a checkpoint besides the state."""

    @abstractmethod
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], run_state: TrainingState) -> None:
        """Restore these tensors and this state."""

    def is_done(self, run_state: TrainingState) -> bool:
        """Whether training has converged before its duration; never with gradient descent."""
        return False

    def notices(self) -> list[str]:
        """What the user should know about how steps are computed; each is returned once."""
        return []

    def shipped(self) -> AbstractContextManager[None]:
        """A context in which the model has the weights that are validated and saved: the moving average, or its own."""
        return self.replaced({} if self._average is None else self._average.values)

    @contextmanager
    def replaced(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """A context in which the model has these weights; afterwards its own, bit for bit."""
        mine = {name: tensor for name, tensor in weights_of(self._model).items() if name in weights}
        before = {name: tensor.clone() for name, tensor in mine.items()}
        put(mine, weights)
        try:
            with self._ranks.whole(self._loss):
                yield
        finally:
            put(mine, before)

    def finite(self) -> list[str]:
        """The names of the tensors that contain NaN or infinity; they are never saved."""
        named = {f"{part}.{name}": tensor for part, all_ in self.tensors().items() for name, tensor in all_.items()}
        floats = {name: tensor for name, tensor in named.items() if tensor.is_floating_point() and tensor.numel()}
        flags = torch.stack([all_finite(plain(tensor)) for tensor in floats.values()])
        return [name for name, fine in zip(floats, flags.tolist(), strict=True) if not fine]


class Update(WeightUpdate):
    """Gradient descent by batches."""

    def __init__(self, task: Batcher, model: nn.Module, config: TrainingConfig, ranks: Ranks, device: Device) -> None:
        self._task, self._config = task, config
        loss = LossOf(model, device)
        many_shapes = config.compile and not task.has_one_shape(config.batching)
        used = CompiledLoss(loss, task, dynamic=many_shapes) if config.compile else loss
        super().__init__(model, ranks.wrap(used), ranks, device)
        # After wrapping, which may shard the weights. Processes exchange dense gradients; compiled code has them too.
        self._optimizer = build_optimizer(config, model, sparse=ranks.count == 1 and not config.compile)
        self._average = Average(model, config.ema) if config.ema else None
        self._scale = LossScale(device.torch) if device.precision == "fp16" else None
        self._carried: Any = None
        self._tallies = Tallies(config.clip_norm, ranks, device.torch)

    def step(
        self, batch: AnyBatch | None, *, carried: bool, run_state: TrainingState, lr: float, stop: bool = False
    ) -> None:
        """Take one step; the weights do not change if the loss or gradient is not finite.

        When memory runs out, `run_state.micro_batches` doubles, and the step is repeated.
        """
        state = self._carried if carried else None
        while (summed := self._gradients(batch, state, run_state)) is None:
            self._halve(batch, run_state)
        set_lr(self._optimizer, lr)
        seen = self._change(summed)
        self._carried = self._kept(seen.hold, state, summed.state)
        self._count(seen.together(), batch, run_state, stop)

    def _count(self, seen: Tensor, batch: AnyBatch | None, run_state: TrainingState, stop: bool) -> None:
        """Add a step [4] to the statistics, and let the moving average follow it."""
        self._tallies.add(seen, (0, 0) if batch is None else elements_of(batch), stop)
        if self._average is not None:
            self._average.follow(run_state.step, seen[Seen._fields.index("hold")])

    def read(self) -> Tally:
        """The statistics since the last call: the only place where the host waits for the device."""
        scale, grown = (0.0, 0) if self._scale is None else self._scale.read()
        return self._tallies.read()._replace(scale=scale, grown=grown)

    def tensors(self) -> dict[str, Tensors]:
        """Weights and moments; the moving average and the carried state if there are any."""
        named = {"model": weights_of(self._model), "optimizer": moments_of(self._optimizer, self._model)}
        if self._average is not None:
            named["ema"] = self._average.values
        if self._carried is not None:
            named["carried"] = {f"{number:04}": leaf for number, leaf in enumerate(leaves_of(self._carried))}
        return named

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], run_state: TrainingState) -> None:
        for part, mine in self.tensors().items():
            if part != "carried":
                copy_all(part, mine, tensors.get(part, {}))
        carried = [leaf.to(self._device.torch) for _, leaf in sorted(tensors.get("carried", {}).items())]
        self._carried, rest = None, iter(carried)
        if carried:  # in its original structure
            like = self._model.initial_state(len(carried[0]))  # type: ignore[operator]
            self._carried = map_state(lambda _: next(rest), like)
        self._tallies.load(run_state.not_finite)
        if self._scale is not None:
            self._scale.load(run_state.loss_scale, run_state.scale_steps)

    def _gradients(self, batch: AnyBatch | None, state: Any, run_state: TrainingState) -> _Summed | None:
        """The sums over the micro-batches; gradients are in the weights. None if memory ran out."""
        self._optimizer.zero_grad(set_to_none=True)
        try:
            return self._backward(batch, state, run_state)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
        return None  # outside the except block: the traceback would keep the tensors of the step alive

    def _backward(self, batch: AnyBatch | None, state: Any, run_state: TrainingState) -> _Summed:
        device, done = self._device.torch, []
        division = self._task.divided(self._model, run_state.micro_batches)
        pieces = [None] if batch is None else [moved(piece, device) for piece in cut(batch, division.micro_batches)]
        parts = [state] if batch is None else cut_state(state, spans(rows_of(batch), division.micro_batches))
        for number, (piece, part) in enumerate(zip(pieces, parts, strict=True)):
            apart = nullcontext() if number + 1 == len(pieces) else self._ranks.apart(self._loss)
            with apart, drawing(run_state.seed, run_state.step, number, self._ranks.rank, device):
                done.append(self._passes(division.task, piece, part))
        totals, weights, states = zip(*done, strict=True)
        return _Summed(sum(totals[1:], totals[0]), sum(weights[1:], weights[0]), join_states(states))

    def _passes(self, task: Batcher, batch: AnyBatch | None, state: Any) -> _Summed:
        """The forward and backward pass of a micro-batch."""
        total, weight, after = self._loss(task, batch, state)
        factor = self._factor()
        (total if factor is None else total * factor).backward()
        return _Summed(total.detach(), weight, after)

    def _change(self, summed: _Summed) -> Seen:
        """Update the weights, unless the loss or gradient is not finite."""
        loss = self._ranks.sum(torch.stack([summed.total, summed.weight]))
        total, weight = loss.unbind()
        norm, scale = plain(get_total_norm(gradients_of(self._optimizer))), self._factor()
        if scale is not None:
            norm = norm / scale
        hold = self._tallies.hold(loss, norm)
        # Divide to the mean, then clip: norm / weight > clip means norm / clip > weight.
        divisor = torch.maximum(weight, norm / self._config.clip_norm) if self._config.clip_norm else weight
        divisor = divisor.clamp(min=TINY) if scale is None else divisor.clamp(min=TINY) * scale
        apply(self._optimizer, divisor, hold)
        self._tallies.follow(self._errs(hold))
        return Seen(total, weight, norm, hold)

    def _errs(self, hold: Tensor) -> Tensor:
        """1 if a skipped step is an error, and not part of the search for the fp16 loss scale."""
        if self._scale is None:
            return hold
        errs = hold * (1 - self._scale.searching())
        self._scale.follow(hold)
        return errs

    def _factor(self) -> Tensor | None:
        """The factor of the loss before the backward pass, in fp16: without it small gradients would vanish.

        The scale is for a mean loss, the same on all ranks; so it is divided by about the number of elements of a step.
        """
        if self._scale is None:
            return None
        feed = self._config.batching
        return self._scale.value / (
            feed.batch_tokens if isinstance(feed, ByLengthConfig) else feed.batch_rows * feed.row_length
        )

    def _kept(self, hold: Tensor, before: Any, after: Any) -> Any:
        """The carried state: the one after the step, or the one before it if the step was skipped."""
        if after is None or after is before:
            return after
        if before is None:  # the initial state of as many rows
            before = self._model.initial_state(count_rows(after))  # type: ignore[operator]
        old, new = leaves_of(before), leaves_of(after)
        if all(one.shape == other.shape for one, other in zip(old, new, strict=True)):
            return merge_rows(hold.bool().expand(len(new[0])), before, after)
        return before if bool(hold) else after  # states that grow cannot be selected on the device

    def _halve(self, batch: AnyBatch | None, run_state: TrainingState) -> None:
        """Halve the size of micro-batches.

        OutOfMemoryError if there is nothing left to halve; HalvedError with several ranks, which must restart together.
        """
        self._optimizer.zero_grad(set_to_none=True)
        release(self._device.torch)
        doubled, rows = run_state.micro_batches * 2, 1 if batch is None else rows_of(batch)
        if run_state.micro_batches >= rows:
            raise OutOfMemoryError(
                f"out of memory in step {run_state.step + 1}, with one row at a time",
                fix="use a smaller --size, a smaller --max-length, or --precision bf16",
            )
        if self._ranks.count > 1:  # the others are in the middle of the same step and cannot repeat it
            problem = f"out of memory in step {run_state.step + 1} on rank {self._ranks.rank}"
            raise HalvedError(problem, micro_batches=doubled)
        run_state.micro_batches = doubled
