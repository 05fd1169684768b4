"""The easy front door to several processes on one machine: what `seqloom train --processes 2` does.

    seqloom train --processes 2 ──▶ supervisor ──▶ rank 0, rank 1: seqloom train
                 ◀── exit code ───             ◀── exit codes ──
                 ─── signals ────▶             ─── signals ────▶ save and stop

Several machines need no front door of ours: `torchrun ... -m seqloom train ...` on each of them.
"""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from seqloom.errors import ConfigError
from seqloom.files.disk import temporary_folder

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MEETING = "SEQLOOM_MEETING"  # the folder in which the ranks of one start meet; the supervisor makes it
MOST = 1_024


def launch(
    arguments: Sequence[str],
    processes: int,
    *,
    max_restarts: int = 0,
    module: str = "seqloom",
    environment: Mapping[str, str] | None = None,
) -> int:
    """The exit code of `python -m seqloom ARGUMENTS` in so many processes: 0, or that of the first that failed.

    With `max_restarts` all are started again, so many times, when one of them dies; not when it refused its input. One
    that asks to be repeated (code 6) is repeated, and that does not count.
    """
    if not 1 <= processes <= MOST or max_restarts < 0:
        raise ConfigError(
            f"{processes} processes, started again {max_restarts} times",
            fix=f"take 1 to {MOST} processes and 0 or more restarts",
        )
    with temporary_folder("ranks") as place:
        own = ["-m", "seqloom.training.supervisor", str(processes), str(max_restarts), str(place)]
        command = [sys.executable, *own, "-m", module, *arguments]
        surroundings = {**os.environ, **_surroundings(processes), **(environment or {})}
        # In a session of its own: a Ctrl-C reaches it once, through us, and not a second time from the terminal.
        with subprocess.Popen(command, env=surroundings, start_new_session=True) as supervisor, _forwarding(supervisor):
            code = supervisor.wait()
    return code if code >= 0 else 128 - code  # as shells count an end by a signal


def _surroundings(processes: int) -> dict[str, str]:
    """What ranks find in their environment; what somebody has set stays."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    chosen = {
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_CPP_LOG_LEVEL": "FATAL",  # what its collectives log, the rank that fails says in one line
    }
    return {name: value for name, value in chosen.items() if name not in os.environ}


def first_to_say(text: str) -> bool:
    """Whether no other rank of this start has said the same: what all find out, one of them says.

    Each rank reads the same files, and refuses them in the same words.
    """
    if not (folder := os.environ.get(MEETING)):
        return True
    from torch._C._distributed_c10d import FileStore  # of several processes each has loaded it already

    said = FileStore(str(Path(folder, "said")), MOST)
    return said.add(hashlib.sha256(text.encode()).hexdigest(), 1) == 1


@contextmanager
def _forwarding(supervisor: "subprocess.Popen[bytes]") -> Iterator[None]:
    """A block in which signals to this process go to the supervisor; only a main thread can do that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _: Any) -> None:
        supervisor.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Processes beside this one that train: how they are asked to save and leave.


def end(processes: Sequence[BaseProcess]) -> None:
    """Ask those that still run to save and leave, and wait for them."""
    for process in processes:
        if process.is_alive() and process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()
