"""Programs that are launched in several processes, and what it takes to look at them."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from distributed.forking import PATHS
from seqloom.training.launcher import MEETING

SURROUNDINGS = {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
FRONT = """
import sys
from seqloom.training.launcher import launch
sys.exit(launch(sys.argv[2:], 2, module=sys.argv[1]))
"""


def fronted(arguments: list[str], module: str = "distributed.runs") -> list[str]:
    """The command of a program that launches a module in two processes."""
    return [sys.executable, "-c", FRONT, module, *arguments]


def children(process: int) -> list[int]:
    """The processes that a process has started; of Linux."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Nothing, once the condition holds; it must come to hold."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"it took longer than {seconds} s"
        time.sleep(0.02)


def play(part: str) -> int:
    """A rank without torch: it ends with codes, one for each start, or goes on until somebody stops it."""
    from seqloom.training.distributed import Watch

    rank, start = int(os.environ["RANK"]), Path(os.environ[MEETING]).name
    Path(sys.argv[2], f"rank-{rank}").write_text(str(os.getpid()))
    if part == "codes":
        codes = {"0": 6, "1": 1, "2": 5}
        return codes[start] if rank == 1 else 0
    with Watch(f"rank {rank} of 2", patience=60):
        time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(play(sys.argv[1]))
