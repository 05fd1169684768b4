"""What a tuning leaves behind is healed or told: trials that are nobody's, workers that gave up, old weights."""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.config.data import DataConfig
from seqloom.config.training import RangeConfig, SpaceConfig
from seqloom.errors import RepeatError
from seqloom.experiments import workers
from seqloom.experiments.tune import study as studies
from seqloom.experiments.tune.plan import TrialEnded, TuningPlan, TuningReport, TuningStarted, TuningWorkerLost
from seqloom.experiments.tune.study import Study, open_storage
from seqloom.experiments.tune.trials import tidy
from seqloom.experiments.tune.tuning import tune
from seqloom.experiments.workers import Interrupted
from seqloom.files.lock import hold
from seqloom.tasks.task import Metric

pytestmark = pytest.mark.slow

SPACE = SpaceConfig(sizes=("nano",), lr=RangeConfig(low=1e-3, high=0.3, log=True), batch_tokens=(128, 256))


def table(path: Path, count: int, seed: int, *parts: str) -> Path:
    """Sentences that are about oaks, or not; with a column that says to which part each belongs, where parts are."""
    draws = random.Random(seed)
    lines = ["text,label" + (",split" if parts else "")]
    for number in range(count):
        words = [*draws.choices(["elm", "fir", "hazel", "larch"], k=5), draws.choice(("oak", "pine"))]
        part = f",{parts[number % len(parts)]}" if parts else ""
        lines.append(f"{' '.join(words)},{'yes' if 'oak' in words else 'no'}{part}")
    path.write_text("\n".join(lines) + "\n")
    return path


def tuned(data: Path, out: Path, **changes: Any) -> Any:
    given = {"models": ("bag",), "space": SPACE, "epochs": 1, "device": "cpu"}
    return tune(data, out=out, **(given | changes))


def a_study(out: Path, count: int) -> Study:
    plan = TuningPlan(
        data=DataConfig(train=("x.csv",)), out=str(out), storage=f"sqlite:///{out / 's.db'}", study="s", trials=count
    )
    return Study(plan, Metric("accuracy"), open_storage(plan.storage))


def test_a_trial_whose_worker_died_before_it_claimed_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "NAMELESS", 0.3)
    first, second = a_study(tmp_path, 1), a_study(tmp_path, 1)
    first.offer_first({"lr": 0.01})
    with studies.quiet():
        first.study.ask()  # and here it is killed
    began = time.monotonic()
    with second.claim() as claimed:
        assert claimed is not None and claimed.number == 1 and claimed.is_default
        assert claimed.trial.suggest_float("lr", 0.0, 1.0) == 0.01
        second.done(claimed.trial, 0.5)
    assert 0.3 <= time.monotonic() - began < 10
    assert [one.state for one in second.results().trials] == ["done"]  # of the lost one nothing is told


def test_without_healing_it_would_hold_its_place_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "NAMELESS", 0.1)
    monkeypatch.setattr(Study, "_healed", lambda _: False)
    first, second = a_study(tmp_path, 1), a_study(tmp_path, 1)
    with studies.quiet():
        first.study.ask()
    time.sleep(0.2)
    with second.claim() as claimed:
        assert claimed is None and second.finished() == 0


def test_a_worker_that_was_taken_for_dead_asks_for_another_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = a_study(tmp_path, 2), a_study(tmp_path, 2)
    monkeypatch.setattr(studies, "NAMELESS", 0.0)
    sign, signed = Study._sign, list[int]()

    def late(self: Study, trial: Any) -> None:
        signed.append(trial.number)
        if len(signed) == 1:
            assert quick._healed()  # it is failed behind our back
        sign(self, trial)

    monkeypatch.setattr(Study, "_sign", late)
    with slow.claim() as claimed:
        assert claimed is not None and signed == [0, 1] and claimed.number == 1


@pytest.mark.soak
def test_why_a_worker_could_not_go_on_is_told(tmp_path: Path) -> None:
    data, dev, told = table(tmp_path / "a.csv", 60, 0), table(tmp_path / "d.csv", 40, 1), list[TuningReport]()

    def show(report: TuningReport) -> None:
        told.append(report)
        if isinstance(report, TuningStarted):
            data.unlink()

    with pytest.raises(
        RepeatError, match=r"workers ended before all trials were done.*a\.csv.*run the same command again to resume"
    ):
        tuned(data, tmp_path / "out", dev=dev, trials=2, jobs=2, show=show)
    lost = [one.problem for one in told if isinstance(one, TuningWorkerLost)]
    assert len(lost) == 2 and all("a.csv" in problem for problem in lost)


def test_a_worker_leaves_the_signals_of_a_terminal_to_the_one_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal ends a process at once: heard by all and passed on too, Ctrl-C would cut off the saving."""

    def handlers(_: Callable[[], bytes]) -> Iterator[bytes]:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            yield str(signal.getsignal(number)).encode()
        raise Interrupted("disk", 4)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    try:
        with pytest.raises(SystemExit) as ended:
            workers._work(theirs, 2, handlers, ())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    heard = [ours.recv_bytes().decode() for _ in range(3)]
    assert ended.value.code == 4 and heard == [str(signal.SIG_IGN), str(signal.SIG_IGN), str(signal.SIG_DFL)]


def test_why_a_trial_failed_is_in_the_results(tmp_path: Path) -> None:
    data, told = table(tmp_path / "a.csv", 60, 0), list[TuningReport]()
    (tmp_path / "out" / "trials").mkdir(parents=True)
    (tmp_path / "out" / "trials" / "000").write_text("no folder")
    results = tuned(data, tmp_path / "out", dev=table(tmp_path / "d.csv", 40, 1), trials=1, show=told.append)
    failed, done = results.trials
    assert failed.state == "failed" and "is a file" in failed.problem and done.state == "done" and not done.problem
    assert "is a file" in next(one.problem for one in told if isinstance(one, TrialEnded))
    assert "is a file" in (tmp_path / "out" / "report.html").read_text()


def test_only_the_best_trial_keeps_its_weights(tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = tuned(
        table(tmp_path / "a.csv", 240, 0), out, dev=table(tmp_path / "d.csv", 80, 1), trials=5, pruner="none"
    )
    assert results.best is not None
    for number in range(5):
        run = out / "trials" / f"{number:03d}"
        assert (run / "config.toml").is_file() and (run / "metrics.jsonl").is_file()
        is_best = number == results.best.number
        assert (run / "model").is_dir() == (run / "checkpoints").is_dir() == is_best
    assert (out / "model" / "manifest.json").is_file()


def test_weights_of_a_trial_in_which_somebody_still_writes_wait_for_the_next_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = tuned(table(tmp_path / "a.csv", 240, 0), out, dev=table(tmp_path / "d.csv", 80, 1), trials=2)
    assert results.best is not None
    other = 1 - results.best.number
    run = out / "trials" / f"{other:03d}"
    (run / "checkpoints").mkdir()
    plan = TuningPlan(data=DataConfig(train=("x.csv",)), out=str(out), storage="", study="s")
    with hold(run):
        assert tidy(plan, results) == ()
    assert (run / "checkpoints").is_dir()
    assert tidy(plan, results) == (other,) and not (run / "checkpoints").exists()


def test_a_column_that_names_the_parts_gives_the_dev_part_also_beside_a_test_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, test = table(tmp_path / "a.csv", 80, 0, "train", "train", "train", "dev"), tmp_path / "test.csv"
    test.write_bytes(b"\xff\xfe not a table \x00")
    seen, train_run = list[dict[str, int]](), workers.train_run

    def watched(folder: Path, resolved: Any, **how: Any) -> Any:
        seen.append({part: len(numbers) for part, numbers in resolved.prepared.splits.items()})
        return train_run(folder, resolved, **how)

    monkeypatch.setattr(workers, "train_run", watched)
    tuned(data, tmp_path / "out", test=test, split_column="split", trials=1)
    assert seen == [{"train": 60, "dev": 20, "test": 0}]
