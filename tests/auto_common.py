"""A race whose time is not measured: a fixed clock and fixed speeds, so that all decisions are known before."""

import random
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from seqloom.experiments.auto import budget, race, record
from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.plan import AutoEvent
from seqloom.experiments.auto.results import Leaderboard
from seqloom.training.devices import Device
from seqloom.training.resolve import Resolved

MODELS = ("bag", "cnn", "gru")  # with the baseline that is added
SECONDS = 60.0
FEWEST = 15  # steps of a run
SHORT = {"models": ("bag", "gru"), "minutes": 0.5}  # two runs of about 15 steps, then one of about 80


def table(path: Path, count: int, seed: int) -> Path:
    """Sentences that are about oaks, or not."""
    draws, lines = random.Random(seed), ["text,label"]
    for _ in range(count):
        words = [*draws.choices(["elm", "fir", "hazel", "larch"], k=5), draws.choice(("oak", "pine"))]
        lines.append(f"{' '.join(words)},{'yes' if 'oak' in words else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def fixed_probe(resolved: Resolved, device: Device, seconds: float) -> Probe:
    """Speeds that make the first rung 15 steps long and the second one about 30, however fast the machine is."""
    slow = 1000.0 if resolved.config.model.parameters() > 1_000_000 else 1.0  # larger sizes do not fit
    return Probe(step_seconds=0.36 * slow, validation_seconds=0.0, overhead_seconds=0.0, steps=200, validations=4)


def fixed_race(
    data: Path, dev: Path | None, out: Path, *, parents: int = 0, **changes: object
) -> tuple[Leaderboard, list[AutoEvent]]:
    """A race with fixed decisions; with `parents` above 0 variants are tried, too."""
    told: list[AutoEvent] = []
    given = {"models": MODELS, "minutes": SECONDS / 60, "device": "cpu"} | changes
    with (
        patch.object(budget, "probe", fixed_probe),
        patch.object(budget, "FEWEST_STEPS", FEWEST),
        patch.object(record, "now", lambda: 0.0),
        patch.object(race, "PARENTS", parents),
    ):
        return race.auto(data, dev=dev, out=out, show=told.append, **given), told  # type: ignore[arg-type]


def main() -> None:
    """A short race of two from a shell: DATA DEV OUT."""
    torch.set_num_threads(1)
    data, dev, out = map(Path, sys.argv[1:4])
    fixed_race(data, dev, out, **SHORT)


if __name__ == "__main__":
    main()
