"""A program that kills what is done to an index, each time in a process of its own, and lets it go on.

    killing.py FOLDER place ...      at named places (SEQLOOM_FAIL)
    killing.py FOLDER SEED           at ten random moments

An index is built, added to until it is joined, deleted from, added to until its graph grows, deleted from and joined
without a graph, and joined with one: `FOLDER/whole` without a kill; then a new one for each kill. What `seqloom index`
calls is called again after a kill, as it was before it. It prints which of the kills met a process alive. Everything is
imported once; no thread has started when it forks.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import usearch.index  # noqa: F401

from search_common import WordTable, last, some_documents, write_documents
from seqloom.cli.index import _change
from seqloom.search import build, segments
from seqloom.search import index as folder_index
from seqloom.search.build import add_to_index, build_index
from seqloom.search.documents import Collection
from seqloom.search.index import Index

KILLS = 10


def write_files(folder: Path) -> None:
    """What is indexed: thirty documents, then some in place of a third of them and new ones, then more."""
    some, others = some_documents(48), some_documents(20, seed=1)
    write_documents(folder / "first.jsonl", some[:30])
    write_documents(folder / "second.jsonl", [*others, *some[30:34]])
    write_documents(folder / "third.jsonl", some[34:])


def phases(folder: Path, index: Path) -> list[Callable[[], object]]:
    """What is done to an index, in this order; each may be done again after a kill."""

    def added(name: str) -> None:
        last(add_to_index(index, WordTable(), Collection(folder / name)))

    return [
        lambda: last(build_index(index, WordTable(), Collection(folder / "first.jsonl"))),
        lambda: added("second.jsonl"),
        lambda: _change(str(index), ["d3", "d31"], compact=False, exact=None),
        lambda: added("third.jsonl"),
        lambda: _change(str(index), ["d40"], compact=True, exact=True),
        lambda: _change(str(index), [], compact=True, exact=False),
    ]


def live(folder: Path, name: str, place: str = "") -> int:
    """The process that does what is left to do."""
    number = os.fork()
    if number == 0:
        os.environ["SEQLOOM_FAIL"] = place
        segments.DOCUMENTS, build.BATCH_SIZE, folder_index.GRAPH_FROM = 8, 5, 20
        done = folder / f"{name}.done"
        todo = phases(folder, folder / name)
        for phase in todo[done.stat().st_size if done.exists() else 0 :]:
            phase()
            with done.open("a") as more:
                more.write("x")
        os._exit(0)
    return number


def ended(number: int) -> int:
    """How a process ended: 0 if well."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def at_places(folder: Path, places: list[str]) -> dict[str, bool]:
    """Of each place, whether it killed a process; another one has gone on from there."""
    killed = {}
    for place in places:
        name = place.replace(":", "-")
        killed[name] = ended(live(folder, name, place)) == -signal.SIGKILL
        assert ended(live(folder, name)) == 0, place
    return killed


def at_moments(folder: Path, seed: int, whole: float) -> dict[str, bool]:
    """The same for moments, of which ten met a process alive."""
    killed, draws = {}, random.Random(seed)
    for number in range(4 * KILLS):
        name = f"moment-{number}"
        alive = live(folder, name)
        time.sleep(draws.random() * whole)
        os.kill(alive, signal.SIGKILL)
        killed[name] = ended(alive) == -signal.SIGKILL
        assert ended(live(folder, name)) == 0, name
        if sum(killed.values()) == KILLS:
            break
    return killed


def main() -> None:
    folder, given = Path(sys.argv[1]), sys.argv[2:]
    write_files(folder)
    start = time.monotonic()
    assert ended(live(folder, "whole")) == 0
    whole = time.monotonic() - start
    assert len(Index(folder / "whole")) == 45
    timed = given[0].isdecimal()
    sys.stdout.write(json.dumps(at_moments(folder, int(given[0]), whole) if timed else at_places(folder, given)))


if __name__ == "__main__":
    main()
