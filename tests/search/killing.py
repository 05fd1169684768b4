"""A program that kills builds of an index at many places, each in a process of its own, and lets them go on.

It prints which places killed a build. Everything is imported once; no thread has started when it forks.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

PLACES = [
    *("file-new:kill:1", "file-50:kill:2", "file-100:kill:4", "file-synced:kill:7", "before-manifest:kill:2"),
    *("manifest-half:kill:1", "after-manifest:kill:3", "before-rename:kill:4", "after-rename:kill:1"),
    *("after-rename:kill:4", "file-25:kill:11", "file-75:kill:6"),
]


def build(folder: Path, name: str) -> None:
    from search_common import WordTable, last
    from seqloom.search import building
    from seqloom.search.documents import Collection

    building.DOCUMENTS, building.TOGETHER = 8, 5
    last(building.build_index(folder / name, WordTable(), Collection(folder / "index.jsonl")))


def child(folder: Path, name: str, place: str) -> int:
    """How a build in a process of its own ended."""
    number = os.fork()
    if number == 0:
        os.environ["SEQLOOM_FAIL"] = place
        build(folder, name)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def main() -> None:
    folder, killed = Path(sys.argv[1]), {}
    import seqloom.search  # noqa: F401

    for place in PLACES:
        name = place.replace(":", "-")
        killed[name] = child(folder, name, place) == -signal.SIGKILL
        assert child(folder, name, "") == 0, place
    sys.stdout.write(json.dumps(killed))


if __name__ == "__main__":
    main()
