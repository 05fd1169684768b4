"""R1: a run that is killed at any time, again and again, ends with the bytes of the one that nothing happened to."""

import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from survival.cases import CASES
from survival.following import JOB, Whole, differences, unverified, whole
from survival.forking import Runs

pytestmark = pytest.mark.slow
Wholes = Callable[[str], Whole]


@pytest.fixture(scope="module")
def wholes(runs: Runs, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Wholes:
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def of(case: str) -> Whole:
        found = whole(runs, data, folder / case, case)
        assert 110 <= found.steps <= 130, "the runs are as long as they claim"
        return found

    return of


def chain(runs: Runs, asked: dict[str, Any], draw: random.Random, kills: int, seconds: float) -> int:
    """How often a run was killed before it ended; then it has ended."""
    for struck in range(kills):
        (outcome,) = runs.run(JOB, 1, asked, limit=draw.uniform(0, seconds / kills))
        assert outcome.code in (-9, 0), outcome.stderr
        assert unverified(Path(asked["out"])) == []
        if outcome.code == 0:
            return struck
    runs.answers(JOB, 1, asked)
    return kills


def campaign(runs: Runs, data: Path, wholes: Wholes, folder: Path, kills: int, longest: int, seed: int) -> None:
    """So many kills over all cases in turn, at most `longest` of one run."""
    draw, struck, number = random.Random(seed), 0, 0
    while struck < kills:
        case = list(CASES)[number % len(CASES)]
        asked = {"data": str(data), "out": str(folder / f"{case}-{number}"), "case": case, "eager": number % 2 == 0}
        struck += chain(runs, asked, draw, draw.randint(1, longest), wholes(case).seconds)
        assert differences(Path(asked["out"]), wholes(case)) == [], f"SEQLOOM_SEED={seed}, run {number}"
        number += 1


def test_six_kills_in_chains_change_no_byte(runs: Runs, data: Path, wholes: Wholes, tmp_path: Path) -> None:
    campaign(runs, data, wholes, tmp_path, 2 * len(CASES), 2, seed=0)  # so every case is killed


@pytest.mark.soak
def test_three_hundred_kills_in_chains_change_no_byte(runs: Runs, data: Path, wholes: Wholes, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEQLOOM_SEED", random.SystemRandom().randrange(2**32)))
    campaign(runs, data, wholes, tmp_path, 300, 5, seed)
