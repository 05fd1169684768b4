"""The process that starts the ranks of one machine and watches over them: torchrun's agent, with our last word.

    start 0: rank 0, rank 1 ──▶ a rank dies ──▶ start 1: rank 0, rank 1 ──▶ ... ──▶ the code of the rank that failed

It differs from the `torchrun` command in four ways. Its exit code is that of the rank that failed first, not 1. It says
in one line which one that was, instead of a table. Ranks meet in a folder, not at a port that listens to every network.
And it starts again only what may end better: never bad input, always what asks to be repeated. Run by `launching` as
`python -m seqloom.training.supervisor PROCESSES RESTARTS FOLDER ARGUMENTS...`.
"""

import faulthandler
import itertools
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from seqloom.files.disk import make_folder
from seqloom.training.launcher import MEETING

LOOK_EVERY = 0.5  # seconds, after a parent that is gone
# Exit codes of `exit_code_of` (cli/terminal.py), which a rank of any module may end with.
FINAL = {2, 3, 4, 5}  # another start would end in the same way
REPEAT = 6  # the next start does it another way, so it does not count


def supervise(processes: int, restarts: int, folder: Path, command: list[str]) -> int:
    """The exit code of the ranks: 0, that of the first that failed, or 128 and the signal that stopped us."""
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
        sys.stderr.write(f"error: rank {rank} of {processes} {_ending(failure)}\n")
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return 0


def _ending(failure: ProcessFailure) -> str:
    if failure.exitcode < 0:
        return f"(process {failure.pid}) was ended by {signal.Signals(-failure.exitcode).name}"
    return f"(process {failure.pid}) ended with code {failure.exitcode}"


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


# A watch-dog in each process: a run that hangs says where, and ends; so does one whose launcher is gone.
#
#     alive() ── alive() ── alive() ───── silence ─────┐ longer than the patience
#                                                      ├─▶ the stacks of all threads, here and in the peers nearby
#     the launcher dies ── SIGTERM to ourselves: the run saves ── ten seconds ──┐
#                                                                               └─▶ the process ends with code 1
#
# A process that was stopped (SIGSTOP) cannot speak, so whoever waits for it in vain wakes it and asks it for its stacks
# by a signal. If even the watch-dog cannot run, because some library holds the interpreter, faulthandler's own thread
# does the same some seconds later.

STDERR = 2  # the descriptor: what is behind sys.stderr may hang as well
LATER = 5.0  # seconds that faulthandler's thread waits longer than ours
ANSWER = 0.2  # seconds for a peer to write its stacks, so that two do not mix
LAST_SAVE = 10.0  # seconds for a run to save when its launcher is gone


class Peer(NamedTuple):
    """One of the processes."""

    rank: int
    host: str
    process: int

    @classmethod
    def own(cls, rank: int) -> "Peer":
        """This process."""
        return cls(rank, socket.gethostname(), os.getpid())

    @property
    def near(self) -> bool:
        """Whether it runs on this machine and is another one, so that a signal reaches it."""
        return self.host == socket.gethostname() and self.process != os.getpid()

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended: never of a process on another machine."""
        if not self.near:
            return False
        with suppress(PermissionError):  # of somebody else's process: it is there
            try:
                os.kill(self.process, 0)
            except ProcessLookupError:
                return True
        return _state(self.process) == "Z"  # nobody has asked for its exit code yet

    @property
    def stopped(self) -> bool:
        """Whether it is known to have been stopped by a signal."""
        return self.near and _state(self.process) == "T"


def _state(process: int) -> str:
    """The letter of a process's state; only Linux tells, elsewhere it is empty."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def show_stacks(own: str, peers: Sequence[Peer]) -> None:
    """Write to stderr where every thread is, of this process and of those of this machine."""
    _say(f"{own} (process {os.getpid()}) is here:")
    faulthandler.dump_traceback(STDERR, all_threads=True)
    for peer in peers:
        if peer.near and not peer.ended:
            _say(f"rank {peer.rank} (process {peer.process}) is here:")
            with suppress(OSError):
                os.kill(peer.process, signal.SIGCONT)
                os.kill(peer.process, signal.SIGUSR1)
            time.sleep(ANSWER)


class Watch:
    """A thread that ends the process when nothing was `alive` for longer than `patience` seconds."""

    def __init__(self, name: str, patience: float, peers: Sequence[Peer] = ()) -> None:
        self.name, self.patience, self.peers = name, patience, peers
        self._last = time.monotonic()
        self._allowed = patience
        self._parent = os.getppid()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="seqloom-watch", daemon=True)

    def alive(self) -> None:
        """Begin the patience anew."""
        self._last = time.monotonic()

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """A block that may take longer: a validation, a checkpoint."""
        self.alive()
        before, self._allowed = self._allowed, max(seconds, self._allowed)
        try:
            yield
        finally:
            self.alive()
            self._allowed = before

    def __enter__(self) -> "Watch":
        faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True)
        self.alive()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGUSR1)

    def _look(self) -> None:
        pause = min(1.0, self.patience / 8)
        while not self._over.wait(pause):
            faulthandler.dump_traceback_later(self._allowed + LATER, exit=True, file=STDERR)
            silence = time.monotonic() - self._last
            if silence > self._allowed:
                self._give_up(silence)
            if os.getppid() != self._parent:
                self._leave()
                return

    def _give_up(self, silence: float) -> None:
        _say(f"error: {self.name}: no step was finished for {silence:.0f} s")
        show_stacks(self.name, self.peers)
        os._exit(1)

    def _leave(self) -> None:
        _say(f"error: {self.name}: the launcher has ended; saving what there is")
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._over.wait(LAST_SAVE):
            os._exit(1)


def _say(text: str) -> None:
    os.write(STDERR, f"{text}\n".encode())
