"""One step of training: from a batch to changed weights, for every family and task.

    batch ─▶ pieces ─▶ loss ─▶ backward ─┐ summed over pieces and ranks
                                         ▼
                 gradient = sum of d total / sum of weights ─▶ clip ─▶ optimiser ─▶ average
                                         │
                                         └─ not finite: weights, moments, average and carried state stay as they are

The loss is divided once, by the weight (real symbols, rows) of the whole step: however a batch is cut, the gradient is
that of the whole batch. Nothing here asks the device for a number until `read`; whether a step counts is decided there,
by a tensor that is 0 or 1.
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
from torch.torch_version import TorchVersion

from seqloom.config.training import ByLengthConfig, TrainingConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Batch, Padded, Spelled, Subwords, count_rows, map_state, merge_rows
from seqloom.tasks.task import Feeder
from seqloom.training.checkpoint import Average, copy_all, leaves_of, plain, put, weights_of
from seqloom.training.devices import Device, HalvedError, OutOfMemoryError, Ranks, ran_out, release
from seqloom.training.optimizers import apply, build_optimiser, gradients_of, moments_of
from seqloom.training.state import TrainingState

# A batch cut by rows into pieces that fit into memory, moved to a device, and counted.
#
#     1 x 64 rows  =  4 x 16 rows  =  16 x 4 rows        the same sum of losses, so the same gradient
#
# Whatever a batch is made of - padded symbols, pairs, pictures - every tensor in it has the rows on axis 0. The same is
# true of a state that is carried from step to step, so both are cut and joined by the same few lines.

AnyBatch = Batch[Any, Any]
Nest = TypeVar("Nest")


def cut(batch: AnyBatch, pieces: int) -> list[AnyBatch]:
    """The batch in so many pieces, or in as many as it has rows: in order, their sizes differing by one at most.

    >>> whole = Batch(Padded.of(torch.arange(10).view(5, 2)), torch.arange(5), ids=tuple("abcde"))
    >>> [(piece.ids, piece.targets.tolist()) for piece in cut(whole, 2)]
    [(('a', 'b', 'c'), [0, 1, 2]), (('d', 'e'), [3, 4])]
    """
    rows = rows_of(batch)
    if pieces == 1 or rows == 1:
        return [batch]
    whole_ids = len(batch.ids) == rows  # packed rows hold several documents each: their ids cannot be dealt out

    def rows_from(start: int, stop: int) -> AnyBatch:
        inputs = _mapped(lambda tensor: tensor[start:stop], batch.inputs)
        targets = _mapped(lambda tensor: tensor[start:stop], batch.targets)
        return Batch(inputs, targets, batch.ids[start:stop] if whole_ids else ())

    return [rows_from(start, stop) for start, stop in spans(rows, pieces)]


def spans(rows: int, pieces: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends; never an empty one.

    >>> spans(5, 2), spans(2, 4)
    ([(0, 3), (3, 5)], [(0, 1), (1, 2)])
    """
    count = min(rows, pieces)
    size, larger = divmod(rows, count)
    edges = [number * size + min(number, larger) for number in range(count + 1)]
    return list(pairwise(edges))


def rows_of(batch: AnyBatch) -> int:
    """How many rows a batch has."""
    first = batch.inputs
    while not isinstance(first, Tensor):
        first = first[0]
    return len(first)


def cut_state(state: Any, pieces: list[tuple[int, int]]) -> list[Any]:
    """The state of the rows of each piece; None for each where there is no state."""
    if state is None or len(pieces) == 1:
        return [state] * len(pieces)
    return [map_state(lambda tensor: tensor[start:stop], state) for start, stop in pieces]  # noqa: B023


def join_states(states: Sequence[Any]) -> Any:
    """The state of all rows, from the states of the pieces."""
    first = states[0]
    if first is None or len(states) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    joined = [join_states(parts) for parts in zip(*states, strict=True)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def moved(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """The batch on a device; to a GPU it travels from pinned memory while the host goes on."""
    if device.type == "cpu":
        return batch
    pinned = device.type == "cuda"

    def move(tensor: Tensor) -> Tensor:
        if pinned and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=pinned)

    return batch._replace(inputs=_mapped(move, batch.inputs), targets=_mapped(move, batch.targets))


def elements_of(batch: AnyBatch) -> tuple[int, int]:
    """How many elements the inputs hold with padding, and without: symbols, steps of vectors, rows of pixels.

    It looks at the numbers of the batch, so it is for batches that are still on the host.

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
    if isinstance(inputs, Subwords | Spelled):  # what is read are the pieces of the words, or the words
        return _counted(inputs[0])
    sides = [_counted(side) for side in inputs]
    return sum(elements for elements, _ in sides), sum(symbols for _, symbols in sides)


def _mapped(function: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """The same nest of tuples with a function applied to the tensors; whatever else is in it stays."""
    if isinstance(nest, Tensor):
        return function(nest)  # type: ignore[return-value]  # a Tensor maps to a Tensor
    if not isinstance(nest, tuple):
        return nest
    parts = [_mapped(function, part) for part in nest]
    return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)


# What happened in the steps since the last look: four numbers of each stay on the device until somebody asks.
#
# Whether a step counts is decided there too, without asking anybody: it does not if something in it was not finite, or
# if three steps in a row were not - then nothing changes any more, however long it takes until the host looks.

LATCH = 3  # steps in a row that were not finite: nothing changes after them
HELD = 256  # steps whose numbers are held one by one; then they are put together, on the device


class Tally(NamedTuple):
    """What happened since the last look, added up over steps, pieces and ranks; skipped steps only count as such."""

    steps: int
    loss: float  # summed; `loss / weight` is the mean
    weight: float
    norm: float  # of gradients before clipping, summed over steps
    largest: float
    clipped: int
    skipped: int
    not_finite: int  # steps in a row, up to now; stays at 3
    elements: int  # with padding
    symbols: int  # without
    stop: bool  # some rank was asked to stop
    scale: float = 0.0  # of the losses in fp16; 0: not scaled
    grown: int = 0


class Seen(NamedTuple):
    """One step as numbers on the device, all of shape []."""

    total: Tensor
    weight: Tensor
    norm: Tensor  # of the gradient of the total
    hold: Tensor  # 1 if the step does not count


class Tallies:
    """The steps since the last look."""

    def __init__(self, clip: float, ranks: Ranks, device: torch.device) -> None:
        self.clip, self.ranks, self.device = clip, ranks, device
        self.in_a_row = torch.zeros((), device=device)
        self.seen: list[Seen] = []
        self.together: list[Tensor] = []  # each [steps, 4]
        self.elements, self.symbols, self.stop = 0, 0, False

    def load(self, not_finite: int) -> None:
        """Set how many steps in a row were not finite up to now."""
        self.in_a_row.fill_(float(not_finite))

    def hold(self, loss: Tensor, norm: Tensor) -> Tensor:
        """1 if a step must change nothing: its loss [2] or norm is not finite, or three steps in a row were not."""
        left = (loss.sum() + norm) * 0  # 0, or NaN: cheaper than isfinite
        return ((left != 0) | (self.in_a_row >= LATCH)).float()

    def add(self, seen: Seen, errs: Tensor, counts: tuple[int, int], stop: bool) -> None:
        """Note a step. `errs` is 1 if it was held back, and not only because fp16 looks for its scale."""
        self.in_a_row.add_(1).mul_(errs)
        self.seen.append(seen)
        if len(self.seen) == HELD:
            self._put_together()
        elements, symbols = counts
        self.elements, self.symbols, self.stop = self.elements + elements, self.symbols + symbols, self.stop or stop

    def read(self) -> Tally:
        """The sums over all steps and ranks; every rank must ask."""
        self._put_together()
        elements, symbols, stop = self._counts()
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
            symbols=symbols,
            stop=stop > 0,
        )
        self.together, self.elements, self.symbols, self.stop = [], 0, 0, False
        return tally

    def _counts(self) -> list[int]:
        """Elements, symbols, and wishes to stop, over all ranks."""
        counts = [self.elements, self.symbols, int(self.stop)]
        return counts if self.ranks.count == 1 else self.ranks.sum(torch.tensor(counts)).tolist()

    def _put_together(self) -> None:
        if self.seen:
            self.together.append(
                torch.stack([number for one in self.seen for number in one]).view(-1, len(Seen._fields))
            )
            self.seen = []


def _mean(norm: float, weight: float) -> float:
    """The norm of the mean's gradient, rounded to 24 bits as the other numbers are.

    A float64 holds the sum of very many such numbers exactly, so what they come to does not depend on how often
    somebody looked: a run that a signal stops between two reports tells of the same steps the same.
    """
    mean = norm / weight if weight else 0.0
    split = mean * (2**29 + 1)  # Dekker 1971: the upper 24 of 53 bits
    return split - (split - mean)


# Loss scaling for fp16: small gradients vanish there below 6e-8, so losses are multiplied before the backward pass.
#
#     a step with something not finite     scale / 2, the step is skipped       (Micikevicius et al. 2018)
#     2,000 good steps in a row            scale * 2
#
# While the scale is above 1 such a step is how the scale is found, and no error. Everything is kept on the device.

START = 65_536.0
PATIENCE = 2_000  # good steps before the scale grows


class LossScale:
    """What losses are multiplied by, and for how many steps it has been so."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), START, device=device)
        self.grown = torch.zeros((), device=device)

    def load(self, value: float, grown: int) -> None:
        """Set the scale to that of a checkpoint, or to the first one where there was none."""
        self.value.fill_(value or START)
        self.grown.fill_(float(grown))

    def read(self) -> tuple[float, int]:
        """The scale and how long it has been so, on the host."""
        return self.value.item(), int(self.grown)

    def searching(self) -> Tensor:
        """1 while a step that is not finite only means that the scale is too large, else 0."""
        return (self.value > 1).float()

    def follow(self, bad: Tensor) -> None:
        """Make the scale smaller after a bad step, larger after many good ones."""
        self.grown.add_(1).mul_(1 - bad)
        grows = self.grown >= PATIENCE
        larger = torch.where(grows, self.value * 2, self.value)
        self.value = torch.where(bad > 0, (self.value / 2).clamp(min=1), larger)
        self.grown.mul_(~grows)


# What a step draws at random (dropout) as a function of (seed, step, piece, rank), and of nothing else.
#
# Modules draw from torch's global generators. Inside `drawing` these are seeded from the four numbers; afterwards they
# are what they were, so a caller's own draws are neither disturbed by training nor disturb it. No state of a generator
# is ever saved: a run that goes on from step 20 draws at step 21 what the run that was not stopped draws there.


def seed_of(seed: int, step: int, piece: int, rank: int) -> int:
    """A number of 63 bits in which every bit of the four counts."""
    digest = hashlib.blake2b(struct.pack("<4q", seed, step, piece, rank), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def drawing(seed: int, step: int, piece: int, rank: int, device: torch.device) -> Iterator[None]:
    """A block in which the generators of the host and of the device start from these four numbers."""
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
    """The global generators that modules on the device draw from; none of their states lies on the device itself."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[index]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]


COMPILER = "inductor"
COMPILES_FROM = "2.13"
TINY = torch.finfo(torch.float32).tiny  # what has no weight has no loss either: 0 by anything is 0

Tensors = dict[str, Tensor]


class LossOf(nn.Module):
    """The loss of a task as a module, so that whatever wraps modules (DDP, sharding, compilation) can wrap it."""

    def __init__(self, model: nn.Module, device: Device) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, task: Feeder, batch: AnyBatch | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """The summed loss, its weight, and the state to go on from, cut off from the gradient.

        A rank that has nothing to read takes part with a loss of zero over all weights.
        """
        if batch is None:
            total = torch.stack([weight.sum() * 0 for weight in self.model.parameters() if weight.requires_grad]).sum()
            return total, total.detach(), state
        with self.device.mixed():
            loss, after = task.loss(self.model, batch, state)
        return loss.total, loss.weight.detach(), None if after is None else map_state(Tensor.detach, after)


class _Summed(NamedTuple):
    """What the pieces of a step come to."""

    total: Tensor
    weight: Tensor
    state: Any


class WeightUpdate(ABC):
    """What changes the weights of a run, and keeps all its tensors: by batches (`Update`), or solving (`Solver`)."""

    _average: Average | None = None

    def __init__(self, model: nn.Module, loss: nn.Module, ranks: Ranks, device: Device) -> None:
        self._model, self._loss, self._ranks, self._device = model, loss, ranks, device
        model.train()

    @abstractmethod
    def step(
        self, batch: AnyBatch | None, *, carried: bool, standing: TrainingState, rate: float, stop: bool = False
    ) -> None:
        """Take one step."""

    @abstractmethod
    def read(self) -> Tally:
        """What happened since the last call."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensors]:
        """All tensors of the run, as they are (not copied): what a checkpoint keeps beside the standing."""

    @abstractmethod
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], standing: TrainingState) -> None:
        """Go on from where the run was when these tensors and this standing were kept."""

    def is_done(self, standing: TrainingState) -> bool:
        """Whether nothing is left to be changed, however long the run may last: never, where steps go by batches."""
        return False

    def shipped(self) -> AbstractContextManager[None]:
        """A block in which the model has the weights that are validated and shipped: the average, or its own."""
        return self.replaced({} if self._average is None else self._average.values)

    @contextmanager
    def replaced(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """A block in which the model has other weights where names are given; afterwards its own, bit for bit."""
        mine = {name: tensor for name, tensor in weights_of(self._model).items() if name in weights}
        before = {name: tensor.clone() for name, tensor in mine.items()}
        put(mine, weights)
        try:
            with self._ranks.whole(self._loss):
                yield
        finally:
            put(mine, before)

    def finite(self) -> list[str]:
        """The names of the tensors that hold something not finite; a checkpoint with one is never written."""
        named = {f"{part}.{name}": tensor for part, all_ in self.tensors().items() for name, tensor in all_.items()}
        floats = {name: tensor for name, tensor in named.items() if tensor.is_floating_point() and tensor.numel()}
        flags = torch.stack([plain(tensor).isfinite().all() for tensor in floats.values()])
        return [name for name, fine in zip(floats, flags.tolist(), strict=True) if not fine]


class Update(WeightUpdate):
    """Steps by batches."""

    def __init__(self, task: Feeder, model: nn.Module, config: TrainingConfig, ranks: Ranks, device: Device) -> None:
        self._task, self._config = task, config
        loss = LossOf(model, device)
        if config.compile:
            if not task.has_one_shape(config.feed):  # each new one would be compiled anew, for minutes
                raise ConfigError(
                    "compile needs batches of one shape, and rows of about one length have another one at nearly every "
                    "step",
                    fix="leave compile out, or feed a language model by streams or packs",
                )
            if TorchVersion(torch.__version__) < COMPILES_FROM:
                raise ConfigError(
                    f"compile needs torch {COMPILES_FROM}, found {torch.__version__}: older ones fail on named tuples",
                    fix="leave compile out, or take a newer torch",
                )
            loss.compile(backend=COMPILER)
        super().__init__(model, ranks.wrap(loss), ranks, device)
        self._optimiser = build_optimiser(config, model)  # after the wrapping, which may shard the weights
        self._average = Average(model, config.average) if config.average else None
        self._scale = LossScale(device.torch) if device.precision == "fp16" else None
        self._carried: Any = None
        self._tallies = Tallies(config.clip, ranks, device.torch)

    def step(
        self, batch: AnyBatch | None, *, carried: bool, standing: TrainingState, rate: float, stop: bool = False
    ) -> None:
        """Change the weights by one step, or not at all if something was not finite.

        When memory runs out, `standing.pieces` doubles, and the step is computed again from the same draws.
        """
        state = self._carried if carried else None
        while (summed := self._gradients(batch, state, standing)) is None:
            self._halve(batch, standing)
        hold = self._change(summed, rate, (0, 0) if batch is None else elements_of(batch), stop)
        if self._average is not None:
            self._average.follow(standing.step, hold)
        self._carried = self._kept(hold, state, summed.state)

    def read(self) -> Tally:
        """What happened since the last call: the only place where the host waits for the device."""
        scale, grown = (0.0, 0) if self._scale is None else self._scale.read()
        return self._tallies.read()._replace(scale=scale, grown=grown)

    def tensors(self) -> dict[str, Tensors]:
        """Weights and moments, the average and the carried state where there are any."""
        named = {"model": weights_of(self._model), "optimiser": moments_of(self._optimiser, self._model)}
        if self._average is not None:
            named["average"] = self._average.values
        if self._carried is not None:
            named["carried"] = {f"{number:04}": leaf for number, leaf in enumerate(leaves_of(self._carried))}
        return named

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], standing: TrainingState) -> None:
        for part, mine in self.tensors().items():
            if part != "carried":
                copy_all(part, mine, tensors.get(part, {}))
        carried = [leaf.to(self._device.torch) for _, leaf in sorted(tensors.get("carried", {}).items())]
        self._carried, rest = None, iter(carried)
        if carried:  # as the state that it was
            like = self._model.initial_state(len(carried[0]))  # type: ignore[operator]
            self._carried = map_state(lambda _: next(rest), like)
        self._tallies.load(standing.not_finite)
        if self._scale is not None:
            self._scale.load(standing.scale, standing.grown)

    def _gradients(self, batch: AnyBatch | None, state: Any, standing: TrainingState) -> _Summed | None:
        """The sums over the pieces, the gradients lying with the weights; None if memory ran out."""
        self._optimiser.zero_grad(set_to_none=True)
        try:
            return self._backward(batch, state, standing)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
        return None  # outside the block: the traceback would keep the tensors of the step alive

    def _backward(self, batch: AnyBatch | None, state: Any, standing: TrainingState) -> _Summed:
        device, done = self._device.torch, []
        division = self._task.divided(self._model, standing.pieces)
        pieces = [None] if batch is None else cut(moved(batch, device), division.pieces)
        parts = [state] if batch is None else cut_state(state, spans(rows_of(batch), division.pieces))
        for number, (piece, part) in enumerate(zip(pieces, parts, strict=True)):
            apart = nullcontext() if number + 1 == len(pieces) else self._ranks.apart(self._loss)
            with apart, drawing(standing.seed, standing.step, number, self._ranks.rank, device):
                total, weight, after = self._loss(division.task, piece, part)
                factor = self._factor()
                (total if factor is None else total * factor).backward()
            done.append(_Summed(total.detach(), weight, after))
        totals, weights, states = zip(*done, strict=True)
        return _Summed(sum(totals[1:], totals[0]), sum(weights[1:], weights[0]), join_states(states))

    def _change(self, summed: _Summed, rate: float, counts: tuple[int, int], stop: bool) -> Tensor:
        """1 if nothing has changed because something was not finite, else 0; the weights have taken their step."""
        loss = self._ranks.sum(torch.stack([summed.total, summed.weight]))
        total, weight = loss.unbind()
        norm, scale = plain(get_total_norm(gradients_of(self._optimiser))), self._factor()
        if scale is not None:
            norm = norm / scale
        hold = self._tallies.hold(loss, norm)
        # To the mean, and on to the norm that is allowed: norm / weight > clip means norm / clip > weight.
        divisor = torch.maximum(weight, norm / self._config.clip) if self._config.clip else weight
        divisor = divisor.clamp(min=TINY) if scale is None else divisor.clamp(min=TINY) * scale
        apply(self._optimiser, rate, divisor, hold)
        self._tallies.add(Seen(total, weight, norm, hold), self._errs(hold), counts, stop)
        return hold

    def _errs(self, hold: Tensor) -> Tensor:
        """1 if a step that was held back is an error, and not a sign that the scale of fp16 is too large."""
        if self._scale is None:
            return hold
        errs = hold * (1 - self._scale.searching())
        self._scale.follow(hold)
        return errs

    def _factor(self) -> Tensor | None:
        """What the loss is multiplied by before the backward pass, in fp16: else small gradients would vanish.

        The scale is that of a mean, the same on all ranks; so it is divided by about how many elements a step has.
        """
        if self._scale is None:
            return None
        feed = self._config.feed
        return self._scale.value / (feed.budget if isinstance(feed, ByLengthConfig) else feed.rows * feed.length)

    def _kept(self, hold: Tensor, before: Any, after: Any) -> Any:
        """The state to go on from: the one after the step, or the one before it where the step did not count."""
        if after is None or after is before:
            return after
        if before is None:  # only causal models carry a state: that of as many rows that have read nothing
            before = self._model.initial_state(count_rows(after))  # type: ignore[operator]
        old, new = leaves_of(before), leaves_of(after)
        if all(one.shape == other.shape for one, other in zip(old, new, strict=True)):
            return merge_rows(hold.bool().expand(len(new[0])), before, after)
        return before if bool(hold) else after  # memories that grow cannot be chosen between on the device

    def _halve(self, batch: AnyBatch | None, standing: TrainingState) -> None:
        """Halve the memory that the next attempt needs.

        OutOfMemoryError if there is nothing left to halve, HalvedError if only all ranks together could try again.
        """
        self._optimiser.zero_grad(set_to_none=True)
        release(self._device.torch)
        pieces, rows = standing.pieces * 2, 1 if batch is None else rows_of(batch)
        if standing.pieces >= rows:
            raise OutOfMemoryError(
                f"memory ran out in step {standing.step + 1} with one row at a time",
                fix="take a smaller model, shorter sequences, a smaller --batch, or --precision bf16",
            )
        if self._ranks.count > 1:  # the others are in the middle of the same step, and cannot go back
            raise HalvedError(f"memory ran out in step {standing.step + 1} on rank {self._ranks.rank}", pieces=pieces)
        standing.pieces = pieces
