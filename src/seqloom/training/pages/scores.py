"""Scores of the shipped weights on dev: the metrics, how sure they are, and what was taken for what.

They are among the notes of the model folder, because they belong to its weights: both are replaced together.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from seqloom.errors import DamagedError

Interval = tuple[float | None, float | None]


class Confused(msgspec.Struct, frozen=True, array_like=True):
    """How often one answer was given where another was right; the two may be the same."""

    true: str
    said: str
    count: int


class RunScores(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of the weights of a step with their 95 % intervals; a number that is not finite is None."""

    step: int
    dev: dict[str, float | None] = {}
    dev_rows: int = 0
    intervals: dict[str, Interval] = {}
    confusion: tuple[Confused, ...] = ()
    cross_fitted: bool = False  # whether each half of dev was read with the calibration of the other


def scores_of(notes: Mapping[str, Any]) -> RunScores:
    """The scores among the notes of a model.

    >>> scores_of({"step": 20, "dev": {"accuracy": 0.5}, "intervals": {"accuracy": [0.4, float("nan")]}}).intervals
    {'accuracy': (0.4, None)}
    """
    return msgspec.convert(_finite(notes), RunScores)


def read_scores(model: Path) -> RunScores | None:
    """The scores in a model folder; None where there is none yet."""
    path = model / "config.json"
    if not path.exists():
        return None
    try:
        return scores_of(msgspec.json.decode(path.read_bytes())["notes"])
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is not what training wrote: {error}", fix="train again") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
