"""How far long work is: told to whoever watches, never backwards, and to nobody else."""

from pathlib import Path
from typing import Any

import pytest

from inspection_common import subject_of, task_on
from seqloom.inspection.front import Inspection
from seqloom.inspection.pace import watched, work

WORK: dict[str, dict[str, Any]] = {
    "attribution": {"steps": 16},
    "attributions": {},
    "faithfulness": {"permutations": 2, "adversaries": 0},
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_tells_how_far_it_is(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, "classify"), "bag"), "the cat sat", among=["a big dog"])
    told = list[float]()
    with watched(lambda _what, done, total: told.append(done / total)):
        seen = inspection.view(name, **WORK[name])
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1)
    unseen = inspection.view(name, **WORK[name])
    assert seen.to_json() == unseen.to_json()
    assert capfd.readouterr() == ("", "")


def test_work_that_fails_is_over() -> None:
    told = list[str]()
    with watched(lambda what, _done, _total: told.append(what)):
        with pytest.raises(ValueError, match="no"), work("lost", 3):
            raise ValueError("no")
        with work("parts", 2) as moved:
            moved(1)
    assert told == ["0 of 3 lost", "0 of 2 parts", "1 of 2 parts"]


def test_work_after_the_watch_is_told_to_nobody() -> None:
    told = list[str]()
    with watched(lambda what, _done, _total: told.append(what)):
        pass
    with work("parts", 2) as moved:
        moved(1)
    assert told == []
