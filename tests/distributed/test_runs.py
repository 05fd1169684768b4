"""Runs of several processes end to end: equal to one process, and equal to themselves whatever happens on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from distributed.forking import Forks
from distributed.launched import SURROUNDINGS, children, fronted, wait_for
from distributed.runs import sums, write_data
from seqloom.training.launcher import launch

pytestmark = pytest.mark.slow
RUN = "distributed.runs:run"
PLACES = [
    ("before-rename:kill:5", 0),
    ("before-manifest:kill:2", 0),
    ("between-update-and-count:kill:8", 1),
    ("validation:kill:2", 1),
    ("metrics-half:kill:3", 0),
    ("file-new:kill:9", 0),
    ("file-0:kill:9", 0),
    ("file-25:kill:9", 0),
    ("file-50:kill:9", 0),
    ("file-75:kill:9", 0),
    ("file-100:kill:9", 0),
    ("file-synced:kill:9", 0),
    ("after-rename:kill:5", 0),
    ("manifest-half:kill:2", 0),
    ("after-manifest:kill:2", 0),
    ("before-model:kill", 0),
    ("after-model:kill", 0),
    ("retention-half:kill", 0),
    ("first-batch:kill:2", 0),
    ("last-batch:kill:2", 0),
    ("epoch-boundary:kill", 0),
    ("vocabulary-half:kill", 0),
    ("signal:kill", 0),
]  # and `index-half`, where no rank waits for another yet


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "colors.csv"
    write_data(path)
    return str(path)


@pytest.fixture(scope="module")
def clean(forks: Forks, data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sums of a run of two processes that nothing happened to."""
    out = tmp_path_factory.mktemp("clean") / "run"
    forks.answers(RUN, 2, {"data": data, "out": str(out)})
    return sums(out)


def test_two_processes_read_the_same_examples_and_lose_the_same_as_one(forks: Forks, data: str, tmp_path: Path) -> None:
    settings = {"data": data, "steps": 100, "save_every": 50, "dropout": 0.0}
    one, *_ = forks.answers(RUN, 1, {**settings, "out": str(tmp_path / "one")})
    two = forks.answers(RUN, 2, {**settings, "out": str(tmp_path / "two")})
    assert two[0]["losses"] == two[1]["losses"] and len(one["losses"]) == 100
    np.testing.assert_allclose(two[0]["losses"], one["losses"], rtol=1e-5)
    pairs = [zip_longest(*step) for step in zip(two[0]["seen"], two[1]["seen"], strict=True)]
    assert [[id_ for pair in step for id_ in pair if id_ is not None] for step in pairs] == one["seen"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("place", "who"), PLACES)
def test_two_processes_killed_at_a_place_end_with_the_same_bytes(
    forks: Forks, data: str, clean: dict[str, str], tmp_path: Path, place: str, who: int
) -> None:
    settings = {"data": data, "out": str(tmp_path / "run")}
    outcomes = forks.run(RUN, 2, {**settings, "place": place, "who": who})
    assert [outcome.code for outcome in outcomes] == ([-9, 1] if who == 0 else [1, -9])
    assert "has ended before the run was over" in outcomes[1 - who].stderr
    assert max(outcome.seconds for outcome in outcomes) < 15
    forks.answers(RUN, 2, settings)
    assert sums(tmp_path / "run") == clean


def test_two_processes_one_of_which_was_killed_while_data_was_encoded_end_with_the_same_bytes(
    forks: Forks, clean: dict[str, str], tmp_path: Path
) -> None:
    write_data(tmp_path / "colors.csv")  # nobody has encoded it yet
    settings = {"data": str(tmp_path / "colors.csv"), "out": str(tmp_path / "run")}
    killed, waiting = forks.run(RUN, 2, {**settings, "place": "index-half:kill", "late": True}, limit=8)
    assert killed.code == -9 and killed.seconds < 8 <= waiting.seconds  # whoever starts the ranks ends the other
    assert not (tmp_path / "run").exists()
    forks.answers(RUN, 2, settings)
    assert sums(tmp_path / "run") == clean


@pytest.mark.sampled(1)
@pytest.mark.parametrize("others", [1, 3])
def test_another_number_of_processes_goes_on_with_sharded_weights(
    forks: Forks, data: str, tmp_path: Path, others: int
) -> None:
    settings = {"data": data, "dropout": 0.0}
    whole = forks.answers(RUN, 1, {**settings, "out": str(tmp_path / "whole")})[0]["losses"]
    sharded = {**settings, "out": str(tmp_path / "run")}
    forks.run(RUN, 2, {**sharded, "sharded": True, "place": "validation:kill:2"})
    assert list(tmp_path.glob("run/checkpoints/*/model-00002-of-00002.safetensors"))
    rest = forks.answers(RUN, others, {**sharded, "sharded": others > 1})[0]["losses"]
    assert 0 < len(rest) < len(whole)
    np.testing.assert_allclose(rest, whole[-len(rest) :], rtol=1e-5)


def given(data: str, out: Path, failures: dict[str, list[object]], **settings: object) -> list[str]:
    return [json.dumps({"data": data, "out": str(out), "failures": failures, **settings})]


def test_a_rank_that_stopped_is_found_and_all_are_started_again_and_end_with_the_same_bytes(
    data: str, clean: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = given(data, tmp_path / "run", {"0": [1, "stopped"]}, timeout=3)
    assert launch(arguments, 2, max_restarts=1, module="distributed.runs", environment=SURROUNDINGS) == 0
    assert sums(tmp_path / "run") == clean
    said = capfd.readouterr().err
    assert said.count("restarting all 2 ranks") == 1 and "rank 1 was stopped" in said and "Current thread" in said


@pytest.mark.soak
def test_ranks_that_are_killed_and_then_stopped_are_started_again_each_time(
    data: str, clean: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = given(data, tmp_path / "run", {"0": [0, "killed"], "1": [1, "stopped"]}, timeout=3)
    assert launch(arguments, 2, max_restarts=2, module="distributed.runs", environment=SURROUNDINGS) == 0
    assert sums(tmp_path / "run") == clean
    said = capfd.readouterr().err
    assert "was killed by SIGKILL" in said and said.count("restarting all 2 ranks") == 2


@pytest.mark.soak
def test_ranks_whose_launcher_is_killed_save_and_go_on_later_with_the_same_bytes(
    forks: Forks, data: str, tmp_path: Path
) -> None:
    steps = {"steps": 400}
    forks.answers(RUN, 2, {"data": data, "out": str(tmp_path / "clean"), **steps})
    out = tmp_path / "run"
    front = subprocess.Popen(fronted(given(data, out, {}, **steps)), env={**os.environ, **SURROUNDINGS})
    wait_for(lambda: bool(list(out.glob("checkpoints/step-*"))))
    (agent,) = children(front.pid)
    ranks = children(agent)
    os.kill(agent, signal.SIGKILL)
    assert front.wait(timeout=15) == 128 + 9
    wait_for(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks), seconds=15)
    forks.answers(RUN, 2, {"data": data, "out": str(out), **steps})
    assert sums(out) == sums(tmp_path / "clean")


@pytest.mark.soak
def test_a_node_that_is_killed_and_started_again_ends_with_the_same_bytes(
    forks: Forks, data: str, tmp_path: Path
) -> None:
    steps = {"steps": 400}
    forks.answers(RUN, 2, {"data": data, "out": str(tmp_path / "clean"), **steps})
    out = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    arguments = given(data, out, {}, **steps)
    nodes = [node(number, port, arguments) for number in range(2)]
    wait_for(lambda: bool(list(out.glob("checkpoints/step-*"))))
    ranks = children(nodes[1].pid)
    for process in (nodes[1].pid, *ranks):
        os.kill(process, signal.SIGKILL)
    nodes[1].wait()
    nodes[1] = node(1, port, arguments)
    assert [one.wait(timeout=180) for one in nodes] == [0, 0]
    assert sums(out) == sums(tmp_path / "clean")


def node(number: int, port: int, arguments: list[str]) -> "subprocess.Popen[bytes]":
    """One of two machines, as the documentation says to start them."""
    settings = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-id", "tests"]
    settings += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    settings += ["--rdzv-conf", f"is_host={int(number == 0)}"]
    command = [sys.executable, "-m", "torch.distributed.run", *settings, "-m", "distributed.runs", *arguments]
    own = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(command, env={**os.environ, **SURROUNDINGS, **own})
