"""What is wrong with a run, and what to change: `diagnose` for a run folder, `range_test` for a rate before the start.

    findings     what a diagnosis is, and how it is shown
    curves       the lines of a run as numbers, and what they say of losses and rates: pure functions, no model needed
    data         the same of labels, lengths and time
    inside       what a model says: `seqloom.inspect.flow` and `seqloom.inspect.health`, and their findings
    diagnosis    a run folder from beginning to end
    range_test   the rate at which training is fastest (Smith 2017)

A rule speaks only where it is sure: every threshold stands with its reason, and a run that is all right gets no
finding. `diagnose` is loaded when it is first used: it needs torch, and the pure rules do not.
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.doctor.diagnosis import diagnose

__all__ = ["diagnose"]

__getattr__ = loading(__name__, {"diagnosis": ("diagnose",)})
