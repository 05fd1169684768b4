"""Gradients through time: what reaches each element from an answer, and how far a gradient goes in every layer.

Two pictures of one thing (Bengio et al. 1994):

    |dL/dh_t|       the total gradient of an answer at the state after element t, for each layer and direction; of a
                    recurrence through all its later states, of any other layer at the vector that leaves it there
    |dy_t/dx_k|     the Jacobian of one layer against the distance t - k, which no answer has a part in
                    (`seqloom.inspection.flow`), and that of the whole stack

On a logarithmic axis a factor for each element is a straight line. A float32 has no normal number below 1.2e-38: what
would be smaller is lost, and the picture says where.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqloom.errors import DataError
from seqloom.figures import Figure, HeatMap, Line, Matrix, Series
from seqloom.inspection.asking import read, scores
from seqloom.inspection.attribution.goals import chosen_goal
from seqloom.inspection.flow import LONGEST, Flow, flows_while
from seqloom.inspection.flow_drawing import LEAST_SHOWN, flow_drawn, reach_said
from seqloom.inspection.layers import read_by
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.total_gradients import UNDERFLOW, Totals, stack_flow, total_gradients
from seqloom.inspection.view import SMALL, View

MOST_SHOWN = 24  # curves in one picture
CELLS = 1600  # of a table with its numbers


@dataclass(frozen=True, kw_only=True)
class GradientsView(View):
    """Total gradients of one answer, and the flow through every layer."""

    kind: ClassVar[str] = "gradients"
    tokens: tuple[str, ...]
    answer: str
    totals: tuple[Totals, ...]
    flows: tuple[Flow, ...]  # of each mixer that lets elements see one another, then of the whole stack

    def figures(self) -> tuple[Figure, ...]:
        flows = [flow for flow in self.flows if len(flow.norms) > 2 and max(flow.norms) > LEAST_SHOWN]
        return (self._through_time(), *self._by_layer(), *([flow_drawn(flows[:MOST_SHOWN])] if flows else []))

    def _through_time(self) -> Line:
        places = [float(at) for at in range(len(self.tokens))]
        shown = [each for each in self.totals if max(each.norms) > UNDERFLOW][: MOST_SHOWN - 1]
        series = [Series(name=each.name, x=places, y=[_above(norm) for norm in each.norms]) for each in shown]
        if not shown:  # nothing comes back at all
            series = [Series(name="every layer", x=places, y=[0.0] * len(places))]
        elif any(each.lost for each in shown):
            ends = [places[0], places[-1]]
            series.append(Series(name="float32 ends", x=ends, y=[UNDERFLOW] * 2))
        return Line(
            title=f"What {self.answer} sends back to each element",
            caption="; ".join(
                f"{each.name}: times {each.factor:.3g} for each element" for each in shown[:6] if len(each.norms) > 1
            ),
            series=series,
            x_label="element",
            y_label="norm of the gradient",
            y_axis="log" if shown else "linear",
        )

    def _by_layer(self) -> tuple[Figure, ...]:
        """Layers against elements, with every number while they are few."""
        logarithms = [[_logarithm(norm) for norm in each.norms] for each in self.totals]
        names = [each.name for each in self.totals]
        known = [value for row in logarithms for value in row if value is not None]
        if not known:
            return ()
        count, least = len(self.tokens), min(known)
        values = [[None if value is None else value - least for value in row] for row in logarithms]
        title = "The same by layer"
        said = f"Decimal orders above the smallest norm, {10**least:.2g}; hatched where it is zero."
        if count <= SMALL and len(names) <= SMALL and len(names) * count <= CELLS:
            return (Matrix(title=title, caption=said, values=values, rows=names, columns=self.tokens),)
        return (
            HeatMap(
                title=title,
                caption=f"{said} {'; '.join(f'{number}: {name}' for number, name in enumerate(names))}.",
                values=values,
                x_label="element",
                y_label="layer",
                value_label="decimal orders above the smallest",
            ),
        )

    def _sentences(self) -> tuple[str, ...]:
        said = [
            f"In {each.name} what arrives is below what float32 can hold at "
            f"{each.lost:,} of {len(each.norms):,} elements."
            for each in self.totals
            if each.lost
        ]
        if len(self.tokens) > LONGEST and any(len(flow.norms) == LONGEST for flow in self.flows):
            said.append(f"Layers by themselves are measured on the first {LONGEST:,} of {len(self.tokens):,} elements.")
        if len(self.tokens) < 2:
            said.append("There is one element alone: a gradient has no way to go.")
        return (*said, *(f"{flow.layer}: {reach_said(flow)}." for flow in self.flows if len(flow.norms) > 1))


def gradients(
    subject: Subject,
    reading: Reading,
    *,
    side: str | None = None,
    answer: str | int | None = None,
    at: int | str | None = None,
    seed: int = 0,
) -> GradientsView:
    """What an answer sends back to each element, by layer and direction, and how far gradients reach in each layer.

    Without `at` the last answer is meant: of a language model the last symbol, which everything stands before.
    """
    goal = chosen_goal(subject, reading, answer=answer, at=len(reading.rows) - 1 if at is None else at)
    return GradientsView(
        title=f"Gradients of {goal.name}",
        tokens=tuple(token.text for token in read_by(reading, reading.side(side))),
        answer=goal.name,
        totals=total_gradients(subject, reading, goal.of, side),
        flows=_flows(subject, reading, side, seed),
    )


def _flows(subject: Subject, reading: Reading, side: str | None, seed: int) -> tuple[Flow, ...]:
    def run() -> None:
        scores(subject, reading.inputs)

    stack = reading.side(side).stack
    mixers = [flow for flow in flows_while(subject.model, run, seed=seed) if flow.layer.startswith(f"{stack}.layers.")]
    whole = stack_flow(subject, reading, side=side, seed=seed)
    return (*mixers, *([whole] if any(whole.norms[1:]) else []))


@dataclass(frozen=True, kw_only=True)
class GradientsComparedView(View):
    """The flow through the whole stack of several models, on the same input."""

    kind: ClassVar[str] = "gradients_compared"
    flows: tuple[Flow, ...]  # `layer` is the name of the model

    def figures(self) -> tuple[Figure, ...]:
        return (flow_drawn(self.flows, "What the last element knows of one so far away"),)

    def _sentences(self) -> tuple[str, ...]:
        return tuple(f"{flow.layer}: {reach_said(flow)}; {flow.left:.2g} is left at the end." for flow in self.flows)


def gradients_compared(
    subjects: Mapping[str, Subject], given: Any, *, target: str | None = None, side: str | None = None, seed: int = 0
) -> GradientsComparedView:
    """How far gradients reach in several models that read the same input, by name."""
    if not 1 <= len(subjects) <= MOST_SHOWN:
        raise DataError(f"{len(subjects)} models were given to be compared", fix=f"give 1 to {MOST_SHOWN} of them")
    readings = {name: read(subject, given, target=target) for name, subject in subjects.items()}
    found = [
        stack_flow(subject, readings[name], side=side, seed=seed)._replace(layer=name)
        for name, subject in subjects.items()
    ]
    short = [flow.layer for flow in found if len(flow.norms) < 3]
    if short:
        raise DataError(f"'{short[0]}' reads fewer than 3 elements of this input", fix="give a longer one")
    return GradientsComparedView(title="How far gradients reach", flows=tuple(found))


def _above(norm: float) -> float | None:
    return norm if norm > UNDERFLOW and math.isfinite(norm) else None


def _logarithm(norm: float) -> float | None:
    return math.log10(norm) if norm > 0 and math.isfinite(norm) else None
