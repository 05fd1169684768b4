"""The examples that were being read when numbers stopped being finite, for people to look at."""

from collections.abc import Iterable
from pathlib import Path

from seqloom.durable import write_lines
from seqloom.tasks.showing import input_shown
from seqloom.training.session import Session

NAME = "bad_batch.jsonl"
LONGEST = 2_000  # characters of an input


def write_bad_batches(session: Session, recent: Iterable[tuple[int, tuple[str, ...]]]) -> Path:
    """The path of a file with one line for each example of the last steps of this rank."""
    name = NAME if session.ranks.count == 1 else f"rank-{session.ranks.rank}-{NAME}"
    path = session.folder.path / name
    write_lines(path, (_record(session, step, one) for step, ids in recent for one in ids))
    return path


def _record(session: Session, step: int, id_: str) -> dict[str, object]:
    place = session.prepared.place_of(int(id_))
    shown = input_shown(session.task.meaning, session.prepared, int(id_))
    return {"step": step, "id": id_, "file": place.path, "line": place.line, "input": shown[:LONGEST]}
