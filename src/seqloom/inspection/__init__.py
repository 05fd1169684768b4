"""Looking inside a model: attention, gates, gradients, filters, attributions, and how far a picture may be believed.

    tokens    what the model reads, with the text it stands for      subject   the model and one input
    asking    how each shape of model is asked                       vectors   those of the first layer, or others
    view      results that show and save themselves                  front     one input, every view a method
    having    whether a model has what a view shows                  trials    what if: a word, a head, a gate

Each view is a function in a file of its own: `seqloom.inspection.gates.gates(subject, reading)`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.inspection.asking import read
    from seqloom.inspection.front import Inspection
    from seqloom.inspection.graphs.front import graph
    from seqloom.inspection.subject import Reading, Subject
    from seqloom.inspection.view import View

__all__ = ["Inspection", "Reading", "Subject", "View", "graph", "read"]


def __getattr__(name: str) -> Any:
    """The public names, each loaded when it is first asked for."""
    if name == "read":
        from seqloom.inspection import asking

        return asking.read
    if name == "Inspection":
        from seqloom.inspection import front

        return front.Inspection
    if name == "graph":
        from seqloom.inspection.graphs import front as graphs

        return graphs.graph
    if name in ("Reading", "Subject"):
        from seqloom.inspection import subject

        return getattr(subject, name)
    if name == "View":
        from seqloom.inspection import view

        return view.View
    raise AttributeError(f"module 'seqloom.inspection' has no attribute '{name}'")
