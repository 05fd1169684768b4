"""How far long work is: told to whoever watches, never backwards, and to nobody else."""

from pathlib import Path
from typing import Any

import pytest

from inspection_common import subject_of, task_on
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.progress import watched, work

WORK: dict[str, dict[str, Any]] = {
    "attribution": {"steps": 16},
    "attributions": {},
    "faithfulness": {"permutations": 2, "adversaries": 0},
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_tells_how_far_it_is(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, "classify"), "bag"), "the cat sat", among=["a big dog"])
    told = list[float]()
    with watched(lambda progress: told.append(progress.share)):
        seen = inspection.view(name, **WORK[name])
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1)
    unseen = inspection.view(name, **WORK[name])
    assert seen.to_json() == unseen.to_json()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "options"),
    [
        ("translate", "attributions", {}),
        ("translate", "attribution", {}),
        ("translate", "attribution_table", {"method": "integrated"}),
        ("classify", "swap", {"old": "cat", "new": "dog"}),
        ("classify", "ablate", {"beside": ["attention", "attribution"]}),
    ],
)
def test_inside_one_view_it_never_goes_back(tmp_path: Path, task: str, name: str, options: dict[str, Any]) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, task), "transformer"), "the cat sat")
    told = list[float]()
    with watched(lambda progress: told.append(progress.share)):
        inspection.view(name, **options)
    assert told == sorted(told) and (told[0], told[-1]) == (0, 1.0)
    assert told.count(1.0) <= 5, "it is not over before it is over"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "given", "method"),
    [
        ("translate", "the cat sat", "occlusion"),
        ("translate", "the cat sat", "leave_one_out"),
        ("embed", ("the cat", "a dog ran"), "integrated"),
    ],
)
def test_each_of_two_sides_is_half_of_the_work(tmp_path: Path, task: str, given: Any, method: str) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, task), "transformer"), given)
    told = list[float]()
    with watched(lambda progress: told.append(progress.share)):
        inspection.attribution(method=method)
    assert 0.5 in told and told == sorted(told)


def test_a_part_of_several_works_never_goes_back_and_the_next_work_begins_anew() -> None:
    told = list[float]()
    with watched(lambda progress: told.append(progress.share)):
        for _ in range(2):
            with work("all", 2) as moved:
                for _ in range(2):
                    with work("parts", 2) as stepped:
                        stepped(2)
                moved(1)
    once = [0, 0, 0.5, 0.5, 0.5, 0.5]
    assert told == once + once


def test_work_that_fails_is_over() -> None:
    told = list[str]()
    with watched(lambda progress: told.append(str(progress))):
        with pytest.raises(ValueError, match="no"), work("lost", 3):
            raise ValueError("no")
        with work("parts", 2) as moved:
            moved(1)
    assert told == ["0 of 3 lost", "0 of 2 parts", "1 of 2 parts"]


def test_work_after_the_watch_is_told_to_nobody() -> None:
    told = list[str]()
    with watched(lambda progress: told.append(str(progress))):
        pass
    with work("parts", 2) as moved:
        moved(1)
    assert told == []
