"""What a step of ours costs beside a bare PyTorch loop that does the same maths."""

import importlib.util
import statistics
from pathlib import Path
from types import ModuleType

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
@pytest.mark.parametrize("what", ["lstm, tiny", "transformer, small"])
def test_a_step_costs_at_most_a_twentieth_more_than_a_bare_one(benchmark: ModuleType, what: str) -> None:
    pairs = benchmark.pairs(*benchmark.MODELS[what], "cpu")
    assert len(pairs) >= 30
    assert statistics.median(pair.ratio for pair in pairs) <= MOST


def test_a_step_that_costs_a_tenth_more_is_seen(benchmark: ModuleType) -> None:
    dear = [benchmark.Pair(ours=1.1 * bare, bare=bare) for bare in (0.5, 1.0, 2.0)]
    assert statistics.median(pair.ratio for pair in dear) > MOST
