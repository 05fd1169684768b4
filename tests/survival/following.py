"""What the tests look at when a run is over: what it left behind, and the order in which it read."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DamagedError
from seqloom.files.folders import read_folder
from survival.cases import SAVE_EVERY, sums
from survival.forking import Runs

JOB = "survival.jobs:train"


class Whole(NamedTuple):
    """A run that nothing happened to."""

    sums: dict[str, str]
    order: list[str]
    seconds: float
    steps: int


def whole(runs: Runs, data: Path, out: Path, case: str, **settings: Any) -> Whole:
    (outcome,) = runs.run(JOB, 1, {"data": str(data), "out": str(out), "case": case, **settings})
    assert outcome.code == 0, outcome.stderr
    return Whole(sums(out), order_of(out), outcome.seconds, outcome.answer["step"])


def order_of(out: Path) -> list[str]:
    """One line for each step that was taken, in time: its number and the ids of its examples."""
    path = Path(f"{out}.order")
    return path.read_text().splitlines() if path.exists() else []


def differences(out: Path, unkilled: Whole) -> list[str]:
    """How a run differs from the one that nothing happened to, in bytes or in the order of what it read.

    Steps that were taken again must read what they read before, and there may be no more of them than a save interval
    and one.
    """
    mine, theirs, taken = sums(out), unkilled.sums, order_of(out)
    found = [name for name in sorted(mine.keys() | theirs.keys()) if mine.get(name) != theirs.get(name)]
    numbers = [int(line.partition(" ")[0]) for line in taken]
    if taken != [unkilled.order[number - 1] for number in numbers]:
        found.append("the order of examples")
    if sorted(set(numbers)) != list(range(1, unkilled.steps + 1)):
        found.append("the steps that were taken")
    lost = [before + 1 - after for before, after in pairwise(numbers)]
    if min(lost) < 0 or max(lost) > SAVE_EVERY + 1:
        found.append(f"{max(lost)} steps lost at once")
    return found


def unverified(out: Path) -> list[str]:
    """The checkpoints and models that have their name and are not whole."""
    found = []
    for folder in [*out.glob("checkpoints/step-*"), *out.glob("model"), *out.glob("vocabulary")]:
        try:
            list(read_folder(folder))
        except DamagedError as error:
            found.append(str(error))
    return found
