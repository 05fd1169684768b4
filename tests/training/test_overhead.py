"""What a step of ours costs beside a bare PyTorch loop that does the same maths."""

import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "training.py"
MOST = 1.05


@pytest.fixture
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_training", BENCHMARK)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.soak
@pytest.mark.parametrize("what", ["lstm, nano", "transformer, small"])
def test_a_step_costs_at_most_a_twentieth_more_than_a_bare_one(benchmark: ModuleType, what: str) -> None:
    pairs = benchmark.pairs(*benchmark.MODELS[what], "cpu")
    assert len(pairs) >= 30
    assert statistics.median(pair.ratio for pair in pairs) <= MOST


@pytest.mark.soak
def test_a_step_that_costs_a_fifth_more_is_seen(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = benchmark.ours

    def slowed(*given: Any) -> Callable[[], None]:
        step = plain(*given)

        def dearer() -> None:
            began = time.perf_counter()
            step()
            until = time.perf_counter() + (time.perf_counter() - began) / 5
            while time.perf_counter() < until:
                pass

        return dearer

    monkeypatch.setattr(benchmark, "ours", slowed)
    assert statistics.median(pair.ratio for pair in benchmark.pairs("lstm", "nano", "cpu")) > MOST
