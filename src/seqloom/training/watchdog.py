"""A watchdog in each process: a run that hangs prints where, and ends; so does one whose launcher is gone.

    alive() ── alive() ── alive() ───── silence ─────┐ longer than the timeout
                                                     ├─▶ the stacks of all threads, here and in peers on this machine
    the launcher dies ── SIGTERM to ourselves: the run saves ── ten seconds ──┐
                                                                              └─▶ the process ends with code 1

A process that was stopped (SIGSTOP) cannot print, so the process that waits for it wakes it and requests its stacks
by a signal. If the watchdog itself cannot run, because a library holds the GIL, faulthandler's thread does the same
some seconds later.
"""

import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

STDERR = 2  # the descriptor: sys.stderr may hang as well
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
        return cls(rank, socket.gethostname(), os.getpid())

    @property
    def near(self) -> bool:
        """Whether it runs on this machine and is another one, so that a signal reaches it."""
        return self.host == socket.gethostname() and self.process != os.getpid()

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended; never for a process on another machine."""
        if not self.near:
            return False
        with suppress(PermissionError):  # another user's process: it exists
            try:
                os.kill(self.process, 0)
            except ProcessLookupError:
                return True
        return _state(self.process) == "Z"  # a zombie

    @property
    def stopped(self) -> bool:
        """Whether it is known to have been stopped by a signal."""
        return self.near and _state(self.process) == "T"


def _state(process: int) -> str:
    """The state letter of a process; empty on systems other than Linux."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def show_stacks(own: str, peers: Sequence[Peer]) -> None:
    """Print the stacks of all threads to stderr, of this process and of its peers on this machine."""
    _say(f"stacks of {own} (process {os.getpid()}):")
    faulthandler.dump_traceback(STDERR, all_threads=True)
    for peer in peers:
        if peer.near and not peer.ended:
            _say(f"stacks of rank {peer.rank} (process {peer.process}):")
            with suppress(OSError):
                os.kill(peer.process, signal.SIGCONT)
                os.kill(peer.process, signal.SIGUSR1)
            time.sleep(ANSWER)


class Watch:
    """A thread that ends the process if `alive` is not called for `patience` seconds."""

    def __init__(self, name: str, patience: float, peers: Sequence[Peer] = ()) -> None:
        self.name, self.patience, self.peers = name, patience, peers
        self._last = time.monotonic()
        self._allowed = patience
        self._parent = os.getppid()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="seqloom-watch", daemon=True)

    def alive(self) -> None:
        """Restart the timeout."""
        self._last = time.monotonic()

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """A context that may take longer: a validation, a checkpoint."""
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
        _say(f"error: {self.name}: no step was finished within {silence:.0f} s")
        show_stacks(self.name, self.peers)
        os._exit(1)

    def _leave(self) -> None:
        _say(f"error: {self.name}: the launcher has ended; saving a checkpoint")
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._over.wait(LAST_SAVE):
            os._exit(1)


def _say(text: str) -> None:
    os.write(STDERR, f"{text}\n".encode())
