"""Memory that runs out on one of several ranks: the same command goes on in more pieces, without any option."""

import json
from pathlib import Path

import numpy as np
import pytest

from distributed.forking import Forks, Outcome
from distributed.runs import FAILING_STEP, write_data
from seqloom.errors import DamagedError
from seqloom.files.layouts import RunFile
from seqloom.training.devices import HalvedError, fitting, remembering

RUN = "distributed.runs:run"
ROOM = 4  # rows; a rank has more of nearly every batch


def test_a_run_remembers_in_how_many_pieces_a_step_fits(tmp_path: Path) -> None:
    assert fitting(tmp_path).micro_batches == 1 and not fitting(tmp_path).messages
    with pytest.raises(HalvedError, match="resumes with 4 micro-batches"), remembering(tmp_path):
        raise HalvedError("memory ran out in step 3 on rank 1", micro_batches=4)
    assert fitting(tmp_path).micro_batches == 4 and "4 micro-batches" in fitting(tmp_path).messages[0]


def test_other_errors_leave_nothing_to_remember(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="else"), remembering(tmp_path):
        raise ValueError("something else")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{}}", '{"micro_batches": 0}', '{"micro_batches": "4"}', '{"rows": 2}'])
def test_a_note_that_cannot_be_read_says_what_to_do(tmp_path: Path, content: str) -> None:
    (tmp_path / RunFile.MEMORY).write_text(content)
    with pytest.raises(DamagedError, match="remove the file; the run then finds the number again"):
        fitting(tmp_path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "colors.csv"
    write_data(path)
    return str(path)


def starts(forks: Forks, settings: dict[str, object], count: int) -> list[list[Outcome]]:
    """How the ranks ended, each time that the same command was given."""
    return [forks.run(RUN, 2, settings) for _ in range(count)]


@pytest.mark.slow
def test_a_run_goes_on_in_pieces_that_fit_and_loses_the_same(forks: Forks, data: str, tmp_path: Path) -> None:
    settings = {"data": data, "dropout": 0.0, "steps": 12}
    clean = forks.answers(RUN, 2, {**settings, "out": str(tmp_path / "clean")})[0]["losses"]
    out = tmp_path / "run"
    tight = {**settings, "out": str(out), "room": ROOM, "who": 1}
    *failed, last = starts(forks, tight, 3)
    for pieces, outcomes in zip((2, 4), failed, strict=True):
        assert [outcome.code for outcome in outcomes] == [1, 6]
        assert f"out of memory in step {FAILING_STEP} on rank 1" in outcomes[1].stderr
        assert f"run the same command again: it resumes with {pieces} micro-batches per step" in outcomes[1].stderr
        assert max(outcome.seconds for outcome in outcomes) < 15
    assert [outcome.code for outcome in last] == [0, 0], last[0].stderr + last[1].stderr
    assert json.loads((out / RunFile.MEMORY).read_text()) == {"micro_batches": 4}
    assert any("each step now uses 4 micro-batches" in said for said in last[0].answer["said"])
    losses = last[0].answer["losses"]
    assert len(losses) == 12 - 5  # from the checkpoint before it
    np.testing.assert_allclose(losses, clean[5:], rtol=1e-5)


@pytest.mark.slow
def test_a_run_that_forgets_never_comes_further(forks: Forks, data: str, tmp_path: Path) -> None:
    tight = {"data": data, "out": str(tmp_path / "run"), "steps": 12, "room": ROOM, "who": 1, "forgetful": True}
    for outcomes in starts(forks, tight, 2):
        assert outcomes[1].code == 6 and "resumes with 2 micro-batches" in outcomes[1].stderr
