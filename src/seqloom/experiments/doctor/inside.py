"""What the inside of a model says: gradients that do not arrive, and units that do nothing.

A gradient that fades with distance is no fault where nothing far away is needed, and a gate that is always open may be
a memory. So these rules speak about a run that has learnt little (`LEARNT`); the pictures are there for every run.
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

LEARNT = 0.25  # of the first loss: a run that has come so far reaches what it needs
VANISHED, FADES = 1e-2, 0.8  # of the norm at distance 1 is left; each further element takes a fifth or more
EXPLODED, GROWS = 1e3, 1.05  # times the norm at distance 1, and steadily
DEEP = 1e-3  # of the gradient at the last layer reaches the first
IDLE = 0.5  # of the units of a layer; some dead or saturated ones are usual
ELEMENTS = 200  # to be looked at before a unit is called dead
WARM_UP = 0.1  # of the steps: usual where long steps do harm at the beginning
MEASURED = Advice("--find-lr", "", "measures the rate: these steps were too long")
CLIPPED = Advice("--clip", "1", "no step is longer than this norm allows; norms of 1 and less are usual")
GATED = Advice("--model", "lstm", "its state is added to, so gradients come back along it")
READS_AT_ONCE = Advice("--model", "transformer", "attention reads any distance at once")


class ModelInside(NamedTuple):
    """What was measured inside a model; `seqloom.inspect.flow` and `units` explain each."""

    flows: tuple[Flow, ...] = ()
    depths: tuple[Depth, ...] = ()
    units: tuple[UnitHealth, ...] = ()


def look_inside(task: Task, model: nn.Module, batches: Sequence[Batch[Any, Any]]) -> ModelInside:
    """Flow by distance and depth, and the state of units, of a model over a few batches; the model stays as it is."""
    return ModelInside(flows(task, model, batches), depths(task, model, batches[0]), units(task, model, batches))


def inside_findings(inside: ModelInside, story: Story) -> tuple[Finding, ...]:
    """What is wrong inside a model, given how its training went."""
    found = [exploding(inside.flows)]
    has_learnt = story.is_long_enough and story.first - story.last >= LEARNT * story.first
    if not has_learnt:
        found += [vanishing(inside.flows), shallow(inside.depths), saturated(inside.units)]
    found.append(dead(inside.units, story.steps))
    return tuple(finding for finding in found if finding is not None)


def inside_figures(inside: ModelInside) -> tuple[Figure, ...]:
    """The pictures of what was measured."""
    return (flow_drawn(inside.flows),) if any(len(flow.norms) > 2 for flow in inside.flows) else ()


def vanishing(found: Sequence[Flow]) -> Finding | None:
    """Gradients fade with distance in every mixer: what is far away cannot be learnt."""
    fading = [flow for flow in found if flow.left <= VANISHED and flow.factor <= FADES and not flow.has_window]
    if not fading or len(fading) < len(found):
        return None
    best = max(found, key=lambda flow: flow.factor)
    return Finding(
        "gradient.vanishing",
        "Gradients vanish with distance",
        "What an element sends back through time is multiplied by a factor below one for each element in between. "
        "After some distance nothing arrives, so nothing that far back can be learnt.",
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
    """Gradients grow with distance in some mixer."""
    growing = [flow for flow in found if flow.left >= EXPLODED and flow.factor >= GROWS]
    if not growing:
        return None
    worst = max(growing, key=lambda flow: flow.factor)
    return Finding(
        "gradient.grows",
        "Gradients grow with distance",
        "What an element sends back through time is multiplied by a factor above one for each element in between: long "
        "examples throw the weights far away.",
        {"layer": worst.layer, "factor per element": worst.factor, "times at the end": worst.left, **_radius(worst)},
        flow_drawn(growing),
        (CLIPPED, GATED),
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
        "On its way down through the layers the gradient fades, so that only the last ones learn. Residual connections "
        "with a norm before each layer let it through; fewer layers help too.",
        {"first layer": worst.layers[0], "its share of the last layer's": worst.left},
        Bars(title="Gradient at each layer", labels=list(worst.layers), values=list(worst.norms)),
        (READS_AT_ONCE,),
    )


def dead(found: Sequence[UnitHealth], steps: int) -> Finding | None:
    """Half of the units of a layer are zero whatever comes."""
    warm_up = Advice("--warm-up", str(max(1, round(steps * WARM_UP))), f"a tenth of the {steps:,} steps of this run")
    return _idle(
        {one: one.dead for one in found},
        "units.dead",
        "dead",
        "Units with max(0, z) have been pushed so far below zero that no example wakes them, and a zero sends no "
        "gradient back. It comes from steps that were too long.",
        (MEASURED, *((warm_up,) if steps else ())),
    )


def saturated(found: Sequence[UnitHealth]) -> Finding | None:
    """Half of the units of a layer, or of one gate, stand at an end of their range."""
    return _idle(
        {one: one.saturated for one in found},
        "units.saturated",
        "saturated",
        "Units stand at an end of their range for nearly every element: they say the same whatever comes, and a "
        "gradient through them is nearly nothing. It comes from steps that were too long or inputs too large.",
        (MEASURED, CLIPPED),
    )


def _idle(
    shares: dict[UnitHealth, float], code: str, state: str, text: str, advice: tuple[Advice, ...]
) -> Finding | None:
    """The finding about units of which half or more are in a state that is no use."""
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
            "elements looked at": float(worst.elements),
        },
        Bars(title=f"{state.capitalize()} units", labels=names, values=values),
        advice,
    )
