"""A program that kills bulk embedding, each time in a process of its own, and lets it go on.

    killing.py FOLDER place ...      at named places (SEQLOOM_FAIL), one after the other until the file is whole
    killing.py FOLDER SEED           at random moments, ten times

It prints how each process ended. The last one ends well. Nothing has started a thread when it forks.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def embed(folder: Path, name: str) -> None:
    from embedding_common import in_small_windows
    from seqloom.search.embedding.bulk import embed_file

    in_small_windows()
    embed_file(folder / "model", folder / "a.txt", folder / name, dtype="int8")


def child(folder: Path, name: str, place: str = "") -> int:
    """The process that embeds."""
    number = os.fork()
    if number == 0:
        os.environ["SEQLOOM_FAIL"] = place
        embed(folder, name)
        os._exit(0)
    return number


def ended(number: int) -> int:
    """How a process ended: 0 if well."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def timed(folder: Path, seed: int) -> list[int]:
    """Ten processes killed at a random moment of what a whole one takes, and one that is left alone."""
    start = time.monotonic()
    assert ended(child(folder, "timed.npy")) == 0
    whole, draws, codes = time.monotonic() - start, random.Random(seed), []
    for _ in range(10):
        number = child(folder, "v.npy")
        time.sleep(draws.random() * whole / 3)
        os.kill(number, signal.SIGKILL)
        codes.append(ended(number))
    return [*codes, ended(child(folder, "v.npy"))]


def main() -> None:
    folder, given = Path(sys.argv[1]), sys.argv[2:]
    import seqloom.search.embedding  # noqa: F401

    if given[0].isdecimal():
        codes = timed(folder, int(given[0]))
    else:
        codes = [ended(child(folder, "v.npy", place)) for place in [*given, ""]]
    sys.stdout.write(json.dumps(codes))


if __name__ == "__main__":
    main()
