"""The error file: the answers that are furthest from right, the worst first, each with its whole input.

    {"id": "r7", "file": "a.csv", "line": 12, "input": "...", "said": "bad", "true": "good", "right": false, ...}

Wrong answers stand before right ones, and where answers are only better or worse, the badness alone decides. `id` is
the name that the data gives a row, if any; file and line always tell where it stands. The file is a table (.csv) or
JSON lines, and written whole or not at all.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from seqloom.data.examples import Example, TextPair, TextTriple, Words
from seqloom.data.written import rounded, row
from seqloom.durable import write_file
from seqloom.errors import ConfigError
from seqloom.loaded.origins import Origin
from seqloom.tasks.contract import Judged, Task
from seqloom.tasks.judging import Evaluation
from seqloom.tasks.showing import input_shown

MOST_ERRORS = 1_000
ENDINGS = (".jsonl", ".csv")
OWN = ("id", "file", "line", "input", "said", "true", "right", "loss")  # what every line has


def require_errors(path: Path, most: int) -> int:
    """How many answers are kept; ConfigError, before any work, for a file that cannot be written."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"errors: {path.name} has no format", fix=f"name it {path.stem}{' or '.join(ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"errors: there is no folder {path.parent}", fix="make it, or give another path")
    if most < 1:
        raise ConfigError(f"errors: {most} answers are none", fix="take at least 1")
    return most


def write_errors(path: Path, task: Task, evaluation: Evaluation, origin: Origin) -> None:
    """Nothing; when it returns, the file holds a line for each of the worst answers."""
    examples = origin.examples({int(one.id) for one in evaluation.worst})
    lines = [_line(task, one, examples.get(int(one.id)), origin) for one in evaluation.worst]
    write_file(path, [_as_csv(lines) if path.suffix.lower() == ".csv" else _as_lines(lines)])


def _line(task: Task, judged: Judged, example: Example | None, origin: Origin) -> Any:
    """What a line of the file holds, by name."""
    place, loss = origin.prepared.place_of(int(judged.id)), task.badness(judged)
    told = input_shown(task.meaning, origin.prepared, int(judged.id)) if example is None else whole(example)
    own = {
        "id": None if example is None else example.id or None,
        "file": place.path,
        "line": place.line,
        "input": told or input_shown(task.meaning, origin.prepared, int(judged.id)),
        "said": judged.said,
        "true": judged.true if example is None else task.truth(judged, example.target),
        "right": judged.right,
        "loss": loss if np.isfinite(loss) else None,
    }
    return rounded(own | {name: value for name, value in task.details(judged).items() if name not in own})


def whole(example: Example) -> Any:
    """The whole input where it is text: a text, or two; nothing for arrays."""
    given = example.input
    if isinstance(given, TextPair | TextTriple):
        return list(given)
    return given.text if isinstance(given, Words) else given if isinstance(given, str) else None


def _as_lines(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _as_csv(lines: list[dict[str, Any]]) -> bytes:
    """A table whose columns are all names that a line has."""
    columns = list(dict.fromkeys([*OWN, *(name for line in lines for name in line)]))
    return b"".join([row(columns), *(row(line.get(name) for name in columns) for line in lines)])
