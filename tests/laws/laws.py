"""The laws that every sequence layer obeys, as functions that fail when one is broken.

Each takes a module (and a source of chance) and knows nothing about families.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from laws.subjects import VOCABULARY, WIDTH, Subject
from seqloom.errors import DataError
from seqloom.nn.mixers.contract import ConditionedMixer
from seqloom.nn.ops.kernels import plainly
from seqloom.nn.types import NO_NODE, Padded, map_state, select_rows
from tolerances import assert_equal_up_to_rounding, largest

Law = Callable[[Subject, torch.dtype, int], None]
GARBAGE = 10_000.0  # in the padding


class Trial:
    """One module with one ragged batch for it, drawn from a seed."""

    def __init__(self, subject: Subject, dtype: torch.dtype, seed: int, *, packed: bool = False) -> None:
        self.subject, self.dtype = subject, dtype
        self.chance = random.Random(seed)
        self.generator = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
        self.module = subject.build(dtype, seed)
        self.conditioned = isinstance(self.module, ConditionedMixer)
        alone = self.conditioned or subject.edges  # never packed
        self.x = self.draw(self.chance.randint(3, 4), self.chance.randint(4, 8), packed=packed and not alone)
        self.memory = self.draw(len(self.x.lengths), 5, source=True) if self.conditioned else None

    def values(self, *shape: int, source: bool = False) -> Tensor:
        tokens = self.subject.source_tokens if source else self.subject.tokens
        if tokens:
            return torch.randint(0, VOCABULARY, shape, generator=self.generator)
        return torch.randn(*shape, WIDTH, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def draw(self, rows: int, time: int, *, packed: bool = False, source: bool = False) -> Padded:
        """A ragged batch: a full row, one in between, an empty one, any others; sources have no empty row."""
        least = 1 if source else 0
        lengths = [time, self.chance.randint(1, time - 1), least, self.chance.randint(least, time)][:rows]
        segments = None
        if packed:
            starts = (torch.rand(rows, time, generator=self.generator) < 0.4).long()
            segments = starts.cumsum(dim=1) % 2  # any numbers will do, as long as they change
        edges = self.drawn_edges(lengths) if self.subject.edges else None
        return Padded.of(self.values(rows, time, source=source), torch.tensor(lengths), segments, edges=edges)

    def drawn_edges(self, lengths: list[int]) -> Tensor:
        """[B,E,2] some edges of each row, one of them twice, in one direction or in both."""
        graphs = [[self.chance.choices(range(length), k=2) for _ in range(length)] for length in lengths]
        most = 1 + max(map(len, graphs))
        return torch.tensor([[*graph, *graph[:1], *[[NO_NODE] * 2] * most][:most] for graph in graphs])

    def whole(self, x: Padded, memory: Padded | None = None) -> Padded:
        return self.module(x, memory) if self.conditioned else self.module(x)

    def start(self, rows: int, memory: Padded | None) -> Any:
        return self.module.initial_state(memory if self.conditioned else rows)

    def measure(self, run: Callable[[Padded, Padded | None], list[Tensor]]) -> list[tuple[str, Tensor]]:
        """Named results of `run`: its outputs, and the gradients of a fixed mixture of them for inputs and weights."""
        x, memory = self.leaf(self.x), None if self.memory is None else self.leaf(self.memory)
        self.module.zero_grad()
        outputs = run(x, memory)
        flat = torch.cat([output.flatten() for output in outputs])
        probe = torch.randn(
            len(flat), generator=torch.Generator(device=flat.device).manual_seed(1), dtype=torch.float64
        ).to(flat.dtype)
        if flat.requires_grad:
            (flat * probe).sum().backward()
        named = [("output", flat.detach())]
        named += [("input gradient", leaf.values.grad) for leaf in (x, memory) if leaf is not None]
        named += [(f"gradient of {name}", weight.grad) for name, weight in self.module.named_parameters()]
        return [(name, value) for name, value in named if value is not None]

    def leaf(self, x: Padded) -> Padded:
        floating = x.values.is_floating_point()
        return x._replace(values=x.values.clone().requires_grad_()) if floating else x

    def same(self, found: list[tuple[str, Tensor]], expected: list[tuple[str, Tensor]], claim: str) -> None:
        assert [name for name, _ in found] == [name for name, _ in expected], claim
        floor = largest([value for name, value in expected if name != "output"]) / 4
        for (name, one), (_, other) in zip(found, expected, strict=True):
            assert_equal_up_to_rounding(one, other, f"{claim}: {name}", floor=0.0 if name == "output" else floor)


def _rows(y: Padded) -> list[Tensor]:
    return [y.values[row, : int(length)] for row, length in enumerate(y.lengths)]


def any_cutting_into_blocks_gives_the_same(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Rows advance by different amounts, 0 included; outputs and gradients equal those of the whole sequence."""
    for packed in (False, True):
        _cutting_gives_the_same(Trial(subject, dtype, seed, packed=packed), f"step in blocks, packed={packed}")


def _cutting_gives_the_same(trial: Trial, claim: str) -> None:
    cuts = [
        sorted([0, *(trial.chance.randint(0, length) for _ in range(3)), length]) for length in trial.x.lengths.tolist()
    ]

    def stepped(x: Padded, memory: Padded | None) -> list[Tensor]:
        state = trial.start(len(x.lengths), memory)
        outputs: list[list[Tensor]] = [[] for _ in cuts]
        for number in range(4):
            y, state = trial.module.step(_block(x, [cut[number : number + 2] for cut in cuts]), state)
            for row, piece in zip(outputs, _rows(y), strict=True):
                row.append(piece)
        return [torch.cat(pieces) for pieces in outputs]

    whole = trial.measure(lambda x, memory: _rows(trial.whole(x, memory)))
    trial.same(trial.measure(stepped), whole, claim)


def _block(x: Padded, ranges: list[list[int]]) -> Padded:
    """Columns start..stop of each row, moved to the left."""
    lengths = torch.tensor([stop - start for start, stop in ranges])
    time = int(lengths.max())
    columns = torch.tensor([start for start, _ in ranges])[:, None] + torch.arange(time)
    columns = columns.clamp(max=x.values.shape[1] - 1)
    rows = torch.arange(len(ranges))[:, None]
    segments = None if x.segments is None else x.segments[rows, columns]
    return Padded.of(x.values[rows, columns], lengths, segments)


def the_future_never_changes_the_past(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Other elements from t on leave every output before t as it was."""
    trial = Trial(subject, dtype, seed)
    time = trial.x.values.shape[1]
    before = trial.whole(trial.x, trial.memory)
    for cut in range(time):
        values = trial.x.values.clone()
        values[:, cut:] = trial.values(len(values), time - cut)
        after = trial.whole(trial.x.with_values(values), trial.memory)
        assert_equal_up_to_rounding(after.values[:, :cut], before.values[:, :cut], f"the past of element {cut}")


def the_shape_is_kept(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """As many elements come out as went in, of the type of the weights; vectors keep their width."""
    trial = Trial(subject, dtype, seed, packed=True)
    y = trial.whole(trial.x, trial.memory)
    assert torch.equal(y.lengths, trial.x.lengths), "other lengths"
    assert y.segments is trial.x.segments, "other documents"
    assert y.values.dtype == dtype, f"{y.values.dtype} instead of {dtype}"
    expected = trial.x.values.shape if subject.keeps_width else (*trial.x.values.shape[:2], y.values.shape[-1])
    assert y.values.shape == expected, f"shape {list(y.values.shape)} instead of {list(expected)}"


def padding_never_matters(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Large finite garbage behind the constructor's back changes neither outputs nor gradients, and stays outside."""
    for packed in (False, True):
        trial = Trial(subject, dtype, seed, packed=packed)
        clean = trial.measure(lambda x, memory, trial=trial: _rows(trial.whole(x, memory)))
        dirty = trial.measure(lambda x, memory, trial=trial: _rows(trial.whole(_soiled(x), _soiled(memory))))
        trial.same(dirty, clean, f"padding, packed={packed}")
        y = trial.whole(_soiled(trial.x), _soiled(trial.memory))
        assert bool((y.values[~y.valid] == 0).all()), "what comes out of the padding is not zero"
        if subject.causal:
            _steps_past_padding(trial)


def padding_is_never_read(
    subject: Subject,
    read: Callable[[Any, Padded], list[Tensor]],
    dtype: torch.dtype,
    garbage: Sequence[float] = (GARBAGE,),
) -> None:
    """The same law for what makes something else of a sequence: a pooler, or a head with its losses."""
    for packed in (False, True):
        trial = Trial(subject, dtype, 3, packed=packed)
        clean = trial.measure(lambda x, _, trial=trial: read(trial.module, x))
        for number in garbage:
            dirty = trial.measure(lambda x, _, trial=trial, number=number: read(trial.module, _soiled(x, number)))
            trial.same(dirty, clean, f"{number} in the padding, packed={packed}")
            soiled = _soiled(trial.x, number)
            values = soiled.values.requires_grad_()
            sum(one.sum() for one in read(trial.module, soiled) if one.requires_grad).backward()
            assert not values.grad[~soiled.valid].any(), "the padding has a gradient"


def _steps_past_padding(trial: Trial) -> None:
    """Garbage in the padding of one step changes neither its outputs nor those of the next."""
    batch = len(trial.x.lengths)
    further = Padded.of(trial.values(batch, 2))
    outputs = []
    for block in (trial.x, _soiled(trial.x)):
        first, state = trial.module.step(block, trial.start(batch, trial.memory))
        outputs.append([*_rows(first), *_rows(trial.module.step(further, state)[0])])
    for clean, dirty in zip(*outputs, strict=True):
        assert_equal_up_to_rounding(dirty, clean, "a step past padding")


def _soiled(x: Padded | None, garbage: float = GARBAGE) -> Padded | None:
    """The batch with two more columns of padding and garbage in all of it."""
    if x is None:
        return None
    values = torch.cat([x.values, x.values[:, :2]], dim=1)
    segments = None if x.segments is None else torch.cat([x.segments, x.segments[:, :2] + 100], dim=1)
    wider = Padded.of(values, x.lengths, segments, edges=x.edges)
    valid = wider.valid.view(*wider.valid.shape, *(1,) * (values.ndim - 2))
    return wider._replace(values=torch.where(valid, wider.values, torch.full_like(wider.values, garbage)))


def neighbors_never_matter(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """A row alone, without its batch mates and their padding, gives what it gave among them."""
    trial = Trial(subject, dtype, seed)
    together = _rows(trial.whole(trial.x, trial.memory))
    for row, expected in enumerate(together):
        length = int(trial.x.lengths[row])
        edges = None if trial.x.edges is None else trial.x.edges[row : row + 1]
        alone = Padded.of(trial.x.values[row : row + 1, :length], edges=edges)
        memory = None
        if trial.memory is not None:
            memory = Padded.of(trial.memory.values[row : row + 1, : int(trial.memory.lengths[row])])
        assert_equal_up_to_rounding(trial.whole(alone, memory).values[0], expected, f"row {row} alone")


def packing_never_matters(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Documents packed into shared rows give what they give in rows of their own, in value and gradient.

    Graphs are not packed: who asks for it is refused.
    """
    trial = Trial(subject, dtype, seed)
    if subject.edges:
        with pytest.raises(DataError, match="several graphs cannot share one row"):
            trial.whole(trial.x._replace(segments=torch.zeros(trial.x.values.shape[:2], dtype=torch.int64)))
        return
    trial.x = trial.draw(4, 4)._replace(full=False)
    trial.x = trial.x._replace(lengths=trial.x.lengths.clamp(min=1)).with_values(trial.x.values)
    if trial.conditioned:
        trial.memory = trial.draw(4, 3, source=True)

    def packed(x: Padded, memory: Padded | None) -> list[Tensor]:
        y = trial.whole(_packed(x), None if memory is None else _packed(memory))
        pieces = [_rows(y)[row].split(x.lengths[2 * row : 2 * row + 2].tolist()) for row in range(2)]
        return [piece for row in pieces for piece in row]

    apart = trial.measure(lambda x, memory: _rows(trial.whole(x, memory)))
    trial.same(trial.measure(packed), apart, "packing")


def _packed(x: Padded) -> Padded:
    """Rows 0 and 1 in one row, rows 2 and 3 in another."""
    rows, numbers = [], []
    for first in (0, 2):
        parts = [x.values[row, : int(x.lengths[row])] for row in (first, first + 1)]
        rows.append(torch.cat(parts))
        numbers.append(torch.cat([torch.full((len(part),), index) for index, part in enumerate(parts)]))
    stacked = Padded.stack(rows)
    return stacked._replace(segments=Padded.stack(numbers).values)


def step_leaves_its_argument_intact(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """A state can be used twice: the second time gives the same bits as the first."""
    trial = Trial(subject, dtype, seed)
    _, state = trial.module.step(trial.x, trial.start(len(trial.x.lengths), trial.memory))
    kept = map_state(lambda tensor: tensor.detach().clone(), state)
    further = Padded.of(trial.values(len(trial.x.lengths), 3))
    first, _ = trial.module.step(further, state)
    second, _ = trial.module.step(further, state)
    assert torch.equal(first.values, second.values), "the same step twice"
    for one, other in zip(_leaves(kept), _leaves(state), strict=True):
        assert torch.equal(one, other), "the state was changed"


def _leaves(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in _leaves(part)]


def an_empty_row_keeps_its_state(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Rows of length 0 in a step go on later as if the step had not been."""
    trial = Trial(subject, dtype, seed)
    batch = len(trial.x.lengths)
    _, state = trial.module.step(trial.x, trial.start(batch, trial.memory))
    idle = torch.arange(batch) % 2 == 0
    meanwhile = Padded.of(trial.values(batch, 2), torch.where(idle, 0, 2))
    _, moved = trial.module.step(meanwhile, state)
    further = Padded.of(trial.values(batch, 2))
    expected, _ = trial.module.step(further, state)
    found, _ = trial.module.step(further, moved)
    assert_equal_up_to_rounding(found.values[idle], expected.values[idle], "a row that rested")


def selecting_rows_commutes_with_stepping(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Rows of a state, repeated and reordered, go on as those rows would have."""
    trial = Trial(subject, dtype, seed)
    batch = len(trial.x.lengths)
    _, state = trial.module.step(trial.x, trial.start(batch, trial.memory))
    rows = torch.tensor([trial.chance.randrange(batch) for _ in range(batch + 1)])
    further = Padded.of(trial.values(batch, 3))
    expected, _ = trial.module.step(further, state)
    found, _ = trial.module.step(further.select(rows), select_rows(state, rows))
    assert_equal_up_to_rounding(found.values, expected.values[rows], "selected rows")


def saving_and_loading_changes_nothing(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """Weights written as safetensors and read into a fresh module give the same bits."""
    trial = Trial(subject, dtype, seed)
    weights = {name: weight.clone() for name, weight in trial.module.state_dict().items()}  # tied ones are stored twice
    stored = load(save(weights))
    expected = trial.whole(trial.x, trial.memory)
    trial.module = subject.build(dtype, seed + 1)
    trial.module.load_state_dict(stored)
    assert torch.equal(trial.whole(trial.x, trial.memory).values, expected.values), "saved and loaded"


def fast_equals_plain(subject: Subject, dtype: torch.dtype, seed: int) -> None:
    """The operators chosen for speed give what the plain ones give, in value and gradient."""
    trial = Trial(subject, dtype, seed)
    fast = trial.measure(lambda x, memory: _rows(trial.whole(x, memory)))
    with plainly():
        plain = trial.measure(lambda x, memory: _rows(trial.whole(x, memory)))
    trial.same(fast, plain, "fast and plain")


def gradients_are_those_of_the_function(subject: Subject, seed: int) -> None:
    """Finite differences in float64 agree with the backward pass."""
    trial = Trial(subject, torch.float64, seed)
    trial.x = trial.draw(2, 3)
    if trial.conditioned:
        trial.memory = trial.draw(2, 3, source=True)
    given = [trial.x.values] if trial.memory is None else [trial.x.values, trial.memory.values]
    leaves = [value.clone().requires_grad_() for value in given]

    def run(*values: Tensor) -> Tensor:
        memory = None if trial.memory is None else trial.memory.with_values(values[1])
        return trial.whole(trial.x.with_values(values[0]), memory).values

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True, eps=1e-6, atol=1e-6)


def nodes_may_be_numbered_in_any_way(module: nn.Module, seed: int) -> None:
    """Nodes in another order, with edges that follow them, give the same outputs in that order."""
    generator = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
    values = torch.randn(2, 6, WIDTH, generator=generator, dtype=torch.float64)
    edges = torch.randint(6, (2, 7, 2), generator=generator)
    edges[1, 4:] = NO_NODE
    order = torch.randperm(6, generator=generator)
    moved = torch.where(edges == NO_NODE, NO_NODE, order.argsort()[edges])
    expected = module(Padded.of(values, edges=edges)).values[:, order]
    assert_equal_up_to_rounding(module(Padded.of(values[:, order], edges=moved)).values, expected, "another numbering")


def order_is_not_seen(module: nn.Module, seed: int) -> None:
    """Elements in another order give the same outputs in that order."""
    generator = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
    values = torch.randn(2, 6, WIDTH, generator=generator, dtype=torch.float64)
    order = torch.randperm(6, generator=generator)
    expected = module(Padded.of(values)).values[:, order]
    assert_equal_up_to_rounding(module(Padded.of(values[:, order])).values, expected, "another order")


SEQUENCE_LAWS: list[Law] = [
    the_shape_is_kept,
    padding_never_matters,
    neighbors_never_matter,
    packing_never_matters,
    saving_and_loading_changes_nothing,
    fast_equals_plain,
]
CAUSAL_LAWS: list[Law] = [
    any_cutting_into_blocks_gives_the_same,
    the_future_never_changes_the_past,
    step_leaves_its_argument_intact,
    an_empty_row_keeps_its_state,
    selecting_rows_commutes_with_stepping,
]
