"""Processes beside this one that train: how they are asked to save and leave."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess


def end(processes: Sequence[BaseProcess]) -> None:
    """Ask those that still run to save and leave, and wait for them."""
    for process in processes:
        if process.is_alive() and process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()
