"""Rules about the inside of a model: vanishing gradients, and dead or saturated units.

A gradient that fades with distance is no problem if nothing far away is needed, and a gate that is always open may be
a memory. So these rules apply only to a run that has learned little (`LEARNED`); the figures are shown for every run.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from seqloom.experiments.doctor.curves import Story
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.inspect.flow import Depth, Flow, depths, flow_drawn, flows
from seqloom.inspect.health import UnitHealth, units
from seqloom.nn.types import Batch
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.tasks.task import Task

LEARNED = 0.25  # of the initial loss: a run that has learned this much is not checked
VANISHED, FADES = 1e-2, 0.8  # share of the norm at distance 1 that is left, and the factor per element
EXPLODED, GROWS = 1e3, 1.05  # times the norm at distance 1, and steadily
DEEP = 1e-3  # of the gradient at the last layer reaches the first
IDLE = 0.5  # of the units of a layer; some dead or saturated ones are normal
ELEMENTS = 200  # that are needed before a unit counts as dead
WARM_UP = 0.1  # of the steps
MEASURED = Advice("--find-lr", "", "finds a learning rate: this one was too high")
CLIPPED = Advice("--clip-norm", "1", "limits the size of each step")
GATED = Advice("--model", "lstm", "its cell state carries gradients over long distances")
READS_AT_ONCE = Advice("--model", "transformer", "attention reaches any distance in one step")


class ModelInside(NamedTuple):
    """Measurements inside a model; see `seqloom.inspect.flow` and `seqloom.inspect.health`."""

    flows: tuple[Flow, ...] = ()
    depths: tuple[Depth, ...] = ()
    units: tuple[UnitHealth, ...] = ()


def measure_inside(task: Task, model: nn.Module, batches: Sequence[Batch[Any, Any]]) -> ModelInside:
    """Measure gradient flow by distance and depth, and the state of units, on a few batches."""
    return ModelInside(flows(task, model, batches), depths(task, model, batches[0]), units(task, model, batches))


def inside_findings(inside: ModelInside, story: Story) -> tuple[Finding, ...]:
    """Findings about the inside of a model, given the course of its training."""
    found = [exploding(inside.flows)]
    has_learned = story.is_long_enough and story.first - story.last >= LEARNED * story.first
    if not has_learned:
        found += [vanishing(inside.flows), shallow(inside.depths), saturated(inside.units)]
    found.append(dead(inside.units, story.steps))
    return tuple(finding for finding in found if finding is not None)


def inside_figures(inside: ModelInside) -> tuple[Figure, ...]:
    return (flow_drawn(inside.flows),) if any(len(flow.norms) > 2 for flow in inside.flows) else ()


def vanishing(found: Sequence[Flow]) -> Finding | None:
    """Gradients fade with distance in every layer, so long dependencies cannot be learned."""
    fading = [flow for flow in found if flow.left <= VANISHED and flow.factor <= FADES and not flow.has_window]
    if not fading or len(fading) < len(found):
        return None
    best = max(found, key=lambda flow: flow.factor)
    return Finding(
        "gradient.vanishing",
        "Gradients vanish with distance",
        "Gradients shrink by a constant factor for each element they pass on the way back through time. Over long "
        "distances nothing is left, so dependencies of that length cannot be learned.",
        {
            "layer": best.layer,
            "factor per element": best.factor,
            "distance": float(len(best.norms) - 1),
            "share that is left": best.left,
            **_radius(best),
        },
        flow_drawn(found),
        (*((GATED,) if best.radius is not None else ()), READS_AT_ONCE),  # without a radius it has gates already
    )


def exploding(found: Sequence[Flow]) -> Finding | None:
    """Gradients grow with distance in some layer."""
    growing = [flow for flow in found if flow.left >= EXPLODED and flow.factor >= GROWS]
    if not growing:
        return None
    worst = max(growing, key=lambda flow: flow.factor)
    return Finding(
        "gradient.grows",
        "Gradients grow with distance",
        "Gradients grow by a constant factor for each element they pass on the way back through time, so long examples "
        "cause huge steps.",
        {
            "layer": worst.layer,
            "factor per element": worst.factor,
            "growth over the whole distance": worst.left,
            **_radius(worst),
        },
        flow_drawn(growing),
        (CLIPPED, GATED) if worst.radius is not None else (MEASURED,),  # without a radius it has gates or attention
    )


def _radius(flow: Flow) -> dict[str, float | str]:
    return {} if flow.radius is None else {"spectral radius": flow.radius}


def shallow(found: Sequence[Depth]) -> Finding | None:
    """The first layers of a stack get no gradient."""
    fading = [depth for depth in found if depth.left <= DEEP]
    if not fading:
        return None
    worst = min(fading, key=lambda depth: depth.left)
    return Finding(
        "gradient.shallow",
        "The first layers get no gradient",
        "The gradient fades on its way through the layers, so only the last ones learn. Residual connections with a "
        "norm before each layer help; so do fewer layers.",
        {"first layer": worst.layers[0], "gradient compared to the last layer": worst.left},
        Bars(title="Gradient at each layer", labels=list(worst.layers), values=list(worst.norms)),
        (READS_AT_ONCE,),
    )


def dead(found: Sequence[UnitHealth], steps: int) -> Finding | None:
    """Half of the units of a layer are zero for every input."""
    warmup = Advice("--warmup", str(max(1, round(steps * WARM_UP))), f"a tenth of the {steps:,} steps of this run")
    return _idle(
        {one: one.dead for one in found},
        "units.dead",
        "dead",
        "Many ReLU units are zero for every example, so they get no gradient and cannot recover. The learning rate was "
        "too high.",
        (MEASURED, *((warmup,) if steps else ())),
    )


def saturated(found: Sequence[UnitHealth]) -> Finding | None:
    """Half of the units of a layer, or of one gate, are saturated."""
    return _idle(
        {one: one.saturated for one in found},
        "units.saturated",
        "saturated",
        "Many units are at an end of their range for nearly every element, so they ignore their input and pass almost "
        "no gradient. The learning rate was too high, or the inputs are too large.",
        (MEASURED, CLIPPED),
    )


def _idle(
    shares: dict[UnitHealth, float], code: str, state: str, text: str, advice: tuple[Advice, ...]
) -> Finding | None:
    """The finding about layers in which at least half of the units are dead or saturated."""
    idle = [one for one, share in shares.items() if share >= IDLE and one.elements >= ELEMENTS]
    if not idle:
        return None
    worst = max(idle, key=lambda one: shares[one])
    names, values = [one.name for one in shares], list(shares.values())
    return Finding(
        code,
        f"Units are {state}",
        text,
        {
            "layer": worst.name,
            f"share of {state} units": shares[worst],
            "elements measured": float(worst.elements),
        },
        Bars(title=f"{state.capitalize()} units", labels=names, values=values),
        advice,
    )
