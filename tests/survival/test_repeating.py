"""R9: the same seed gives the same bytes, however batches are made ahead and whatever else draws at random."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.config.training import StepsConfig
from seqloom.training.events import Stepped
from seqloom.training.run import train_run
from survival.cases import resolved
from survival.following import Whole, differences, whole
from survival.forking import Runs

pytestmark = pytest.mark.slow
HOW: dict[str, Any] = {"case": "gru", "steps": 24, "log_every": 1, "save_every": 12}
COMBINATIONS: list[dict[str, Any]] = [
    {"workers": 2, "prefetch": 4},
    {"workers": 0},
    {"workers": 1, "prefetch": 1},
    {"workers": 1, "prefetch": 4},
    {"workers": 2, "prefetch": 1},
    {"workers": 4, "prefetch": 1},
    {"workers": 4, "prefetch": 4},
    {"workers": 0, "draws": True},
    {"workers": 2, "draws": True},
    {"workers": 4, "prefetch": 1, "draws": True},
]


@pytest.fixture(scope="module")
def first(runs: Runs, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole(runs, data, tmp_path_factory.mktemp("first") / "run", **HOW)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda one: "-".join(f"{k}{v}" for k, v in one.items()))
def test_the_same_seed_gives_the_same_bytes(
    runs: Runs, data: Path, first: Whole, tmp_path: Path, combination: dict[str, Any]
) -> None:
    again = whole(runs, data, tmp_path / "run", **HOW, **combination)
    assert again.order == first.order and differences(tmp_path / "run", first) == []


def test_another_seed_gives_another_order_and_other_bytes(runs: Runs, data: Path, first: Whole, tmp_path: Path) -> None:
    again = whole(runs, data, tmp_path / "run", **HOW, seed=1)
    assert again.order != first.order and again.sums != first.sums


def test_without_seeds_for_each_step_somebody_elses_draws_change_the_bytes(
    runs: Runs, data: Path, tmp_path: Path
) -> None:
    alone = whole(runs, data, tmp_path / "alone", **HOW, twin="unseeded")
    disturbed = whole(runs, data, tmp_path / "disturbed", **HOW, twin="unseeded", draws=True)
    assert alone.order == disturbed.order and alone.sums != disturbed.sums


@pytest.mark.parametrize("asked", [False, True])
def test_kernels_that_depend_on_timing_are_refused_while_a_run_that_asks_for_it_goes_on(
    data: Path, tmp_path: Path, asked: bool
) -> None:
    found = resolved("gru", data, data / "cache", duration=StepsConfig(steps=4), deterministic=asked)
    refused = [
        torch.are_deterministic_algorithms_enabled()
        for report in train_run(tmp_path / "run", found, workers=0)
        if isinstance(report, Stepped)
    ]
    assert refused == [asked] and not torch.are_deterministic_algorithms_enabled()
