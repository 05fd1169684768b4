"""The process that starts the ranks of one machine and watches over them: torchrun's agent, with our last word.

    start 0: rank 0, rank 1 ──▶ a rank dies ──▶ start 1: rank 0, rank 1 ──▶ ... ──▶ the code of the rank that failed

It differs from the `torchrun` command in four ways. Its exit code is that of the rank that failed first, not 1. It says
in one line which one that was, instead of a table. Ranks meet in a folder, not at a port that listens to every network.
And it starts again only what may end better: never bad input, always what asks to be repeated. Run by `launching` as
`python -m seqloom.training.supervising PROCESSES RESTARTS FOLDER ARGUMENTS...`.
"""

import itertools
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

from seqloom.durable import make_folder
from seqloom.training.launching import MEETING

LOOK_EVERY = 0.5  # seconds, after a parent that is gone
# Exit codes of `seqloom.cli.exits`, which a rank of any module may end with.
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
    """Nothing; we were asked to stop when whoever started us is gone."""
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
