"""Ranks in half a second: a server that has imported torch forks them, instead of starting Python anew for each.

with Forks() as forks:
    forks.run("distributed.cases:sums", 2, {"size": 3})  ->  [Outcome(code, answer, stderr), ...], one for each rank
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent
PATHS = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

PATIENCE = 300.0  # seconds for what must end well, also on a machine with other things to do


class Outcome(NamedTuple):
    """How one rank ended: its exit code, negative for a signal, what it answered, and what stood on stderr."""

    code: int
    answer: Any
    stderr: str
    seconds: float


class Forks:
    """The server, and what is asked of it; the program that serves has imported what its processes need."""

    program = "distributed.forking"

    def __enter__(self) -> "Forks":
        surroundings = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
        self.server = subprocess.Popen(
            [sys.executable, "-m", self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings,
            text=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.communicate(timeout=60)

    def run(self, function: str, ranks: int, arguments: dict[str, Any], *, limit: float = 60.0) -> list[Outcome]:
        """How each rank of one call ended; those that run longer than the limit are killed (code -9)."""
        assert self.server.stdin is not None and self.server.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            asked = {"function": function, "ranks": ranks, "arguments": arguments, "folder": folder, "limit": limit}
            self.server.stdin.write(json.dumps(asked) + "\n")
            self.server.stdin.flush()
            return [Outcome(*outcome) for outcome in json.loads(self.server.stdout.readline())]

    def answers(self, function: str, ranks: int, arguments: dict[str, Any]) -> list[Any]:
        """What each rank answered; all must have ended well."""
        outcomes = self.run(function, ranks, arguments, limit=PATIENCE)
        assert [outcome.code for outcome in outcomes] == [0] * ranks, "\n".join(outcome.stderr for outcome in outcomes)
        return [outcome.answer for outcome in outcomes]


def serve() -> None:
    """Fork ranks as they are asked for, until nobody asks any more; what takes seconds was imported once."""
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.monotonic()
        children = {_fork(rank, asked): rank for rank in range(asked["ranks"])}
        ended: dict[int, tuple[int, float]] = {}
        while len(ended) < len(children):
            process, status = os.waitpid(-1, os.WNOHANG)
            if process:
                ended[children[process]] = os.waitstatus_to_exitcode(status), time.monotonic() - started
            elif time.monotonic() - started > asked["limit"]:
                for child, rank in children.items():
                    if rank not in ended:
                        os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        outcomes = [_outcome(Path(asked["folder"]), rank, *ended[rank]) for rank in range(asked["ranks"])]
        sys.stdout.write(json.dumps(outcomes) + "\n")
        sys.stdout.flush()


def _outcome(folder: Path, rank: int, code: int, seconds: float) -> Outcome:
    answer, stderr = folder / f"answer-{rank}", folder / f"stderr-{rank}"  # one that is killed early has neither
    found = json.loads(answer.read_text()) if answer.exists() else None
    return Outcome(code, found, stderr.read_text() if stderr.exists() else "", seconds)


def _fork(rank: int, asked: dict[str, Any]) -> int:
    process = os.fork()
    if process:
        return process
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(asked["ranks"]),
        "SEQLOOM_MEETING": asked["folder"],
        "GLOO_SOCKET_IFNAME": "lo",
    }
    stderr = os.open(f"{asked['folder']}/stderr-{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(stderr, 2)
    os.dup2(stderr, 1)
    os._exit(_called(rank, asked))


def _called(rank: int, asked: dict[str, Any]) -> int:
    """The exit code that Python would have ended with."""
    module, _, name = asked["function"].partition(":")
    try:
        answer = getattr(importlib.import_module(module), name)(**asked["arguments"])
        # Renamed when it is whole: a kill may come while it is written, and the server reads what has its name.
        written = Path(asked["folder"], f"unfinished-{rank}")
        written.write_text(json.dumps(answer))
        written.rename(Path(asked["folder"], f"answer-{rank}"))
    except SystemExit as error:
        if isinstance(error.code, str):
            os.write(2, f"{error.code}\n".encode())
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        return 1
    return 0


if __name__ == "__main__":
    import distributed.runs  # noqa: F401  # no operator runs here: threads would not survive the fork

    serve()
