"""A race whose time is not measured: a clock that a test sets, and fixed speeds, so that decisions are known before."""

import math
import random
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from seqloom.experiments.auto import budget, race, record
from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.plan import AutoEvent
from seqloom.experiments.auto.results import Leaderboard
from seqloom.training import learning_rate
from seqloom.training.devices import Device
from seqloom.training.resolve import Resolved

MODELS = ("bag", "cnn", "gru")  # with the baseline that is added
SECONDS = 66.0
FEWEST = 15  # steps of a run
STEPS = 200  # of the default training, as probes find
SHORT: dict[str, Any] = {"models": ("bag", "gru"), "minutes": 0.5}  # two runs of about 15 steps, then one of about 45
# Races that end with variants: of three candidates one goes on for longer; two are trained in full and changed.
TRIED: dict[str, dict[str, Any]] = {
    "longer": {"models": MODELS, "minutes": 0.6, "parents": 2},
    "changed": {"models": ("bag", "gru"), "minutes": 1.2, "parents": 2, "epochs": 3, "steps": 24},
}


def table(path: Path, rows: int, seed: int) -> Path:
    """Sentences that are about oaks, or not."""
    draws, lines = random.Random(seed), ["text,label"]
    for _ in range(rows):
        words = [*draws.choices(["elm", "fir", "hazel", "larch"], k=5), draws.choice(("oak", "pine"))]
        lines.append(f"{' '.join(words)},{'yes' if 'oak' in words else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def fixed_probe(resolved: Resolved, device: Device, seconds: float) -> Probe:
    """Speeds that make the first rung 15 steps long and the second one about 30, however fast the machine is."""
    slow = 1000.0 if resolved.config.model.parameters() > 1_000_000 else 1.0  # larger sizes do not fit
    return Probe(step_seconds=0.36 * slow, validation_seconds=0.0, overhead_seconds=0.0, steps=STEPS, validations=4)


def stopped() -> float:
    """A clock that stands still."""
    return 0.0


def ticking(tick: float) -> Callable[[], float]:
    """A clock that is so many seconds later each time it is read."""
    reads = count()
    return lambda: tick * next(reads)


def fixed_race(
    data: Path,
    dev: Path | None,
    out: Path,
    *,
    parents: int = 0,
    clock: Callable[[], float] = stopped,
    epochs: int = learning_rate.MOST,
    steps: int = STEPS,
    drift: float = math.inf,  # the clock has nothing to do with the speeds
    **changes: object,
) -> tuple[Leaderboard, list[AutoEvent]]:
    """A race with fixed speeds; with `parents` above 0 variants are tried, too; `epochs` is the most that a run has."""
    told: list[AutoEvent] = []
    given = {"models": MODELS, "minutes": SECONDS / 60, "device": "cpu"} | changes
    with (
        patch.object(budget, "probe", fixed_probe),
        patch.object(budget, "FEWEST_STEPS", FEWEST),
        patch.object(record, "now", clock),
        patch.object(budget, "DRIFT", drift),
        patch.object(race, "PARENTS", parents),
        patch.object(learning_rate, "MOST", epochs),
        patch.object(sys.modules[__name__], "STEPS", steps),
    ):
        return race.auto(data, dev=dev, out=out, show=told.append, **given), told  # type: ignore[arg-type]


def main() -> None:
    """A race with variants from a shell: DATA DEV OUT, a name of `TRIED`, and the seconds by which the clock ticks."""
    torch.set_num_threads(1)
    data, dev, out = map(Path, sys.argv[1:4])
    fixed_race(data, dev, out, clock=ticking(float(sys.argv[5])), **TRIED[sys.argv[4]])


if __name__ == "__main__":
    main()
