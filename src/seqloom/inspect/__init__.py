"""Inspect a model: attention, gates, gradients, filters, attributions, and how faithful such explanations are.

    subject    a model and its task; an input, its tokens, its scores    layers         find layers by number or path
    readings   how each kind of model reads and scores an input         requirements   why a view is not available
    view       the base class of views: show, save, JSON                inspector      one input, every view a method
    edits      change heads, gates and vectors inside a `with`          what_if        views of what an edit changes

Each view is a function in its own file: `seqloom.inspect.gates.gates(subject, reading)`.
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
