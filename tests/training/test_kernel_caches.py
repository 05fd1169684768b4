"""A run on texts of many lengths takes no more memory in its last steps than it took early on."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqloom
import seqloom.cli
from seqloom.nn.ops.kernel_caches import CAPACITIES, few_kernels
from seqloom.training.step import Update

STEPS, WARM = 200, 25
MOST = 14  # MB
# Anonymous memory is counted: pages of mapped files are the kernel's to take back.
WATCHED = """
import sys
from pathlib import Path
import seqloom.cli
from seqloom.config.training import ByLengthConfig
from seqloom.nn.ops import convolution
from seqloom.training.step import Update

convolution.MOST_COPIED = 0  # torch's kernel, as for large inputs

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().split("\\n")
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

held, take = [], Update.step

def step(*given, **how):
    take(*given, **how)
    held.append(anonymous())

Update.step = step
way, data, out = sys.argv[1:]
training = {"model": "cnn", "size": "nano", "device": "cpu", "steps": 200, "validate_every": 1000}
if way == "program":
    seqloom.train(data, out=out, batching=ByLengthConfig(batch_tokens=4096), **training)
else:
    options = [text for name, value in training.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    sys.argv = ["seqloom", "train", data, "--out", out, "--batch-tokens", "4096", *options]
    try:
        seqloom.cli.main()
    except SystemExit as end:
        assert not end.code
Path(f"{out}.held").write_text(" ".join(map(str, held)))
"""
linux = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells anonymous memory")


def grown(folder: Path, way: str, **surroundings: str) -> float:
    """The MB by which a convolutional run grew once it was warm."""
    draw, data = random.Random(0), folder / "long.csv"
    words = [f"word{n}" for n in range(500)]
    texts = [" ".join(draw.choices(words, k=int(20 * 60 ** draw.random()))) for _ in range(400)]
    data.write_text("\n".join(["text,label", *(f"{text},{row % 8}" for row, text in enumerate(texts))]) + "\n")
    clean = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, way, str(data), str(folder / "run")],
        env={**clean, "OMP_NUM_THREADS": "1", **surroundings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    held = [int(number) / 1024 for number in (folder / "run.held").read_text().split()]
    return max(held[-WARM:]) - max(held[-STEPS : WARM - STEPS])


@pytest.mark.soak
@linux
@pytest.mark.parametrize("way", ["command line", "program"])
def test_a_run_on_texts_of_many_lengths_stops_growing(tmp_path: Path, way: str) -> None:
    assert grown(tmp_path, way) < MOST


@pytest.mark.soak
@linux
def test_with_as_many_kernels_as_torch_would_keep_it_grows_on(tmp_path: Path) -> None:
    assert grown(tmp_path, "command line", **dict.fromkeys(CAPACITIES, "1024")) > 1.5 * MOST


def test_what_somebody_has_set_stays_and_afterwards_all_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = CAPACITIES
    monkeypatch.setenv(own, "7")
    monkeypatch.delenv(other, raising=False)
    with few_kernels():
        assert (os.environ[own], os.environ[other]) == ("7", CAPACITIES[other])
    assert os.environ[own] == "7" and other not in os.environ


@pytest.mark.parametrize("way", ["command line", "program"])
def test_few_kernels_are_kept_while_a_model_is_trained(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, held = tmp_path / "rows.csv", set[tuple[str | None, ...]]()
    data.write_text("text,label\n" + "good,yes\nbad,no\n" * 10)
    for name in CAPACITIES:
        monkeypatch.delenv(name, raising=False)
    take = Update.step

    def step(update: Update, *given: Any, **how: Any) -> None:
        held.add(tuple(os.environ.get(name) for name in CAPACITIES))
        take(update, *given, **how)

    monkeypatch.setattr(Update, "step", step)
    if way == "program":
        seqloom.train(data, out=tmp_path / "run", model="bag", size="nano", steps=2, device="cpu")
    else:
        typed = ["train", str(data), "--out", str(tmp_path / "run"), "--model", "bag", "--size", "nano", "--steps", "2"]
        monkeypatch.setattr(sys, "argv", ["seqloom", *typed, "--device", "cpu"])
        with pytest.raises(SystemExit, match="0"):
            seqloom.cli.main()
    assert held == {tuple(CAPACITIES.values())}
