"""`seqloom tune` as people type it: a search, what is refused, Ctrl-C, and a kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.errors import ConfigError
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.study import open_storage

SPACE = 'kind = "space"\nsizes = ["nano"]\nbatch_tokens = [128, 256]\n[lr]\nlow = 1e-3\nhigh = 0.3\nlog = true\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with data and a space."""
    for name, count in (("train", 240), ("dev", 80)):
        draws, lines = random.Random(name), ["text,label"]
        for _ in range(count):
            words = [*draws.choices(["elm", "fir", "hazel", "larch"], k=5), draws.choice(("oak", "pine"))]
            lines.append(f"{' '.join(words)},{'yes' if 'oak' in words else 'no'}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path


def typed(place: Path, *more: object) -> list[str]:
    files = [place / "train.csv", "--dev", place / "dev.csv", "--space", place / "space.toml", "--out", place / "out"]
    return ["tune", *map(str, files), "--models", "bag", "--device", "cpu", *map(str, more)]


def verb(place: Path, *more: object) -> Result:
    return CliRunner().invoke(app, typed(place, *more))


@pytest.mark.slow
def test_the_verb_searches_shows_what_it_found_and_goes_on_where_more_is_wanted(place: Path) -> None:
    shown = verb(place, "--trials", 2, "--epochs", 1)
    assert shown.exit_code == 0, shown.output
    assert "Best dev accuracy" in shown.output and "2 done" in shown.output
    assert "best.toml" in shown.output and "weights only of trial" in shown.output
    again = verb(place, "--trials", 3, "--epochs", 1, "--json")
    record = json.loads(again.stdout)
    assert record["reason"] == "done" and [one["state"] for one in record["trials"]] == ["done"] * 3
    other = verb(place, "--trials", 3, "--epochs", 2)
    assert other.exception is not None and "differs: settings" in str(other.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--pruner", "guess"), "--pruner 'guess'. Fix: choose from median, hyperband, none."),
        (("--trials", "0"), "--trials 0. Fix: give 1 to"),
        (("--jobs", "0"), "--jobs 0. Fix: give 1 to"),
        (
            ("--storage", "mysql://host/name"),
            "--storage mysql: only SQLite and PostgreSQL are supported. Fix: give sqlite",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_trial(place: Path, more: tuple[str, ...], words: str) -> None:
    refusal = verb(place, *more).exception
    assert isinstance(refusal, ConfigError) and words in str(refusal)
    assert not list((place / "out").glob("trials/*"))


def long(place: Path, *more: object) -> "subprocess.Popen[bytes]":
    """A search that would take minutes, in a session of its own, as behind a terminal."""
    with (place / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "seqloom", *typed(place, "--trials", 2, "--epochs", 400, "--patience", 0, *more)],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def wait_for(happened: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 90
    while not happened():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)


def saved(place: Path, number: int) -> list[str]:
    return sorted(
        path.parent.name
        for path in (place / "out" / "trials" / f"{number:03d}" / "checkpoints").glob("step-*/manifest.json")
    )


def results(place: Path) -> Results:
    from seqloom.config.data import DataConfig
    from seqloom.experiments.tune.plan import TuningPlan
    from seqloom.experiments.tune.study import Study
    from seqloom.tasks.task import Metric

    url = f"sqlite:///{place / 'out' / 'study.db'}"
    plan = TuningPlan(data=DataConfig(train=("x.csv",)), out=str(place / "out"), storage=url, study="out")
    return Study(plan, Metric("accuracy"), open_storage(url)).results()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_search_goes_on_when_it_is_typed_again_and_ctrl_c_saves_every_trial(place: Path, jobs: int) -> None:
    process = long(place, "--jobs", jobs)
    try:
        wait_for(lambda: all(saved(place, number) for number in range(jobs)), process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    kept = [int(saved(place, number)[-1].removeprefix("step-")) for number in range(jobs)]
    logs = [place / "out" / "trials" / f"{number:03d}" / "events.jsonl" for number in range(jobs)]
    process = long(place, "--jobs", jobs)
    try:
        wait_for(lambda: all(log.read_text().count('"start"') == 2 for log in logs), process)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of the group
        code = process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
    said = (place / "said").read_text()
    assert code == 130 and "stopped; run the same command again to resume" in said, said
    assert "Traceback" not in said
    assert [one.state for one in results(place).trials] == ["running"] * jobs
    for log, least in zip(logs, kept, strict=True):
        begun = [json.loads(line) for line in log.read_text().splitlines() if '"start"' in line]
        assert _step(begun[0]) == 0 and _step(begun[1]) >= least
        assert '"reason":"stopped"' in log.read_text().replace(" ", "")  # its worker saved, and was not cut off


def _step(record: dict[str, object]) -> int:
    value = record.get("step", record.get("record", {}))
    return int(value["step"] if isinstance(value, dict) else value)  # type: ignore[call-overload]
