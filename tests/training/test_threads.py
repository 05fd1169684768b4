"""The number of threads: rehearsed for a new run, kept by a resumed one, and the user has the last word."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.training import threads
from seqloom.training.events import Ended, Report, Started
from seqloom.training.run import train

DATA = [f"{'good' if row % 2 else 'bad'} film number {row},{'yes' if row % 2 else 'no'}" for row in range(40)]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch believes that it has two threads; setting another number is only remembered."""
    for name in threads.SET_BY_USER:
        monkeypatch.delenv(name, raising=False)
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    yield
    assert now == [2]


def trained(folder: Path, **settings: Any) -> tuple[list[Report], Path]:
    data = folder / "data.csv"
    data.write_text("\n".join(["text,label", *DATA]), encoding="utf-8")
    reports: list[Report] = []
    usual: dict[str, Any] = {"model": "bag", "size": "nano", "steps": 2, "device": "cpu", "dev_size": 0.2}
    train(data, out=folder / "run", show=reports.append, **usual | settings)
    return reports, folder / "run"


def about(reports: list[Report]) -> list[str]:
    (started,) = (one for one in reports if isinstance(one, Started))
    return [f"{started.environment.threads}", *(text for text in started.messages if "thread" in text)]


@pytest.mark.slow
def test_the_fastest_number_is_used_and_told_and_a_resumed_run_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_measured", lambda *_: {1: 0.002, 2: 0.003})
    reports, _ = trained(tmp_path)
    assert about(reports) == ["1", "1 thread of 2, the fastest for the first batch (1: 2 ms, 2: 3 ms)"]
    monkeypatch.setattr(threads, "_measured", lambda *_: pytest.fail("rehearsed again"))
    reports, _ = trained(tmp_path, steps=4)
    assert about(reports) == ["1"] and isinstance(reports[-1], Ended) and reports[-1].step == 4


@pytest.mark.slow
def test_a_rehearsal_leaves_the_run_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with").mkdir()
    _, run = trained(tmp_path / "with", model="cnn", dropout=0.5)
    monkeypatch.setattr(threads, "rehearse_threads", lambda _: ())
    monkeypatch.setattr("seqloom.training.run.rehearse_threads", lambda _: ())
    (tmp_path / "without").mkdir()
    _, other = trained(tmp_path / "without", model="cnn", dropout=0.5)
    name = "model/model.safetensors"
    assert (run / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"deterministic": True}, {"model": "linear", "steps": None}], ids=["deterministic", "newton"]
)
def test_there_is_no_rehearsal_where_the_number_must_not_depend_on_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(threads, "_measured", lambda *_: pytest.fail("rehearsed"))
    assert about(trained(tmp_path, **settings)[0]) == ["2"]


@pytest.mark.slow
def test_the_user_has_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_measured", lambda *_: pytest.fail("rehearsed"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert about(trained(tmp_path)[0]) == ["2"]
