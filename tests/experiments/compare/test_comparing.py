"""Whole comparisons: what they leave, that they go on, and that being killed changes nothing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import seqloom
from seqloom.config.data import BadRows, ColumnSplit, DataConfig, EncodingConfig, GivenSplit
from seqloom.config.training import EpochsConfig, NewtonConfig
from seqloom.errors import ConfigError
from seqloom.experiments.compare import comparison
from seqloom.experiments.compare.comparison import OpenedComparison, run_comparison, usual
from seqloom.experiments.compare.plan import (
    Budget,
    ComparisonEnded,
    ComparisonPlan,
    ComparisonReport,
    ComparisonStarted,
    PlannedModel,
    RunEnded,
    RunStarted,
)
from seqloom.experiments.compare.progress import told
from seqloom.experiments.compare.results import Comparison
from seqloom.experiments.compare.runs import resolved_run, run_evaluation
from seqloom.experiments.compare.winner import best_run, require_shippable, ship_winner
from seqloom.files.jsonl import read_lines
from seqloom.training.devices import OutOfMemoryError
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from training_common import write_data

pytestmark = pytest.mark.slow


def plan(data: Path, out: Path, **changes: Any) -> ComparisonPlan:
    """Two small models and the baseline on a file whose last word says the label."""
    given: dict[str, Any] = {
        "data": DataConfig(train=(str(data),), split=ColumnSplit(split_column="split")),
        "out": str(out),
        "models": ("bag", "cnn"),
        "budget": Budget(kind="tokens", amount=2000),
        "seeds": 2,
        "size": "nano",
        "settings": {"validate_every": 2},
        "device": "cpu",
    }
    return ComparisonPlan(**(given | changes))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"), rows=150)


class Done:
    """A finished comparison with all that was told."""

    def __init__(self, plan: ComparisonPlan, jobs: int = 1) -> None:
        self.plan, self.reports = plan, list[ComparisonReport](run_comparison(plan, jobs))
        last = self.reports[-1]
        assert isinstance(last, ComparisonEnded) and last.comparison is not None
        self.comparison: Comparison = last.comparison

    def begun(self) -> list[str]:
        return [report.entry.name for report in self.reports if isinstance(report, RunStarted)]

    def statistics(self) -> dict[str, np.ndarray]:
        """Of every run, by its name."""
        entries = [PlannedModel(name, seed) for name in ("linear", "bag", "cnn") for seed in range(self.plan.seeds)]
        found = {entry.name: run_evaluation(self.plan, entry) for entry in entries}
        return {name: one.statistics for name, one in found.items() if one is not None}


def test_the_usual_budget_does_not_depend_on_the_order_of_the_models(data: Path, tmp_path: Path) -> None:
    amounts = set()
    for names in (("linear", "bag"), ("bag", "linear")):
        asked = plan(data, tmp_path, models=names, budget=Budget(kind="tokens", amount=None))
        amounts.add(usual(asked, resolve(asked.data, RunRequest(model=names[0], size="nano"))))
    assert len(amounts) == 1


def test_a_budget_does_not_end_what_is_solved(data: Path, tmp_path: Path) -> None:
    found, _ = resolved_run(plan(data, tmp_path, budget=Budget(kind="tokens", amount=1)), PlannedModel("linear", 0))
    training = found.config.training
    assert isinstance(training.optimizer, NewtonConfig)
    assert training.duration == EpochsConfig(epochs=len(training.optimizer.l2))


@pytest.mark.parametrize(
    "setting", [{"ema": 0.99}, {"lr": 0.01}, {"freeze": ("embedding",)}, {"average_checkpoints": 2}]
)
def test_settings_that_newton_cannot_use_do_not_apply_to_a_baseline_that_was_added(
    data: Path, tmp_path: Path, setting: dict[str, Any]
) -> None:
    asked = plan(data, tmp_path, models=("bag",), settings=setting)
    opening = OpenedComparison(asked)
    assert isinstance(opening.resolved["linear"].config.training.optimizer, NewtonConfig)
    (name, value), trained = *setting.items(), opening.resolved["bag"].config.training
    assert getattr(trained, name) == value


def test_a_setting_that_a_named_model_refuses_leaves_no_comparison_behind(data: Path, tmp_path: Path) -> None:
    for settings, models in (({"ema": 0.99}, ("linear", "bag")), ({}, ("linear", "bag"))):
        events = run_comparison(plan(data, tmp_path / "compared", models=models, settings=settings))
        with pytest.raises(ConfigError, match="ema") if settings else nullcontext():
            next(events)
        events.close()


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(plan(data, tmp_path_factory.mktemp("comparison") / "out"))


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_what_is_added_and_how_long_all_runs_take_is_told_before_the_first_one(data: Path, tmp_path: Path) -> None:
    started = next(run_comparison(plan(data, tmp_path / "compared", models=("bag",), device="cpu")))
    assert isinstance(started, ComparisonStarted)
    assert "baseline: linear, trained beside the named models to compare them with" in started.messages
    assert started.messages[-1].startswith("estimated time of all runs: about ")


def test_the_estimate_says_how_many_runs_share_how_many_cores(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    asked = plan(data, tmp_path / "compared", models=("bag",), device="cpu")
    monkeypatch.setattr(comparison, "trial_line", lambda *_: "busy")
    found = {"bag": resolved_run(asked, PlannedModel("bag", 0))[0]}
    lines = {jobs: comparison.RunTimes(asked, found, asked.entries(), jobs).estimate() for jobs in (1, 2, 4)}
    assert ", one at a time on " in lines[1][0] and lines[1][1] == "busy"
    assert lines[2][0].endswith(", 2 at a time on 2 cores") and lines[4][0].endswith(", 4 at a time on 2 cores")
    two, four = (comparison.RunTimes(asked, found, asked.entries(), jobs) for jobs in (2, 4))
    assert two.abreast == four.abreast == 2, "more runs than cores do not end sooner"


def test_the_time_that_remains_follows_the_runs_that_have_ended(data: Path, tmp_path: Path) -> None:
    asked = plan(data, tmp_path / "compared", models=("bag", "linear"), seeds=3, device="cpu")
    now = 0.0
    resolved = {name: resolved_run(asked, PlannedModel(name, 0))[0] for name in asked.models}
    times = comparison.RunTimes(asked, resolved, asked.entries(), 2, lambda: now)

    def ended(name: str, seed: int) -> RunEnded:
        found = times.follow(RunEnded(PlannedModel(name, seed), 0.9, 1.0, metric="accuracy"))
        assert isinstance(found, RunEnded)
        return found

    times.follow(RunStarted(PlannedModel("linear", 0), ""))
    assert ended("linear", 0).seconds_left is None  # it is solved, and says nothing about the others
    times.follow(RunStarted(PlannedModel("bag", 0), ""))
    now = 80.0
    times.follow(RunStarted(PlannedModel("bag", 1), ""))
    now = 100.0
    first = ended("bag", 0)  # 100 seconds; of the other two, 20 have passed
    assert (first.runs_left, first.seconds_left) == (4, pytest.approx((200 - 20) / 2))
    assert told(first).lines == ("bag-0: accuracy 0.9 after 1 s; 4 runs left, about 2 min",)


def test_every_model_and_the_baseline_are_trained_with_every_seed(done: Done) -> None:
    assert sorted(done.begun()) == ["bag-0", "bag-1", "cnn-0", "cnn-1", "linear-0", "linear-1"]
    assert {one.name for one in done.comparison.models} == {"linear", "bag", "cnn"}
    assert done.comparison.baseline == "linear"


def test_every_run_is_an_ordinary_run_folder_that_read_the_same_tokens(done: Done) -> None:
    folder = done.plan.folder
    loaded = seqloom.load(folder / "runs" / "cnn-1")
    assert loaded.run is not None and loaded.run.training.seed == 1
    assert loaded.evaluate().rows == 30
    lines = [one for one in read_lines(folder / "results.jsonl").records if one["kind"] == "run"]
    assert len(lines) == 6
    assert {one["end_reason"] for one in lines} == {"done"}
    budgets = [one["tokens"] for one in lines if one["model"] != "linear"]  # which is solved, and reads as it needs
    assert len(budgets) == 4 and all(2000 <= tokens <= 2500 for tokens in budgets), "the last step may go beyond"


def test_the_score_of_a_model_is_the_mean_of_what_its_runs_evaluate_to(done: Done) -> None:
    scores = [seqloom.load(done.plan.folder / "runs" / f"bag-{seed}").evaluate().metrics["accuracy"] for seed in (0, 1)]
    assert done.comparison.model("bag").seeds == pytest.approx(scores)
    assert done.comparison.model("bag").score.value == pytest.approx(np.mean(scores))


def test_costs_are_measured_and_pages_written(done: Done) -> None:
    assert all(one.cost is not None and one.cost.latency.median > 0 for one in done.comparison.models)
    sizes = {one.name: one.cost.disk for one in done.comparison.models if one.cost}
    assert sizes["linear"] > sizes["bag"]  # hashed pairs of words take room
    page = (done.plan.folder / "report.html").read_text()
    assert done.comparison.sentence() in page and "<script" not in page
    assert done.comparison.leak is not None and done.comparison.leak.rows == 30


def test_the_same_command_again_trains_nothing_and_says_the_same(done: Done) -> None:
    again = Done(done.plan)
    assert again.begun() == []
    assert again.comparison == done.comparison
    begun = again.reports[0]
    assert isinstance(begun, ComparisonStarted) and begun.finished == 6
    assert len(read_lines(done.plan.folder / "results.jsonl").records) == 6 + 3  # nothing twice


def test_dev_is_judged_without_a_look_at_test_and_test_looks_are_written_down(done: Done) -> None:
    looks = [done.plan.folder / "runs" / name / "test_evaluations.jsonl" for name in ("bag-0", "cnn-1", "linear-0")]
    assert not any(path.exists() for path in looks)
    kept = (done.plan.folder / "report.html").read_bytes()
    tested = Done(plan(Path(done.plan.data.train[0]), done.plan.folder, split="test"))
    assert all(len(read_lines(path).records) == 1 for path in looks)
    assert tested.comparison.split == "test" and tested.begun() == []
    lines = [line for report in tested.reports for line in told(report).lines]
    assert "6 of 6 runs are trained; 6 of them are evaluated now" in lines
    assert not any(word in line for line in lines for word in ("estimated time", "training one", " after "))
    assert (done.plan.folder / "report.html").read_bytes() == kept
    assert tested.comparison.sentence() in (done.plan.folder / "test" / "report.html").read_text()


def test_runs_that_are_only_evaluated_take_no_time_beside_a_model_that_is_added(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "trial_line", lambda *_: "")
    asked = plan(data, tmp_path / "compared", models=("bag",), device="cpu", split="test")
    found = {"bag": resolved_run(asked, PlannedModel("bag", 0))[0]}
    untrained = comparison.RunTimes(asked, found, asked.entries(), 1).seconds
    (tmp_path / "compared" / "evaluations" / "dev" / "bag-0").mkdir(parents=True)
    times = comparison.RunTimes(asked, found, asked.entries(), 1)
    assert times.seconds == untrained | {PlannedModel("bag", 0): 0.0} and untrained[PlannedModel("bag", 0)] > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("task", "model", "field", "judged"), [("tag", "bilstm", "tags", 60), ("classify", "bag", "label", 35)]
)
def test_rows_that_training_skipped_end_no_comparison(
    tmp_path: Path, task: Any, model: str, field: str, judged: int
) -> None:
    """Tags are read in windows, so what was too long to learn from is judged whole; of other tasks it is skipped."""
    words = [["Ada"] * (1 + row % 9) for row in range(60)]
    answers = [
        ["B-P", "O"][len(some) % 2 :][:1] * len(some) if field == "tags" else "ab"[len(some) % 2] for some in words
    ]
    lines = [{"tokens": some, field: answer} for some, answer in zip(words, answers, strict=True)]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    train, dev = (str(tmp_path / f"{part}.jsonl") for part in ("train", "dev"))
    asked = msgspec.structs.replace(
        plan(tmp_path, tmp_path / "out", models=(model,), seeds=1, budget=Budget(amount=200)),
        data=DataConfig(
            train=(train,),
            dev=(dev,),
            task=task,
            split=GivenSplit(),
            bad_rows=BadRows(skip_bad_rows=True, max_bad_rows=1.0),
        ),
        encoding=EncodingConfig(max_length=5, overlong="error"),
    )
    found = Done(asked).comparison
    assert found.rows == judged
    assert max(one.high for one in found.lengths) == (9 if judged == 60 else 5)


def test_another_comparison_in_the_same_folder_is_refused(data: Path, done: Done) -> None:
    told = "contains a different comparison: budget amount was [0-9]+ and is now 999"
    with pytest.raises(ConfigError, match=told):
        list(run_comparison(plan(data, done.plan.folder, budget=Budget(kind="tokens", amount=999))))


OLD_SETTINGS = (
    {"task": "classify", "budget": {"kind": "symbols", "amount": 600}, "size": "nano", "wishes": {}},
    {"task": "classify", "encoding": {"kind": "encoding", "longest": 99, "too_long": "cut"}},
)


@pytest.mark.parametrize("old", OLD_SETTINGS, ids=["wishes", "encoding"])
def test_a_comparison_of_an_earlier_version_is_refused_and_another_folder_asked_for(
    old: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps(old))
    with pytest.raises(ConfigError, match=r"a comparison of an earlier version .*resumed\. Fix: give another --out\.$"):
        list(run_comparison(plan(data, tmp_path)))


def test_runs_at_the_same_time_come_out_as_one_after_the_other(data: Path, done: Done, tmp_path: Path) -> None:
    together = Done(plan(data, tmp_path / "out"), jobs=2)
    assert sorted(together.begun()) == sorted(done.begun())
    assert same(together.statistics(), done.statistics())
    assert {one.jobs for one in together.comparison.models} == {2}
    assert {one.jobs for one in done.comparison.models} == {1}


@pytest.mark.parametrize(
    "place",
    [
        "validation:kill:5",
        pytest.param("before-manifest:kill:9", marks=pytest.mark.soak),
        pytest.param("metrics-half:kill:3", marks=pytest.mark.soak),
    ],
)
def test_a_comparison_that_was_killed_goes_on_to_the_same_results(
    data: Path, done: Done, tmp_path: Path, place: str
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "seqloom", "compare", str(data), "--split-column", "split", "--out", str(out)]
    command += ["--models", "bag,cnn", "--tokens", "2000", "--seeds", "2", "--size", "nano", "--jobs", "1"]
    command += ["--validate-every", "2", "--device", "cpu"]
    environment = {**os.environ, "SEQLOOM_FAIL": place, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = [path.name for path in sorted((out / "evaluations" / "dev").glob("[!.]*"))]
    resumed = Done(plan(data, out))
    assert set(before).isdisjoint(resumed.begun())
    assert same(resumed.statistics(), done.statistics())
    assert len(read_lines(out / "results.jsonl").records) == 6 + 3


def cased(folder: Path) -> dict[str, Any]:
    """The plan's data: texts whose words differ in case. `linear` drops it, so it knows fewer words than the others."""
    draws = np.random.default_rng(0)
    words = [f"{first}{number}" for first in ("Word", "word") for number in range(60)]
    rows = [" ".join([*draws.choice(words, 8), ("Oak", "Pine")[row % 2]]) + f",{row % 2}" for row in range(200)]
    (folder / "cased.csv").write_text("\n".join(["text,label", *rows, ""]))
    return {"data": DataConfig(train=(str(folder / "cased.csv"),))}


@pytest.mark.parametrize("models", [("cnn", "linear"), ("linear", "cnn")], ids=",".join)
def test_models_whose_words_differ_in_case_are_measured_with_their_own_tokens(
    models: tuple[str, ...], tmp_path: Path
) -> None:
    asked = plan(tmp_path, tmp_path / "out", models=models, budget=Budget(amount=500))
    found = Done(msgspec.structs.replace(asked, **cased(tmp_path))).comparison
    assert all(one.cost is not None and one.cost.memory > 0 for one in found.models)


@pytest.mark.parametrize("budget", [Budget(amount=900), Budget(kind="parameters")], ids=lambda one: one.kind)
def test_a_model_can_be_added_before_one_that_reads_words_in_another_case(budget: Budget, tmp_path: Path) -> None:
    for models in (("linear", "bag"), ("cnn", "linear", "bag")):
        asked = plan(tmp_path, tmp_path / "out", models=models, budget=budget)
        OpenedComparison(msgspec.structs.replace(asked, **cased(tmp_path)))


def test_a_margin_that_no_two_shares_exceed_is_refused(data: Path, tmp_path: Path) -> None:
    for margin in (0.5, 1.0):
        with pytest.raises(ConfigError, match=r"accuracy is between 0 and 1\. Fix: give --margin 0\.01"):
            list(run_comparison(plan(data, tmp_path / "out", margin=margin)))
    assert not (tmp_path / "out").exists()
    OpenedComparison(plan(data, tmp_path, margin=0.49))


def test_about_as_many_parameters_each_where_that_is_the_budget(data: Path, tmp_path: Path) -> None:
    budget = Budget(kind="parameters", amount=3000)
    length = {"duration": {"kind": "steps", "steps": 2}}  # as a plan has it: plain
    found = Done(plan(data, tmp_path / "out", budget=budget, seeds=1, settings=length)).comparison
    assert found.model("bag").parameters == pytest.approx(3000, rel=0.2)
    assert found.model("cnn").parameters == pytest.approx(3000, rel=0.2)
    assert any("linear cannot be scaled" in note for note in found.messages)


def test_a_run_that_cannot_be_is_told_before_anything_is_trained(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gpt"):
        list(run_comparison(plan(data, tmp_path / "out", models=("bag", "gpt"))))
    assert not (tmp_path / "out").exists()


def test_a_failing_run_ends_the_comparison_with_its_reason(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError("no such luck")

    monkeypatch.setattr("seqloom.experiments.compare.runs.load", refuse)
    with pytest.raises(ConfigError, match=r"linear-0: .*no such luck"):
        list(run_comparison(plan(data, tmp_path / "out", seeds=1)))


@pytest.mark.parametrize(
    "error", [OutOfMemoryError("out of memory, with one row"), torch.OutOfMemoryError("no room"), MemoryError()]
)
def test_a_run_that_runs_out_of_memory_ends_the_comparison_with_its_reason(
    error: Exception, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("seqloom.experiments.workers.train_run", refuse)
    with pytest.raises(ConfigError, match=r"^linear-0: out of memory.*leave the model out") as raised:
        list(run_comparison(plan(data, tmp_path / "out", seeds=1)))
    assert str(error) in str(raised.value)


def test_an_error_of_our_own_still_ends_the_comparison_as_it_is(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("seqloom.experiments.workers.train_run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        list(run_comparison(plan(data, tmp_path / "out", seeds=1)))


def test_the_python_call_gives_the_same_as_the_generator(data: Path, done: Done) -> None:
    told: list[ComparisonReport] = []
    found = seqloom.compare(
        data,
        out=done.plan.folder,
        models=["bag", "cnn"],
        tokens=2000,
        seeds=2,
        size="nano",
        device="cpu",
        split_column="split",
        validate_every=2,
        show=told.append,
    )
    assert found == done.comparison
    assert not [report for report in told if isinstance(report, RunStarted | RunEnded)]
    assert "<iframe" in found._repr_html_()


def test_the_model_of_the_winner_is_shipped_and_only_a_model_folder_is_replaced(done: Done, tmp_path: Path) -> None:
    winner = done.comparison.winner
    assert winner is not None and done.comparison.floor is not None
    ship = tmp_path / "new" / "best"
    for _ in range(2):  # the second replaces the first
        run = ship_winner(done.plan, done.comparison, ship)
        weights = [folder / "model.safetensors" for folder in (ship, done.plan.run_folder(run) / "model")]
        assert weights[0].read_bytes() == weights[1].read_bytes()
    seeds = dict(zip(range(2), winner.seeds, strict=True))
    assert run.model == winner.name and seeds[run.seed] == max(winner.seeds)
    assert seqloom.load(ship).predict(["a b"])
    assert [path.name for path in ship.parent.iterdir()] == ["best"]
    (ship / "mine.txt").write_text("notes")
    for place in (ship, tmp_path, done.plan.run_folder(run)):
        with pytest.raises(ConfigError, match="not a model folder, so it is not replaced"):
            require_shippable(place, "dev")


def test_a_comparison_ends_with_commands_that_name_the_winner_and_its_run(done: Done) -> None:
    winner = done.comparison.winner
    assert winner is not None
    run = best_run(done.plan, done.comparison, winner.name)
    commands = done.comparison.commands
    assert f"seqloom predict {done.plan.run_folder(run)} FILE" in commands
    assert any(one.startswith("seqloom compare") and "--split-column split" in one for one in commands)
    assert f"seqloom evaluate {done.plan.run_folder(run)} --split test" in commands
