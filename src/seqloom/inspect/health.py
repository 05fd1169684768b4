"""Activations, gradients, dead and saturated units of every layer.

One row for each tap of the model. Colors show log10 of the ratio to the median layer: a layer that is a hundred times
larger or smaller than the others stands out.

dead        max(0, z) with z < 0 for every token: no gradient
saturated   tanh(z) near -1 or 1, s(z) near 0 or 1 for nearly every token: almost no gradient
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import DataError
from seqloom.inspect.flow import still
from seqloom.inspect.layer_names import short_name
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.ops.recurrence import Gates
from seqloom.nn.taps import listening, taps
from seqloom.nn.types import Batch
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import counted, number, share
from seqloom.tasks.task import Task

END = 0.02  # distance from the end of the range at which only 4% of the gradient is left
NEARLY_ALWAYS = 0.95  # fraction of the tokens
LISTENED = (".hidden", ".maps", ".gates")
MAPS_OF_PICTURES = ".maps."  # and the number of the layer: [B,filters,Y,X]


class UnitHealth(NamedTuple):
    """The units at one tap or gate, and the shares of dead and saturated ones."""

    name: str
    width: int
    elements: int  # tokens
    dead: float
    saturated: float


class UnitPart(NamedTuple):
    """One tap, or one gate of it."""

    name: str
    is_gate: bool  # for a gate, 0 is also an end of the range


def units(task: Task, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> tuple[UnitHealth, ...]:
    """The dead and saturated units of a model over these batches."""
    seen: dict[UnitPart, list[Tensor]] = {}

    def record(name: str, value: Any) -> None:
        if listened(name):
            for part, values in parts_of(name, value):
                seen.setdefault(part, []).append(values)

    if taps(model):
        with torch.no_grad(), still(model), listening(model, "*", record):
            for batch in batches:
                task.loss(model, batch, None)
    return tuple(measured_units(part, torch.cat(values)) for part, values in seen.items())


def listened(name: str) -> bool:
    """Whether a tap has units with a nonlinearity."""
    return name.endswith(LISTENED) or MAPS_OF_PICTURES in name


def parts_of(name: str, value: Any) -> list[tuple[UnitPart, Tensor]]:
    """The values of a tap, [N,units]: each gate separately, or its one value."""
    if isinstance(value, Gates):
        return [
            (UnitPart(f"{name}.{gate}", True), _flat(value.values[:, :, at])) for at, gate in enumerate(value.names)
        ]
    return [(UnitPart(name, False), _flat(value.movedim(1, -1) if MAPS_OF_PICTURES in name else value))]


def _flat(values: Tensor) -> Tensor:
    return values.detach().flatten(0, -2).float().cpu()


def measured_units(part: UnitPart, values: Tensor) -> UnitHealth:
    """The shares among units [N,units]; rows of zeros are padding."""
    values = values[values.abs().sum(dim=1) > 0] if bool(values.any()) else values
    dead = (values == 0).all(dim=0)
    ends = values.abs() >= 1 - END
    if part.is_gate and float(values.min()) >= 0:
        ends |= values <= END
    within = float(values.abs().max()) <= 1  # unbounded values have no ends
    saturated = (ends.float().mean(dim=0) >= NEARLY_ALWAYS) & within
    return UnitHealth(
        part.name, values.shape[1], len(values), float(dead.float().mean()), float(saturated.float().mean())
    )


ELEMENTS = 16_384  # of a layer that are kept for quantiles
MOST_ROWS = 64  # of a table with numbers
MOST_BARS = 40
IDLE = 0.5  # fraction of the units of a layer that is reported
FAR = 2.0  # log10 of the ratio to the median that is reported
QUANTILES = (0.05, 0.5, 0.95)


class LayerHealth(NamedTuple):
    """One tap of a model over several inputs."""

    name: str
    width: int
    elements: int
    mean: float
    std: float  # the standard deviation
    quantiles: tuple[float, ...]  # 5%, 50%, 95%
    zeros: float  # fraction of values that are zero
    dead: float  # fraction of units that are always zero
    saturated: float  # fraction of units at an end of their range
    gradient_norm: float | None  # of the predictions, mean over inputs; None for gates


class WeightHealth(NamedTuple):
    """The weights of one module."""

    name: str
    norm: float
    gradient_norm: float

    @property
    def ratio(self) -> float:
        """Gradient norm / weight norm."""
        return self.gradient_norm / max(self.norm, 1e-30)


@dataclass(frozen=True, kw_only=True)
class HealthView(View):
    """Activations and gradients of every layer, and the gradients of its weights."""

    kind: ClassVar[str] = "health"
    inputs: int
    layers: tuple[LayerHealth, ...]
    weights: tuple[WeightHealth, ...]

    def figures(self) -> tuple[Figure, ...]:
        names = [short_name(layer.name).replace(" gates", "") for layer in self.layers]
        sizes = [
            [_orders(layer.std, self._spread), _orders(layer.gradient_norm, self._gradient)] for layer in self.layers
        ]
        shares: list[list[float | None]] = [[layer.zeros, layer.dead, layer.saturated] for layer in self.layers]
        ratios = Bars(
            title="Gradients of the weights",
            caption="Norm of the gradient / norm of the weights.",
            labels=[weight.name for weight in self.weights[:MOST_BARS]],
            values=[weight.ratio for weight in self.weights[:MOST_BARS]],
            x_label="gradient / weight",
        )
        if not self.layers:
            return (ratios,)
        noted = "log10 of the ratio to the median layer: 1 means ten times as large. Gates have no gradient."
        return (
            _table("Size relative to the other layers", noted, names, ("activations", "gradient"), sizes, None),
            _table(
                "Dead and saturated units",
                "Shares of values or units.",
                names,
                ("zeros", "dead units", "saturated units"),
                shares,
                (0.0, 1.0),
            ),
            ratios,
        )

    @property
    def _spread(self) -> float:
        return _median([layer.std for layer in self.layers])

    @property
    def _gradient(self) -> float:
        return _median([layer.gradient_norm for layer in self.layers if layer.gradient_norm is not None])

    def _sentences(self) -> tuple[str, ...]:
        lines = []
        for layer in self.layers:
            for idle, what in ((layer.dead, "are dead"), (layer.saturated, "are saturated")):
                if idle >= IDLE:
                    lines.append(f"{share(idle)} of the units of {layer.name} {what}.")
            for value, median, what in (
                (layer.std, self._spread, "activations"),
                (layer.gradient_norm, self._gradient, "gradient"),
            ):
                orders = _orders(value, median)
                if orders is not None and abs(orders) >= FAR:
                    lines.append(f"{layer.name}: {what} {number(10**orders)} times as large as in the median layer.")
        return tuple(lines) or (f"No layer stands out ({counted(self.inputs, 'input')}).",)


def health(subject: Subject, readings: Sequence[Reading]) -> HealthView:
    """Activations, gradient norms, dead and saturated units of every layer over several inputs.

    The gradient is that of the highest score of each prediction.
    """
    if not readings:
        raise DataError("no input was given", fix="give at least one")
    watch = _HealthWatch(subject)
    for reading in readings:
        watch.read(reading)
    return HealthView(
        title="Activations and gradients of each layer",
        inputs=len(readings),
        layers=tuple(watch.layers()),
        weights=tuple(watch.weights()),
    )


class _HealthWatch:
    """Collects activations and gradients, input by input."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.readings = subject, 0
        self.names = [name for name in taps(subject.model) if listened(name) or name.endswith(".output")]
        self.values: dict[UnitPart, list[Tensor]] = {}
        self.kept: dict[UnitPart, int] = {}
        self.slopes: dict[str, float] = {}
        self.groups: dict[str, list[Tensor]] = {}  # weights by layer; outside of layers by the first part of their name
        for name, weight in subject.model.named_parameters():
            parts = name.split(".")
            self.groups.setdefault(".".join(parts[:3] if "layers" in parts else parts[:2]), []).append(weight)
        self.weight_slopes = dict.fromkeys(self.groups, 0.0)

    def read(self, reading: Reading) -> None:
        """Run one input forward and backward."""
        passed: dict[str, list[Tensor]] = {}

        def record(name: str, value: Any) -> Tensor | None:
            for part, numbers in parts_of(name, value):
                self._keep(part, numbers)
            if isinstance(value, Gates):
                return None
            awake: Tensor = value if value.requires_grad else value.detach().requires_grad_()
            passed.setdefault(name, []).append(awake)
            return awake

        model = self.subject.model
        with torch.enable_grad(), still(model), ExitStack() as stack:
            for name in self.names:
                stack.enter_context(listening(model, name, record))
            score = scores(self.subject, reading.inputs).amax(dim=-1).sum()
        self.readings += 1
        self._send_back(score, passed)

    def _keep(self, part: UnitPart, numbers: Tensor) -> None:
        room = ELEMENTS - self.kept.get(part, 0)
        if room > 0:
            self.values.setdefault(part, []).append(numbers[:room])
            self.kept[part] = self.kept.get(part, 0) + len(numbers[:room])

    def _send_back(self, score: Tensor, passed: dict[str, list[Tensor]]) -> None:
        places = [(name, value) for name, values in passed.items() for value in values]
        weights = [(name, weight) for name, group in self.groups.items() for weight in group if weight.requires_grad]
        wanted = [value for _, value in (*places, *weights)]
        if not wanted or not score.requires_grad:
            return
        slopes = torch.autograd.grad(score, wanted, allow_unused=True)
        squares: dict[str, float] = {}
        for (name, _), slope in zip((*places, *weights), slopes, strict=True):
            squares[name] = squares.get(name, 0.0) + (0.0 if slope is None else float(slope.double().square().sum()))
        for name, square in squares.items():
            sums = self.weight_slopes if name in self.groups else self.slopes
            sums[name] = sums.get(name, 0.0) + math.sqrt(square)

    def layers(self) -> list[LayerHealth]:
        """All taps, in the order of the model."""
        found = []
        for part, values in self.values.items():
            numbers = torch.cat(values)
            units = measured_units(part, numbers)
            flat = numbers.double().numpy().ravel()
            slope = None if part.is_gate else self.slopes.get(part.name, 0.0) / self.readings
            low_to_high = tuple(np.quantile(flat, QUANTILES).tolist())
            found.append(
                LayerHealth(
                    part.name,
                    units.width,
                    len(numbers),
                    float(flat.mean()),
                    float(flat.std()),
                    low_to_high,
                    float((flat == 0).mean()),
                    units.dead,
                    units.saturated,
                    slope,
                )
            )
        return found

    def weights(self) -> list[WeightHealth]:
        """All modules with weights."""
        found = []
        for name, group in self.groups.items():
            norm = math.sqrt(sum(float(weight.detach().double().square().sum()) for weight in group))
            found.append(WeightHealth(name, norm, self.weight_slopes[name] / self.readings))
        return found


def _median(values: Sequence[float]) -> float:
    """The median; the geometric mean of the two middle values."""
    known = [math.log(value) for value in values if value > 0]
    return math.exp(float(np.median(known))) if known else 0.0


def _orders(value: float | None, median: float) -> float | None:
    return math.log10(value / median) if value and median else None


def _table(
    title: str,
    caption: str,
    names: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    span: tuple[float, float] | None,
) -> Figure:
    """A row for each layer: with numbers, or only colors if there are many."""
    if len(names) <= MOST_ROWS:
        return Matrix(title=title, caption=caption, values=values, rows=names, columns=columns, span=span)
    across = f"{caption} Columns: {', '.join(columns)}."
    return HeatMap(title=title, caption=across, values=values, y_label="layer", value_label="", span=span)
