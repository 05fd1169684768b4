"""Signals that ask a run to stop: the first is remembered, and the loop saves and ends; the second ends at once.

    SIGINT   Ctrl-C                 exit 130
    SIGTERM  kill, a job scheduler  exit 143
    SIGHUP   the terminal is gone   exit 129; one that is ignored (nohup) stays so

Nothing is lost by the second: what is saved is whole, and a save that is under way has no name yet.
"""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from seqloom.files.disk import reached

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """A block in which signals are remembered; `signal` is the number of the first, None as long as there is none.

    Only the main thread hears of signals; in another one the block changes nothing.

    >>> with Stopping() as stopping:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stopping.signal
    15
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._heard) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not set from Python and cannot be set from here
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # no clean-up: it may be what hangs
        self.signal = number
        reached("signal")
