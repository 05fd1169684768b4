"""Measure several programs side by side: in turns, as ratios of medians, with the spread; append the result as JSON."""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqloom.nn.types import Batch
from seqloom.tasks.task import Division

RESULTS = Path(__file__).with_name("results.jsonl")
ROUNDS = 7

Run = Callable[[], Any]


def installed(*modules: str) -> bool:
    """Return whether all these modules can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in modules)


def side_by_side(runs: Mapping[str, Run], rounds: int | None = None, *, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each program in each round; in a round each runs once, in order."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range((rounds or ROUNDS) + warm_up):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if turn >= warm_up:
                taken[name].append(time.perf_counter() - began)
    return taken


def table(title: str, taken: Mapping[str, list[float]], *, unit: str = "ms", work: float = 0.0) -> None:
    """Print medians, and speed relative to the first program with its range over rounds; append them to results.jsonl.

    Args:
        title: what was measured.
        taken: seconds by program; the first is the peer at its defaults.
        unit: unit of `work`, such as "tokens".
        work: how much work a run does; 0 prints milliseconds only.
    """
    names = list(taken)
    base = taken[names[0]]
    print(f"\n{title} ({len(base)} rounds, {torch.get_num_threads()} threads)")
    rows = []
    for name in names:
        middle = statistics.median(taken[name])
        ratios = sorted(theirs / own for own, theirs in zip(taken[name], base, strict=True))
        ratio = statistics.median(base) / middle
        rate = f" {work / middle:12,.0f} {unit}/s" if work else ""
        print(f"  {name:44} {middle * 1e3:10.1f} ms{rate}   {ratio:5.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})")
        rows.append({"name": name, "seconds": taken[name], "ratio": ratio, "range": [ratios[0], ratios[-1]]})
    record = {"title": title, "when": time.strftime("%Y-%m-%d"), "commit": commit(), **machine(), "rows": rows}
    if os.environ.get("SEQLOOM_BENCH_RECORD", "1") == "1":
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class Asked:
    """The parts of a task that a step needs."""

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """Return the step undivided."""
        return Division(self, pieces)  # type: ignore[arg-type]

    def loss(self, model: nn.Module, batch: Batch, state: None) -> tuple:
        """Return the loss of a batch."""
        return model.loss(batch), None


def commit() -> str:
    """Return the commit of the working tree; a star if it has changes besides earlier results."""
    here, others = Path(__file__).parent, [":/", f":(exclude){RESULTS.name}"]
    try:
        name = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *others], cwd=here).returncode
    except OSError:
        return ""
    return name.stdout.strip() + "*" * changed


def machine() -> dict[str, Any]:
    """Return processor, threads, load and versions."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": model,
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
