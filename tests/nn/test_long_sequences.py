"""Windowed and linear attention over long sequences: memory bounded, time linear. The plain operator is quadratic."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from seqloom.config.mixers import AttentionConfig, LinearAttentionConfig, MixerConfig, WindowConfig
from seqloom.nn.ops.kernels import using
from seqloom.nn.types import Padded

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "long_sequences.py"
MIXERS: dict[str, MixerConfig] = {
    "window": AttentionConfig(num_heads=4, pattern=WindowConfig(size=256)),
    "linear": LinearAttentionConfig(num_heads=4),
}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("direction", ["causal", "both-sides"])
@pytest.mark.parametrize("name", MIXERS)
def test_65536_tokens_forward_and_backward_stay_under_2_gib(name: str, direction: str) -> None:
    run = subprocess.run(
        [sys.executable, str(BENCHMARK), name, "65536", direction],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # the other core belongs to another test
    )
    assert json.loads(run.stdout)["peak_mib"] < 2048


def _processor_seconds(mixer: torch.nn.Module, length: int) -> float:
    x = torch.randn(1, length, 64, requires_grad=True)
    start = time.process_time()  # not the clock on the wall: other processes share the machine
    mixer(Padded.of(x)).values.sum().backward()
    return time.process_time() - start


def _growth(mixer: torch.nn.Module, short: int, rounds: int) -> float:
    """Time at twice the length over time at the length: the median of the ratios of pairs measured in turn."""
    _processor_seconds(mixer, short)  # warms up
    pairs = [(_processor_seconds(mixer, short), _processor_seconds(mixer, 2 * short)) for _ in range(rounds)]
    return statistics.median(long / first for first, long in pairs)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_time_grows_with_the_length_from_16k_to_32k(name: str) -> None:
    assert _growth(MIXERS[name].build_causal(64), 16_384, 5) <= 2.3


@pytest.mark.slow
def test_the_plain_operator_is_quadratic_and_says_so() -> None:
    mixer = AttentionConfig(num_heads=4).build_causal(64)
    with using(attention="plain"):
        assert _growth(mixer, 1_024, 5) > 3
    from seqloom.nn.ops import attention

    assert "quadratic" in attention.plain.__doc__
