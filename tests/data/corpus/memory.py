"""How much memory a case takes: the command line in a process of its own, which was warm before.

python -m data.corpus.memory NAME FOLDER    prints the growth of the peak in KiB, then the outcome as JSON
"""

import json
import sys
from pathlib import Path

from data.corpus.cases import CASES
from data.corpus.running import check, import_everything


def peak() -> int:
    """The most memory that this process has held so far, in KiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("VmHWM"))


def main() -> None:
    """Run a case whose files have been written, and say what it took."""
    name, folder = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    import_everything()
    before = peak()
    outcome = check(Path(folder), *case.arguments, "--json")
    sys.stdout.write(f"{peak() - before}\n{json.dumps(outcome)}\n")


if __name__ == "__main__":
    main()
