"""Looking inside a model: attention, gates, gradients, filters, attributions, and how far a picture may be believed.

    subject    a model and one input, its tokens and its answers     layers         which layers have what is asked
    readings   how each shape of model is asked                      requirements   whether there is what a view shows
    view       results that show and save themselves                 inspector      one input, every view a method
    edits      heads, gates and vectors changed for a while          what_if        what such a change does

Each view is a function in a file of its own: `seqloom.inspect.gates.gates(subject, reading)`.
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.inspect.graphs.model import graph
    from seqloom.inspect.inspector import Inspection
    from seqloom.inspect.readings import read
    from seqloom.inspect.subject import Reading, Subject
    from seqloom.inspect.view import View

__all__ = ["Inspection", "Reading", "Subject", "View", "graph", "read"]

HOMES = {
    "graphs.model": ("graph",),
    "inspector": ("Inspection",),
    "readings": ("read",),
    "subject": ("Reading", "Subject"),
    "view": ("View",),
}

__getattr__ = loading(__name__, HOMES)
