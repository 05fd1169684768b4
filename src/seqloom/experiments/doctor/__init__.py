"""Problems of a run and what to change: `diagnose` for a run folder, `range_test` for a learning rate.

    findings     the diagnosis, and how it is shown
    curves       rules about losses, learning rates and gradient norms, from the logs: pure functions, no model needed
    scores       rules about scores: simple baselines, underfitting
    data         rules about labels, lengths and time
    inside       rules about a model: `seqloom.inspect.flow` and `seqloom.inspect.health`
    diagnosis    all rules on a run folder
    range_test   the learning rate range test (Smith 2017)

Rules are cautious: every threshold has a reason, and a healthy run gets no finding. `diagnose` is loaded when it is
first used: it needs torch, and the pure rules do not.
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.doctor.diagnosis import diagnose

__all__ = ["diagnose"]

__getattr__ = loading(__name__, {"diagnosis": ("diagnose",)})
