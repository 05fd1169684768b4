"""Gates and states of an LSTM or a GRU at each token.

    LSTM   input i    forget f    candidate g    output o    cell c' = f * c + i * g      hidden h' = o * tanh(c')
    GRU    reset r    update z    candidate n                hidden h' = (1 - z) * n + z * h

Fused kernels do not store gates. They are computed again from the inputs and states of the layer, for all tokens at
once. A unit whose forget gate (GRU: update gate) is f keeps a share f of its state and remembers about 1/(1-f) tokens.
A gate below 0.1 or above 0.9 is *saturated* (Karpathy et al. 2015).
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspect.layer_names import chosen_title
from seqloom.inspect.layers import LayerPlace, chosen, heard, is_backward, places, required
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View, block_means
from seqloom.nn.mixers.contract import ConditionedMixer
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.recurrence import Cell, Gates
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import number, share

MEMORY = ("forget", "update")  # the gates that decide how much of the state is kept
KEEPS = {
    "forget": "A forget gate of 1 keeps the old cell state, 0 erases it.",
    "update": "An update gate of 1 keeps the old hidden state, 0 replaces it by the candidate.",
}
STATES = ("cell", "hidden")
SHUT, OPEN = 0.1, 0.9
TABLE_UNITS = 12  # rows of a table that shows numbers
FILLED = 0.9  # of the median norm: from here the state counts as filled
TURNS = 5  # positions that are named
POOLED = 256  # columns of a map of a long text
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # lower bounds of the memory length bins


class Saturation(NamedTuple):
    """The share of a gate, over all units and tokens, that is closed or open."""

    gate: str
    closed: float
    open: float


@dataclass(frozen=True, kw_only=True)
class GatesView(View):
    """The gates and states of one layer and direction, for every token and unit."""

    kind: ClassVar[str] = "gates"
    layer: str
    layer_name: str  # in words, for titles
    backward: bool  # the layer reads from the end; tokens are in text order
    tokens: tuple[str, ...]
    names: tuple[str, ...]  # gates, then states: cell if there is one, hidden
    values: np.ndarray  # [names, tokens, units]
    start: int  # index of the first token shown
    unit: int  # the unit that is drawn separately
    unit_asked: bool = False  # whether the caller chose it; else it is the one that varies most
    gate: str | None = None  # the gate or state that is shown for many units; None: one unit, with all of them
    saturation: tuple[Saturation, ...]
    memory: np.ndarray  # [units] in tokens: 1 / (1 - mean of the forget or update gate)
    largest_changes: tuple[
        int, ...
    ]  # the elements whose reading changes the hidden state most, the largest change first
    burn_in: int = 0  # tokens at the beginning of a long text whose changes do not count

    def of(self, name: str) -> np.ndarray:
        """[tokens, units] the values of one gate or state."""
        if name not in self.names:
            raise ConfigError(f"this layer has no gate or state '{name}'", fix=f"choose from {', '.join(self.names)}")
        found: np.ndarray = self.values[self.names.index(name)]
        return found

    @property
    def _memory_gate(self) -> str:
        return next(name for name in self.names if name in MEMORY)

    @property
    def order(self) -> np.ndarray:
        """The units sorted by memory length, longest first."""
        return np.argsort(-self.memory, kind="stable")

    def figures(self) -> tuple[Figure, ...]:
        short, layer = len(self.tokens) <= SMALL, self.layer_name
        if self.gate is not None:
            return (self._table(self.gate) if short else self._map(self.gate),)
        if short:
            return (self._gates_of_unit(), self._states_of_unit(), self._lengths())
        means = {each.gate: self.of(each.gate).mean(axis=1) for each in self.saturation}
        pinned = {name: self.of(name)[:, self.unit] for name in self.names}
        return (
            self._over_time(f"Mean over units, {layer}", means),
            self._map(self._memory_gate),
            self._over_time(f"Unit {self.unit}, {layer}", pinned),
            self._lengths(),
        )

    def _gates_of_unit(self) -> Matrix:
        """All gates of one unit, and the mean of each gate over all units, in the same columns."""
        gates = [each.gate for each in self.saturation]
        rows = {f"unit {self.unit}: {full_name(name)}": self.of(name)[:, self.unit] for name in gates}
        rows |= {f"mean: {full_name(name)}": self.of(name).mean(axis=1) for name in gates}
        return Matrix(
            title=f"Gates, {self.layer_name}",
            caption=f"{self._unit_text}, and the mean over all units. {KEEPS[self._memory_gate]}",
            values=[row.tolist() for row in rows.values()],
            rows=list(rows),
            columns=self.tokens,
            value_label="gate, from 0 (closed) to 1 (open)",
            span=(0.0, 1.0),
        )

    def _states_of_unit(self) -> Matrix:
        """The candidate and the states of the same unit, in the same columns."""
        rows = {full_name(name): self.of(name)[:, self.unit] for name in ("candidate", *STATES) if name in self.names}
        reach = max(1.0, *(float(np.abs(row).max()) for row in rows.values()))
        return Matrix(
            title=f"Candidate and state, {self.layer_name}",
            caption=f"{self._unit_text}.",
            values=[row.tolist() for row in rows.values()],
            rows=[f"unit {self.unit}: {name}" for name in rows],
            columns=self.tokens,
            value_label="value",
            span=(-reach, reach),
        )

    @property
    def _unit_text(self) -> str:
        most = "" if self.unit_asked else ", whose hidden state varies most"
        return f"Unit {self.unit} of {self.values.shape[2]}{most}"

    def _table(self, name: str) -> Matrix:
        every = self.values.shape[2]
        units = _liveliest(self.of("hidden"), min(TABLE_UNITS, every), self.unit if self.unit_asked else None)
        first = f"Unit {self.unit}, and the {len(units) - 1}" if self.unit_asked else f"The {len(units)}"
        low, high = _span(name, self.of(name))
        return Matrix(
            title=f"{full_name(name).capitalize()}, {self.layer_name}",
            caption=f"{first} of {every} units whose hidden state varies most.{_keeps(name)}",
            values=self.of(name)[:, units].T.tolist(),
            rows=[f"unit {unit}" for unit in units],
            columns=self.tokens,
            value_label=full_name(name),
            span=(low, high),
        )

    def _map(self, name: str) -> HeatMap:
        pooled, width = _pooled(self.of(name)[:, self.order])
        blocks = f" Each column is the mean of {width} tokens." if width > 1 else ""
        return HeatMap(
            title=f"{full_name(name).capitalize()}, {self.layer_name}",
            caption=f"Units sorted by memory length, longest first.{blocks}{_keeps(name)}",
            values=pooled.T.tolist(),
            x=[float(self.start + at * width) for at in range(len(pooled))],
            y=[float(unit) for unit in self.order],
            x_label="token",
            y_label="unit",
            value_label=full_name(name),
            span=_span(name, self.of(name)),
        )

    def _over_time(self, title: str, curves: dict[str, np.ndarray]) -> Line:
        places = [float(self.start + at) for at in range(len(self.tokens))]
        series = [Series(name=full_name(name), x=places, y=curve.tolist()) for name, curve in curves.items()]
        return Line(title=title, series=series, x_label="token")

    def _lengths(self) -> Bars:
        counts = np.histogram(self.memory, bins=[*LENGTHS, np.inf])[0]
        ends = [f"{low} to {high}" for low, high in itertools.pairwise(LENGTHS)] + [f"{LENGTHS[-1]} or more"]
        last = max(int(np.flatnonzero(counts)[-1]), 3)
        return Bars(
            title="Memory length of the units, in tokens",
            caption=f"1 / (1 - mean of the {full_name(self._memory_gate)}).",
            labels=ends[: last + 1],
            values=[float(count) for count in counts[: last + 1]],
            x_label="units",
        )

    def _sentences(self) -> tuple[str, ...]:
        sentences = [
            f"{each.gate.capitalize()} gate: {share(each.closed)} below {SHUT}, {share(each.open)} above {OPEN}."
            for each in self.saturation
        ]
        if len(self.tokens) > SMALL:
            places = ", ".join(f"“{self.tokens[at - self.start]}” ({at})" for at in self.largest_changes)
            after = f" after the first {self.burn_in} tokens" if self.burn_in else ""
            part = "use window=(start, stop) to see a part of the text"
            sentences.append(f"The hidden state changes most at {places}{after}; {part}.")
        long = self.order[0]
        reads = " This layer reads the text backward." if self.backward else ""
        return (
            f"Median memory length {number(np.median(self.memory))} tokens; "
            f"unit {long} has the longest, {number(self.memory[long])}.{reads}",
            *sentences,
        )

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """The numbers; for a long text, means of blocks of tokens and the exact values of the drawn unit."""
        known = super().json_values(full=full)
        if full or len(self.tokens) <= MEDIUM:
            return known
        pooled = [_pooled(self.of(name)) for name in self.names]
        small = {"values": np.stack([values for values, _ in pooled]), "block_size": pooled[0][1]}
        return {**known, **small, "unit_values": self.values[:, :, self.unit]}


def gates(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    side: str | None = None,
    gate: str | None = None,
    unit: int | None = None,
    window: tuple[int, int] | None = None,
) -> GatesView:
    """The gates and states of a recurrent layer at each token.

    Args:
        layer: Number or path of an LSTM or GRU layer (default: the last).
        side: The sequence: source or target, first or second.
        gate: Show this gate or state of many units: input, forget, reset, ... (default: all of them, of one unit).
        unit: Number of a unit to draw separately (default: the one that varies most).
        window: Show only the tokens start..stop.
    """
    model = subject.model
    found = [place for place in places(model, reading, (Recurrent,), side) if place.module(model).cell.gates]
    required(found, model, "gates", "none of its layers is an LSTM or a GRU")
    place = chosen({each.path: each for each in found}, layer, "layers with gates")
    start, stop = window or (0, len(place.tokens))
    if not 0 <= start < stop <= len(place.tokens):
        raise ConfigError(
            f"the window from {start} to {stop} is not inside the text",
            fix=f"choose 0 <= start < stop <= {len(place.tokens)}",
        )
    with _beginning(model, place) as begun:
        record = heard(subject, reading, [f"{place.path}.gates", f"{place.path}.hidden"])
    opened, hidden = record[f"{place.path}.gates"][place.call], record[f"{place.path}.hidden"][place.call]
    names, values = remembered(place.module(model).cell, opened, hidden)
    if gate is not None and gate not in names:
        raise ConfigError(f"this layer has no gate or state '{gate}'", fix=f"choose from {', '.join(names)}")
    backward = is_backward(model, place.path)
    changes = torch.diff(hidden[0], dim=0, prepend=begun[place.call] if begun else torch.zeros_like(hidden[0, :1]))
    filling = 0
    if stop - start > SMALL and not begun:
        # A state that starts at zero always changes most at the beginning of a text
        norms = hidden[0].float().norm(dim=1)
        filling = min(SMALL, int((norms >= FILLED * norms.median()).int().argmax()) + 1)
    sizes = torch.where(torch.arange(len(changes), device=changes.device) < filling, 0.0, changes.float().norm(dim=1))
    if backward:
        values, sizes = values.flip(1), sizes.flip(0)
    numbers = values[:, start:stop].float().cpu().numpy()
    units = numbers.shape[2]
    if unit is not None and not 0 <= unit < units:
        fix = "choose one of them"
        raise ConfigError(f"there is no unit {unit}: {place.path} has {units} units, 0 to {units - 1}", fix=fix)
    open_at = {name: numbers[names.index(name)] for name in names if name not in STATES and name != "candidate"}
    memory = next(shares for name, shares in open_at.items() if name in MEMORY)
    # Indices of the tokens with the largest changes [T] of the state, largest first
    turns = tuple(start + int(at) for at in np.argsort(-sizes[start:stop].cpu().numpy(), kind="stable")[:TURNS])
    return GatesView(
        title=f"Gates of {chosen_title(place.path, [each.path for each in found])}",
        layer=place.path,
        layer_name=chosen_title(place.path, [each.path for each in found]),
        backward=backward,
        tokens=tuple(token.text for token in place.tokens[start:stop]),
        names=names,
        values=numbers,
        start=start,
        unit=_liveliest(numbers[-1], 1)[0] if unit is None else unit,
        unit_asked=unit is not None,
        gate=gate,
        saturation=tuple(
            Saturation(name, float((shares < SHUT).mean()), float((shares > OPEN).mean()))
            for name, shares in open_at.items()
        ),
        memory=1 / np.maximum(1 - memory.mean(axis=0, dtype=np.float64), 1e-9),
        largest_changes=turns,
        burn_in=filling,
        hints=() if gate or stop - start > SMALL else (_hint(names),),
    )


def _hint(names: tuple[str, ...]) -> str:
    kept = next(name for name in names if name in MEMORY)
    return f"gate={kept} shows that gate of several units, unit=0 another unit."


@contextmanager
def _beginning(model: Any, place: LayerPlace) -> Iterator[list[Tensor]]:
    """Inside the `with` block, collects the initial hidden states [1,D] of a layer, if they are not zero."""
    around = model.get_submodule(place.path.rpartition(".")[0])
    begun: list[Tensor] = []

    def record(mixer: ConditionedMixer[Any], arguments: tuple[Any, ...]) -> None:
        begun.append(mixer.begin(arguments[1])[0])

    with around.register_forward_pre_hook(record) if isinstance(around, ConditionedMixer) else nullcontext():
        yield begun


def remembered(cell: Cell, opened: Gates, hidden: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """The names and values [names,T,D] of the gates and states of one row, in reading order."""
    decided = dict(zip(opened.names, opened.values[0].unbind(1), strict=True))  # each [T,D]
    states = {"hidden": hidden[0]}
    if cell.num_states > 1:
        written, state, kept = decided["input"] * decided["candidate"], torch.zeros_like(hidden[0, 0]), []
        for forget, new in zip(decided["forget"], written, strict=True):
            state = forget * state + new  # c' = f * c + i * g, from c = 0
            kept.append(state)
        states = {"cell": torch.stack(kept), **states}
    return (*decided, *states), torch.stack([*decided.values(), *states.values()])


def _liveliest(states: np.ndarray, count: int, pinned: int | None = None) -> list[int]:
    """The units whose state [T,D] varies most, including the pinned one."""
    order = [int(unit) for unit in np.argsort(-states.std(axis=0), kind="stable")]
    first = [] if pinned is None else [pinned]
    return [*first, *(unit for unit in order if unit not in first)][:count]


def full_name(name: str) -> str:
    """The name of a gate or state with what it is.

    >>> [full_name(name) for name in ("forget", "candidate", "cell")]
    ['forget gate', 'candidate', 'cell state']
    """
    return f"{name} state" if name in STATES else name if name == "candidate" else f"{name} gate"


def _keeps(name: str) -> str:
    """What the values of a gate mean for the state, as a further sentence; empty for those that keep nothing."""
    return f" {KEEPS[name]}" if name in KEEPS else ""


def _span(name: str, values: np.ndarray) -> tuple[float, float]:
    """The color scale of a gate or state; the cell has no bounds."""
    if name == "cell":
        reach = max(float(np.abs(values).max()), 1e-9)
        return -reach, reach
    return (-1.0, 1.0) if name in ("candidate", "hidden") else (0.0, 1.0)


def _pooled(values: np.ndarray) -> tuple[np.ndarray, int]:
    """The means of blocks of tokens [T,D], and the size of a block."""
    width = -(-len(values) // POOLED)
    return block_means(values.astype(np.float64), (width, 1)), width
