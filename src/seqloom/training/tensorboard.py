"""Curves for TensorBoard, by torch's writer: the extra `tensorboard` has to be installed.

TensorBoard reads the files of a folder one after the other, so each evaluation writes the points since the last one to
a file of its own and closes it. A run that goes on from a checkpoint hides what was written after it before.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from seqloom.errors import needing
from seqloom.training.events import Begun, Ended, Report, Stepped, Validated

LARGEST = 3.4e38  # of the floats that TensorBoard keeps
TRAIN = ("loss", "rate", "norm", "padding")  # of `Stepped`


def require_tensorboard() -> None:
    """Raise MissingExtraError where TensorBoard is not installed."""
    with needing("tensorboard"):
        import torch.utils.tensorboard  # noqa: F401


def drawn(reports: Iterator[Report], folder: Path) -> Iterator[Report]:
    """The same reports; their numbers are written into a folder that TensorBoard opens.

    A disk that refuses stops no run: the points wait for the next time, and `metrics.jsonl` has them all.
    """
    from torch.utils.tensorboard import SummaryWriter

    waiting, resumed_after = list[tuple[str, float, int, float]](), None
    for report in reports:
        if isinstance(report, Begun) and report.step > 0:
            resumed_after = report.step
        waiting += [(name, value, report.step, time.time()) for name, value in points_of(report).items()]
        if isinstance(report, Validated | Ended) and waiting:
            purge = None if resumed_after is None else resumed_after + 1
            try:
                with SummaryWriter(str(folder), purge_step=purge) as writer:
                    for point in waiting:
                        writer.add_scalar(*point)
            except OSError:
                pass
            else:
                waiting, resumed_after = [], None
        yield report


def points_of(report: Report) -> dict[str, float]:
    """The numbers of a report by the names of their curves; those that no float holds are left out."""
    if isinstance(report, Stepped):
        points = {f"train/{name}": float(getattr(report, name)) for name in TRAIN}
        points["pace/symbols per second"] = report.pace.symbols_per_second
    elif isinstance(report, Validated):
        points = {f"dev/{name}": value for name, value in report.metrics.items()}
    else:
        points = {}
    return {name: value for name, value in points.items() if abs(value) <= LARGEST}
