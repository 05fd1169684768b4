"""The contract of a task, and what its model's numbers mean.

    examples ──▶ batch ──▶ loss                    training
                   │
                   └─────▶ judge ──▶ statistics of each example ──▶ summed ──▶ measure ──▶ metrics

Every metric is a function of sums of statistics over examples: right answers, entities found, squared errors, counts
of n-grams. So a metric of a million examples needs one row of numbers, ranks add theirs up, and a confidence interval
resamples the rows (Koehn 2004) without asking the model again. The few that are no sums, such as a correlation of
ranks, are made of all rows at once (`measure_rows`), and decide nothing during training.
"""

from seqloom.tasks.contract.meaning import Meaning
from seqloom.tasks.contract.task import Division, Graded, Task, require_by_length
from seqloom.tasks.contract.values import Asking, HeadSettings, Judged, Metric, Prediction

__all__ = [
    "Asking",
    "Division",
    "Graded",
    "HeadSettings",
    "Judged",
    "Meaning",
    "Metric",
    "Prediction",
    "Task",
    "require_by_length",
]
