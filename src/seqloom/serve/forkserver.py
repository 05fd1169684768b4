"""A process that has imported torch and starts workers by forking itself, so that a lost worker is back at once.

    listener ──▶ forkserver: imports torch once ── fork ──▶ worker 0
        │                                       └─ fork ──▶ worker 1
        └───────────────── a pair of sockets for each ────────┘

To import torch takes seconds on a busy machine, and a fork milliseconds; workers also share its memory. The forkserver
computes nothing, so it has no threads and no CUDA context, which a fork would break. The listener sends it one end of a
pair of sockets; it forks, and the child talks to the listener over it. When the listener ends, however it ends, the
sockets close and everything else ends too.

Run by the listener as `python -m seqloom.serve.forkserver DESCRIPTOR`.
"""

import gc
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress

FORKS = sys.platform == "linux"  # elsewhere system libraries do not survive a fork: a worker is a new process
ASKED = b"w"
ENDED = struct.Struct("=ii")  # a process number, and how it ended: as `Popen.returncode`
DEVICE_LOST = 70  # exit code of a worker whose GPU has failed


def main(descriptor: int) -> None:
    """Fork a worker for each socket that arrives, until the listener is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the listener, which lets requests end
        signal.signal(number, signal.SIG_IGN)
    if FORKS:
        from seqloom.serve.worker import preload

        preload()
        gc.collect()
        gc.freeze()  # else the first collection in each worker would copy all memory
    with socket.socket(fileno=descriptor) as asked:
        signal.signal(signal.SIGCHLD, lambda *_: _tell_ended(asked))
        while True:
            data, links, _, _ = socket.recv_fds(asked, 1, 1)
            if not data:
                return
            for link in links:
                with suppress(OSError):  # no process or file is left: the listener sees a closed socket and tries again
                    _begin(link, asked)


def _tell_ended(asked: socket.socket) -> None:
    """Tell the listener how workers have ended; none is left as a zombie."""
    with suppress(ChildProcessError, OSError):  # all are told, or the listener is gone
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            asked.send(ENDED.pack(found[0], os.waitstatus_to_exitcode(found[1])), socket.MSG_DONTWAIT)


def _begin(link: int, asked: socket.socket) -> None:
    """Start a worker that talks over this socket."""
    child = 0
    try:
        if FORKS:
            child = os.fork()
        else:
            command = [sys.executable, "-P", "-m", "seqloom.serve.worker", str(link)]
            child = subprocess.Popen(command, pass_fds=[link], stdin=subprocess.DEVNULL).pid
    except BaseException:
        os.close(link)
        raise
    if child:
        os.close(link)
        return
    code = 1
    with suppress(BaseException):  # nothing may return into the loop of the parent
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asked.close()
        from seqloom.serve.worker import main as work

        code = work(link)
    os._exit(code)


class ForkServer:
    """The forkserver as the listener sees it; it is started again if it is lost."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.process: subprocess.Popen[bytes] | None = None
        self.asked: socket.socket | None = None
        self._codes: dict[int, int] = {}  # of workers that have ended

    def start(self) -> None:
        """Start the process; it imports torch meanwhile."""
        self.close()
        self.asked, theirs = socket.socketpair()
        count = str(self.threads)
        threads = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": "1"}
        # Threads that wait for one another by spinning would take the core of the listener
        waits = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "seqloom.serve.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | threads | waits,
                start_new_session=True,  # Ctrl-C of a terminal reaches only the listener
            )

    def worker(self) -> socket.socket:
        """Return a socket to a new worker."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._pass_on(theirs)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours

    def ended(self, pid: int) -> int | None:
        """How a worker has ended: its exit code, or minus the signal that killed it; None if that is not known yet."""
        if self.asked is not None:
            with suppress(OSError):  # nothing is there
                data = self.asked.recv(1 << 16, socket.MSG_DONTWAIT)
                self._codes |= dict(ENDED.iter_unpack(data[: len(data) // ENDED.size * ENDED.size]))
        return self._codes.pop(pid, None)

    def _pass_on(self, theirs: socket.socket) -> None:
        """Send one end of the pair to the process, which is started if it is not running."""
        for _ in range(2):
            if self.asked is None or self.process is None or self.process.poll() is not None:
                self.start()
            assert self.asked is not None
            try:
                socket.send_fds(self.asked, [ASKED], [theirs.fileno()])
                return
            except OSError:
                self.close()

    def close(self) -> None:
        """End the process; its workers go on until their own sockets close."""
        if self.asked is not None:
            self.asked.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.asked = self.process = None


if __name__ == "__main__":
    main(int(sys.argv[1]))
