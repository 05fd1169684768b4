"""Comparison of sides that compute the same thing: alternating rounds, medians with spread, peak memory, one table.

A benchmark module has a function `run(report)` that calls `report.compare` once for each piece of work:

    report.compare("window 512, T=16384", [Side("seqloom", ours), Side("FlexAttention", theirs, peer=True)])

The first side is ours, ratios are to the first peer. A side whose `run` returns tensors is checked against the first
side's; one with `yardstick=True` computes something else, and is only timed. A side that fails is reported with its
traceback, and the others go on.
"""

import gc
import json
import statistics
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROUNDS = 7
SECONDS = 0.06  # measured at a time: fast sides run several times


class Side(NamedTuple):
    """One way to do a piece of work."""

    name: str
    run: Callable[[], Sequence[Tensor] | None]  # returns what is compared
    peer: bool = False
    yardstick: bool = False  # computes something else: timed but not compared


class Timing(NamedTuple):
    """What one side needed."""

    name: str
    milliseconds: float  # median
    low: float
    high: float
    gib: float  # peak memory beyond what was allocated before
    gap: float | None  # from the first side: root mean square of the difference over that of the value


class Report:
    """Collects, prints and stores the results of benchmarks."""

    def __init__(self, path: Path | None = None, only: Sequence[str] = ()) -> None:
        """`only`: works whose name contains one of these texts; all if there are none."""
        self.path, self.only, self.tables = path, only, list[str]()

    def wants(self, work: str) -> bool:
        """Whether a piece of work was asked for."""
        return not self.only or any(text in work for text in self.only)

    def compare(
        self, work: str, sides: Sequence[Side], *, tolerance: float = 0.03, per: tuple[float, str] | None = None
    ) -> list[Timing]:
        """Measure all sides in turn, print a table and append it to the file; `per` is (amount, unit) of a run."""
        if not self.wants(work):
            return []
        alive, expected, gaps = [], None, dict[str, float | None]()
        for side in sides:
            try:
                found = side.run()
                synchronize()
                if side.yardstick or found is None:
                    gaps[side.name] = None
                elif expected is None:
                    expected = [tensor.detach().float().cpu() for tensor in found]
                    gaps[side.name] = None
                else:
                    gaps[side.name] = largest_gap(found, expected)
                alive.append(side)
            except Exception:
                print(f"{work}: {side.name} failed")
                traceback.print_exc(limit=-6)
            found = None
            clean()
        timings = self._measured(work, alive, gaps)
        self._show(work, sides, timings, tolerance, per)
        return timings

    def _measured(self, work: str, sides: Sequence[Side], gaps: dict[str, float | None]) -> list[Timing]:
        repeats, rounds, peaks = dict[str, int](), dict[str, list[float]](), dict[str, float]()
        for side in sides:
            peaks[side.name] = peak_memory(side.run)
            once = min(elapsed(side.run, 1) for _ in range(2))
            repeats[side.name], rounds[side.name] = max(1, min(50, int(1000 * SECONDS / once))), []
        for _ in range(ROUNDS):
            for side in sides:
                rounds[side.name].append(elapsed(side.run, repeats[side.name]))
        clean()
        return [
            Timing(name, statistics.median(each), min(each), max(each), peaks[name], gaps[name])
            for name, each in rounds.items()
        ]

    def _show(
        self,
        work: str,
        sides: Sequence[Side],
        timings: list[Timing],
        tolerance: float,
        per: tuple[float, str] | None,
    ) -> None:
        peers = [side.name for side in sides if side.peer]
        base = next((each.milliseconds for each in timings if each.name in peers), None)
        lines = [f"{work}  ({device_name()})", f"  {'':38}{'ms':>9} {'range':>17} {'GiB':>7} {'speed':>7}  difference"]
        for each in timings:
            ratio = "" if base is None else f"{base / each.milliseconds:.2f}x"
            spread = f"{each.low:.3g}-{each.high:.3g}"
            gap = "" if each.gap is None else f"{each.gap:.1e}" + ("" if each.gap <= tolerance else "  TOO LARGE")
            rate = "" if per is None else f"  {per[0] / each.milliseconds * 1000:,.0f} {per[1]}/s"
            name = each.name + (" (peer)" if each.name in peers else "")
            line = f"  {name:38}{each.milliseconds:9.3f} {spread:>17} {each.gib:7.2f} {ratio:>7}  {gap}{rate}"
            lines.append(line.rstrip())
        table = "\n".join(lines)
        print(table, flush=True)
        self.tables.append(table)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                for each in timings:
                    record: dict[str, Any] = {"work": work, "device": device_name(), "torch": torch.__version__}
                    record |= {"commit": commit(), "peer": each.name in peers, **each._asdict()}
                    file.write(json.dumps(record) + "\n")

    def note(self, line: str) -> None:
        """Print a line, now and with the tables."""
        print(line, flush=True)
        self.tables.append(line)

    def print_all(self) -> None:
        """Print all tables once more, together."""
        print("\n" + "\n".join(self.tables))


def largest_gap(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest relative difference of corresponding tensors, as root mean squares."""
    assert len(found) == len(expected), f"{len(found)} results instead of {len(expected)}"
    gaps = []
    for one, other in zip(found, expected, strict=True):
        difference = one.detach().float().cpu() - other
        gaps.append(float(difference.square().mean().sqrt() / other.square().mean().sqrt().clamp(min=1e-20)))
    return max(gaps)


def elapsed(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds of one run, as the mean of several in a row."""
    if not torch.cuda.is_available():
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        return 1000 * (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def peak_memory(run: Callable[[], object]) -> float:
    """GiB that a run needs beyond what is allocated already."""
    if not torch.cuda.is_available():
        return 0.0
    clean()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def synchronize() -> None:
    """Wait for the GPU, so that a failure belongs to the side that caused it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def clean() -> None:
    """Give back the memory of sides that have run."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_name() -> str:
    """The name of the GPU."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def commit() -> str:
    """The commit that runs, if the code is in a repository."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()
