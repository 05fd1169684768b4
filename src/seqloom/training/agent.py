"""The process that starts the ranks of one machine and watches over them: torchrun's agent, with our last word.

It differs from the `torchrun` command in three ways. Its exit code is that of the rank that failed first, not 1. It
says in one line which one that was, instead of a table. And ranks meet in a folder, not at a port that listens to every
network. Run as `python -m seqloom.training.agent PROCESSES RESTARTS FOLDER ARGUMENTS...` by `launching`.
"""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

LOOK_EVERY = 0.5  # seconds, after a parent that is gone


def main(processes: int, restarts: int, folder: Path, command: list[str]) -> int:
    """The exit code of the ranks: 0, that of the first that failed, or 128 and the signal that stopped us."""
    threading.Thread(target=_mind_parent, args=(os.getppid(),), daemon=True).start()
    logging.disable()  # torchrun's own lines; ours is the last word
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=folder.name,
        rdzv_backend="c10d",
        rdzv_endpoint=str(folder / "agents"),
        rdzv_configs={"store_type": "file"},
        local_addr="127.0.0.1",
        max_restarts=restarts,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-u", *command)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        sys.stderr.write(f"error: rank {rank} of {processes} {_ending(failure)}\n")
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as stopped:
        return 128 + stopped.sigval
    return 0


def _ending(failure: ProcessFailure) -> str:
    if failure.exitcode < 0:
        return f"(process {failure.pid}) was ended by {signal.Signals(-failure.exitcode).name}"
    return f"(process {failure.pid}) ended with code {failure.exitcode}"


def _mind_parent(parent: int) -> None:
    """Nothing; we were asked to stop when whoever started us is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
