"""The picture of how far gradients reach: the norm of dy_t/dx_k against the distance, on a logarithmic axis.

A factor for each element in between is a straight line there; a window is a curve that ends.
"""

from collections.abc import Sequence

from seqloom.data.problems import counted
from seqloom.figures import Line, Series
from seqloom.inspection.flow import Flow

LEAST_SHOWN = 1e-30


def flow_drawn(found: Sequence[Flow], title: str = "How far gradients reach") -> Line:
    """The norm of dy_t/dx_k against the distance, one curve for each mixer; the caption has the factors and radii."""
    shown = [flow for flow in found if len(flow.norms) > 2 and max(flow.norms) > LEAST_SHOWN]
    radii = [f"{flow.layer}: spectral radius {flow.radius:.2f}" for flow in shown if flow.radius is not None]
    factors = [f"{flow.layer}: {reach_said(flow)}" for flow in shown]
    return Line(
        title=title,
        caption="; ".join([*factors, *radii]),
        series=[
            Series(
                name=flow.layer or "layer",
                x=[float(at) for at in range(len(flow.norms))],
                y=[norm if norm > LEAST_SHOWN else None for norm in flow.norms],
            )
            for flow in shown
        ],
        x_label="distance in elements",
        y_label="norm of the gradient",
        y_axis="log",
    )


def reach_said(flow: Flow) -> str:
    """What distance does to a gradient, in words: a window cuts it off, everything else multiplies it."""
    if flow.has_window:
        seen = counted(flow.norms.index(0) - 1, "element")  # fewer than it reads, where its widest filters are silent
        return f"it looks through a window: here nothing more than {seen} away had a part in it"
    return f"times {flow.factor:.3g} for each element"
