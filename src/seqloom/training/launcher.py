"""Starting several training processes on one machine, for `seqloom train --processes 2`.

    seqloom train --processes 2 ──▶ supervisor ──▶ rank 0, rank 1: seqloom train
                 ◀── exit code ───             ◀── exit codes ──   a rank dies ──▶ all are started again
                 ─── signals ────▶             ─── signals ────▶ save and stop

The supervisor is torchrun's agent. It differs from the `torchrun` command in four ways. Its exit code is that of the
rank that failed first, not 1. It reports that rank in one line instead of a table. Ranks find each other through a
folder, not through a network port. And it restarts only what may succeed next time: never after bad input, always
after a request to repeat. For several machines, run `torchrun ... -m seqloom train ...` on each.
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
MEETING = "SEQLOOM_MEETING"  # the folder through which the ranks of one start find each other
MOST = 1_024
LOOK_EVERY = 0.5  # seconds between checks that the parent is alive
# Exit codes of `exit_code_of` (cli/terminal.py), which a rank of any module may end with.
FINAL = {2, 3, 4, 5}  # a restart would fail in the same way
REPEAT = 6  # the next start works differently, so it does not count as a restart


def launch(
    arguments: Sequence[str],
    processes: int,
    *,
    max_restarts: int = 0,
    module: str = "seqloom",
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run `python -m seqloom ARGUMENTS` in several processes; returns 0, or the exit code of the first that failed.

    Args:
        arguments: the arguments of the command.
        processes: the number of processes.
        max_restarts: how many times all processes are restarted when one dies; not when it refused its input. Exit
            code 6 asks for a restart that does not count.
        module: the Python module to run.
        environment: variables that are added to the environment.
    """
    if not 1 <= processes <= MOST or max_restarts < 0:
        raise ConfigError(
            f"--processes {processes} --max-restarts {max_restarts}",
            fix=f"give 1 to {MOST} processes and 0 or more restarts",
        )
    with temporary_folder("ranks") as place:
        own = ["-m", "seqloom.training.launcher", str(processes), str(max_restarts), str(place)]
        command = [sys.executable, *own, "-m", module, *arguments]
        surroundings = {**os.environ, **_surroundings(processes), **(environment or {})}
        # In a session of its own, so that Ctrl-C reaches it once, through us, and not also from the terminal.
        with subprocess.Popen(command, env=surroundings, start_new_session=True) as supervisor, _forwarding(supervisor):
            code = supervisor.wait()
    return code if code >= 0 else 128 - code  # as shells report a signal


def _surroundings(processes: int) -> dict[str, str]:
    """Environment variables of the ranks; those that the user has set stay."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    chosen = {
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_CPP_LOG_LEVEL": "FATAL",  # the failing rank reports it in one line
    }
    return {name: value for name, value in chosen.items() if name not in os.environ}


def first_to_say(text: str) -> bool:
    """Whether this rank is the first of its start to print this text.

    All ranks read the same files and find the same errors; only one prints them.
    """
    if not (folder := os.environ.get(MEETING)):
        return True
    from torch._C._distributed_c10d import FileStore  # loaded already in distributed runs

    messages = FileStore(str(Path(folder, "said")), MOST)
    return messages.add(hashlib.sha256(text.encode()).hexdigest(), 1) == 1


@contextmanager
def _forwarding(supervisor: "subprocess.Popen[bytes]") -> Iterator[None]:
    """A context that forwards signals to the supervisor; only in the main thread."""
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
    """Ask training processes to save and stop, and wait for them."""
    for process in processes:
        if process.is_alive() and process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()


def supervise(processes: int, restarts: int, folder: Path, command: list[str]) -> int:
    """The exit code of the ranks: 0, that of the first that failed, or 128 plus the signal that stopped us."""
    from torch.distributed.elastic.multiprocessing.api import SignalException

    try:
        for start in itertools.count():
            code = _started(processes, folder / str(start), command)
            if code in FINAL or code == 0 or (code != REPEAT and restarts == 0):
                return code
            restarts -= code != REPEAT
            sys.stderr.write(f"restarting all {processes} ranks from the newest checkpoint\n")
    except SignalException as stopped:
        return 128 + stopped.sigval
    raise AssertionError("unreachable")


def _started(processes: int, meeting: Path, command: list[str]) -> int:
    """The exit code of one start; a new folder keeps the ranks apart from those of earlier starts."""
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
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        sys.stderr.write(f"error: rank {rank} of {processes} (process {failure.pid}) {how}\n")
        return code if code > 0 else 128 - code
    return 0


def _mind_parent(parent: int) -> None:
    """Stop this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)


def main(processes: str, restarts: str, folder: str, *command: str) -> int:
    """The exit code for the arguments of the command line."""
    threading.Thread(target=_mind_parent, args=(os.getppid(),), daemon=True).start()
    logging.disable()  # torchrun's own lines
    return supervise(int(processes), int(restarts), Path(folder), list(command))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
