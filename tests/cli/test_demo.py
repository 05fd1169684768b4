"""Claims about `seqloom demo`: each task is learned while one watches, and everything it names is there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.cli.demo import TASKS
from seqloom.data.synthetic.grammar import worth
from seqloom.demo import SHOWS
from seqloom.errors import ConfigError


def _demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seqloom", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache"), **environment},
    )


def _best(shown: str, metric: str) -> float:
    found = re.search(rf"kept the weights of step [\d,]+, the best on the dev set: {metric} ([\d.]+)", shown)
    assert found is not None, shown
    return float(found[1])


def test_every_demo_that_is_offered_is_there() -> None:
    assert set(TASKS) == set(SHOWS)


@pytest.mark.slow
def test_a_demo_that_is_stopped_before_its_first_look_says_so_and_asks_no_model(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seqloom", "demo", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            if line.startswith("run folder"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert "error" not in "".join(told)


@pytest.mark.parametrize("what", ["regress", "embed", "translat"])
def test_an_unknown_demo_is_refused_with_those_that_are_there(what: str) -> None:
    run = CliRunner().invoke(app, ["demo", what])
    assert isinstance(run.exception, ConfigError)
    assert "translate" in run.exception.fix


def test_the_lowest_possible_perplexity_of_the_grammar_is_shown() -> None:
    limits = {task: show.limit() for task, show in SHOWS.items()}
    assert {task for task, limit in limits.items() if limit} == {"lm"}
    (floor,) = map(float, re.findall(r"is ([\d.]+):", limits["lm"]))
    assert floor == pytest.approx(worth().perplexity, abs=0.005)


@pytest.mark.slow
def test_the_demo_translates_unseen_dates_in_less_than_a_minute_and_shows_where_it_looks(tmp_path: Path) -> None:
    before = os.times()
    run = _demo(tmp_path, COLUMNS="100")
    after = os.times()
    assert run.returncode == 0, run.stderr
    assert _best(run.stdout, "exact_match") > 0.98
    assert "the 3rd of May, 2019 -> 2019-05-03" in run.stdout
    assert '"the 3rd of May, 2019" --view alignment --out attention.png' in run.stdout.partition("next:")[2]
    drawn = run.stdout.partition('Attention of the model while it writes "2019-05-03"\n')[2].splitlines()
    rows = [line.split() for line in drawn[1:12]]
    assert [row[0] for row in rows] == [*"2019-05-03", "<end>"]
    assert all(95 <= sum(map(int, row[1:])) <= 105 for row in rows)  # hundredths, each rounded
    for line in re.findall(r"^  (?:model|report|card) +(\S+)$", run.stdout, re.MULTILINE):
        assert (tmp_path / line).exists()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 60


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("task", "metric", "least"), [("classify", "accuracy", 0.98), ("tag", "f1", 0.95)])
def test_the_demo_of_another_task_learns_it_too(task: str, metric: str, least: float, tmp_path: Path) -> None:
    run = _demo(tmp_path, task)
    assert run.returncode == 0, run.stderr
    assert _best(run.stdout, metric) >= least
    assert (tmp_path / "seqloom-demo" / task / "report.html").exists()
    assert "\x1b" not in run.stdout + run.stderr


@pytest.mark.soak
def test_the_demo_of_a_language_model_comes_near_the_floor_of_its_grammar(tmp_path: Path) -> None:
    run = _demo(tmp_path, "lm", "--out", "here")
    assert run.returncode == 0, run.stderr
    assert _best(run.stdout, "perplexity") < 5.6
    lines = run.stdout.splitlines()
    (best,) = (at for at, line in enumerate(lines) if "the best on the dev set" in line)
    assert any("the lowest possible perplexity on this data is 5.13" in line for line in lines[best - 3 : best])
    assert " -> perplexity" in run.stderr and not re.search(r"^  [+-] ", run.stderr + run.stdout, re.MULTILINE)
    assert (tmp_path / "here" / "model").exists()
