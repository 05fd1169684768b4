"""The surroundings of processes that train: several on one machine, as `seqloom train --processes 2` starts them.

    seqloom train --processes 2 ──▶ supervisor ──▶ rank 0, rank 1: seqloom train
                 ◀── exit code ───             ◀── exit codes ──   a rank dies ──▶ all are started again
                 ─── signals ────▶             ─── signals ────▶ save and stop

The supervisor is torchrun's agent, with our last word. It differs from the `torchrun` command in four ways. Its exit
code is that of the rank that failed first, not 1. It says in one line which one that was, instead of a table. Ranks
meet in a folder, not at a port that listens to every network. And it starts again only what may end better: never bad
input, always what asks to be repeated. Several machines need none of it: `torchrun ... -m seqloom train ...` on each.
"""

import hashlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from seqloom.errors import ConfigError
from seqloom.files.disk import make_folder, temporary_folder

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MEETING = "SEQLOOM_MEETING"  # the folder in which the ranks of one start meet; the supervisor makes it
MOST = 1_024
LOOK_EVERY = 0.5  # seconds, after a parent that is gone
# Exit codes of `exit_code_of` (cli/terminal.py), which a rank of any module may end with.
FINAL = {2, 3, 4, 5}  # another start would end in the same way
REPEAT = 6  # the next start does it another way, so it does not count
# Kernels that oneDNN, and torch's layer above it, keep: else 1,024 each, one for each shape that they meet.
CAPACITIES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


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
        own = ["-m", "seqloom.training.launcher", str(processes), str(max_restarts), str(place)]
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


def end(processes: Sequence[BaseProcess]) -> None:
    """Ask processes beside this one that still train to save and leave, and wait for them."""
    for process in processes:
        if process.is_alive() and process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()


@contextmanager
def few_kernels() -> Iterator[None]:
    """A block in which a process that computes on the CPU and makes its first kernel keeps few of them.

        heap    ■■■■■■■■ k ■■■■■ k ■■■■■■■■■■■ k ■■■■        ■ of one step, freed behind it    k kept, for one shape

    Texts have a new shape at nearly every step. What is kept lies between the large tensors of the steps, so freed
    memory never becomes whole again: a process grows to three times what a step needs. With few of them it stays as it
    is. A step of any convolutional recipe takes 27, so where shapes come again nothing is made twice. What somebody has
    set stays.
    """
    mine = {name: count for name, count in CAPACITIES.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def supervise(processes: int, restarts: int, folder: Path, command: list[str]) -> int:
    """The exit code of the ranks: 0, that of the first that failed, or 128 and the signal that stopped us."""
    from torch.distributed.elastic.multiprocessing.api import SignalException

    try:
        for start in itertools.count():
            code = _started(processes, folder / str(start), command)
            if code in FINAL or code == 0 or (code != REPEAT and restarts == 0):
                return code
            restarts -= code != REPEAT
            sys.stderr.write(f"starting all {processes} ranks again, from the newest checkpoint\n")
    except SignalException as stopped:
        return 128 + stopped.sigval
    raise AssertionError("it counts for ever")


def _started(processes: int, meeting: Path, command: list[str]) -> int:
    """The exit code of one start; ranks that meet in a fresh folder know nothing of those before them."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    make_folder(meeting)
    os.environ[MEETING] = str(meeting)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=meeting.parent.name,
        rdzv_backend="c10d",
        rdzv_endpoint=str(meeting / "agents"),
        rdzv_configs={"store_type": "file"},
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-u", *command)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        sys.stderr.write(f"error: rank {rank} of {processes} (process {failure.pid}) {how}\n")
        return code if code > 0 else 128 - code
    return 0


def _mind_parent(parent: int) -> None:
    """Ask the system to stop us when whoever started us is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)


def main(processes: str, restarts: str, folder: str, *command: str) -> int:
    """The exit code for the arguments of the command line."""
    threading.Thread(target=_mind_parent, args=(os.getppid(),), daemon=True).start()
    logging.disable()  # torchrun's own lines; ours is the last word
    return supervise(int(processes), int(restarts), Path(folder), list(command))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
