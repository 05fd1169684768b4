"""The server of `distributed.forking` with everything imported that a run needs: a kill costs half a second."""

import os
import subprocess
import sys

from distributed.forking import TESTS, Forks, serve


class Runs(Forks):
    """Starts runs, each in a process of its own; one that takes longer than its `limit` is killed."""

    def __enter__(self) -> "Runs":
        surroundings = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "survival.forking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings,
            text=True,
        )
        return self


if __name__ == "__main__":
    import survival.jobs  # noqa: F401  # no operator runs here: threads would not survive the fork

    serve()
