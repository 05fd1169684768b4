"""R1: a run that is killed at any time, again and again, ends with the bytes of the one that nothing happened to."""

import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from survival.cases import CASES, write_data
from survival.following import JOB, Whole, differences, unverified, whole
from survival.forking import Runs

pytestmark = pytest.mark.slow


class Campaign:
    """The same runs, killed and not; `steps` are all they take, or else those of their cases."""

    def __init__(self, runs: Runs, folder: Path, *, rows: int, steps: int = 0) -> None:
        self.runs, self.folder, self.steps = runs, folder, steps
        write_data(folder, rows)
        self.whole = cache(self._whole)

    def kill(self, kills: int, longest: int, seed: int, *, starting: float = 0.0) -> None:
        """So many kills over all cases in turn, at most `longest` of one run; `starting` is a share of its time."""
        draw, struck, number = random.Random(seed), 0, 0
        while struck < kills:
            case = list(CASES)[number % len(CASES)]
            out, unkilled = self.folder / f"{case}-{number}", self.whole(case)
            asked = self._asked(case) | {"data": str(self.folder), "out": str(out), "eager": number % 2 == 0}
            planned = draw.randint(1, longest)
            soonest, latest = starting * unkilled.seconds, (starting + (1 - starting) / planned) * unkilled.seconds
            struck += self._chain(asked, [draw.uniform(soonest, latest) for _ in range(planned)])
            assert differences(out, unkilled) == [], f"SEQLOOM_SEED={seed}, run {number}"
            number += 1

    def _chain(self, asked: dict[str, Any], limits: list[float]) -> int:
        """How often a run was killed before it ended; then it has ended."""
        for struck, limit in enumerate(limits):
            (outcome,) = self.runs.run(JOB, 1, asked, limit=limit)
            assert outcome.code in (-9, 0), outcome.stderr
            assert unverified(Path(asked["out"])) == []
            if outcome.code == 0:
                return struck
        self.runs.answers(JOB, 1, asked)
        return len(limits)

    def _asked(self, case: str) -> dict[str, Any]:
        return {"case": case} | ({"steps": self.steps} if self.steps else {})

    def _whole(self, case: str) -> Whole:
        return whole(self.runs, self.folder, self.folder / case, **self._asked(case))


def test_eight_kills_in_chains_change_no_byte(runs: Runs, tmp_path: Path) -> None:
    campaign = Campaign(runs, tmp_path, rows=100, steps=40)
    campaign.kill(2 * len(CASES), 2, seed=0, starting=0.25)  # so every case is killed, and rarely before its first save


@pytest.mark.soak
def test_three_hundred_kills_in_chains_change_no_byte(runs: Runs, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEQLOOM_SEED", random.SystemRandom().randrange(2**32)))
    campaign = Campaign(runs, tmp_path, rows=300)
    assert all(110 <= campaign.whole(case).steps <= 130 for case in CASES), "the runs are as long as they claim"
    campaign.kill(300, 5, seed)
