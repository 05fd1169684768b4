"""The record of every look at the test part.

A test set measures only as long as nobody chooses by it. Whoever looks ten times and keeps the best has trained on it,
slowly. So a look cannot be had without being written down: the line is on the disk before anybody sees a number.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.bundle.places import run_of
from seqloom.durable import append_line, read_lines
from seqloom.version import __version__

LOOKS = "looks.jsonl"  # in a run folder


class Looks(NamedTuple):
    """The looks at the test part with one model, or with the models of one run."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> "Looks":
        """The record that belongs to a model folder: its run's, or a file beside it."""
        run = run_of(folder)
        return cls(folder.with_name(f"{folder.name}.{LOOKS}") if run is None else run / LOOKS)

    def records(self) -> tuple[dict[str, Any], ...]:
        """All looks so far, the first one first."""
        return read_lines(self.path).records

    def record(self, metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]], **facts: Any) -> None:
        """Nothing; when it returns, the look is on the disk."""
        line = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seqloom": __version__,
            **facts,
            "metrics": {name: _finite(value) for name, value in metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in intervals.items()},
        }
        append_line(self.path, line)


def _finite(value: float) -> float | None:
    """A number as JSON has it: there is no infinite one."""
    return float(value) if math.isfinite(value) else None
