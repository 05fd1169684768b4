"""How far long work is: told to whoever watches, never backwards, and to nobody else."""

from pathlib import Path
from typing import Any

import pytest

from inspection_common import subject_of, task_on
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.subject import WorkShown

WORK: dict[str, dict[str, Any]] = {
    "attribution": {"steps": 16},
    "attributions": {},
    "faithfulness": {"permutations": 2, "adversaries": 0},
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_tells_how_far_it_is(tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    subject, told = subject_of(task_on(tmp_path, "classify"), "bag"), list[float | None]()
    asked = {"data": ["a big dog", "a cat"]}
    inspection = Inspection(subject, "the cat sat", **asked, show=lambda progress: told.append(progress.share))
    assert told == [0, 0.5, 1], "the inputs are read"
    told.clear()
    seen = inspection.view(name, **WORK[name])
    assert told == sorted(told, key=float)
    assert (told[0], told[-1]) == (0, 1)
    unseen = Inspection(subject, "the cat sat", **asked).view(name, **WORK[name])
    assert seen.to_json() == unseen.to_json()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "options"),
    [
        ("translate", "attributions", {}),
        ("translate", "attribution", {}),
        ("translate", "attribution_table", {"method": "integrated_gradients"}),
        ("classify", "swap", {"old": "cat", "new": "dog"}),
        ("classify", "ablate", {"views": ["attention", "attribution"]}),
    ],
)
def test_inside_one_view_it_never_goes_back(tmp_path: Path, task: str, name: str, options: dict[str, Any]) -> None:
    told = list[float | None]()
    inspection = Inspection(
        subject_of(task_on(tmp_path, task), "transformer"), "the cat sat", show=lambda one: told.append(one.share)
    )
    inspection.view(name, **options)
    assert told == sorted(told, key=float) and (told[0], told[-1]) == (0, 1.0)
    assert told.count(1.0) <= 5, "it is not over before it is over"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "given", "method"),
    [
        ("translate", "the cat sat", "occlusion"),
        ("translate", "the cat sat", "leave_one_out"),
        ("embed", ("the cat", "a dog ran"), "integrated_gradients"),
    ],
)
def test_each_of_two_sides_is_half_of_the_work(tmp_path: Path, task: str, given: Any, method: str) -> None:
    told = list[float | None]()
    inspection = Inspection(
        subject_of(task_on(tmp_path, task), "transformer"), given, show=lambda one: told.append(one.share)
    )
    inspection.attribution(method=method)
    assert 0.5 in told and told == sorted(told, key=float)


def test_a_part_of_several_works_never_goes_back_and_the_next_work_begins_anew() -> None:
    told = list[float | None]()
    shown = WorkShown(lambda progress: told.append(progress.share))
    for _ in range(2):
        with shown.work("all", 2) as moved:
            for _ in range(2):
                with shown.work("parts", 2) as stepped:
                    stepped(2)
            moved(1)
    once = [0, 0, 0.5, 0.5, 0.5, 0.5]
    assert told == once + once


def test_work_that_fails_is_over() -> None:
    told = list[str]()
    shown = WorkShown(lambda progress: told.append(str(progress)))
    with pytest.raises(ValueError, match="no"), shown.work("lost", 3):
        raise ValueError("no")
    with shown.work("parts", 2) as moved:
        moved(1)
    assert told == ["0 of 3 lost", "0 of 2 parts", "1 of 2 parts"]
