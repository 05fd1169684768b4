"""A case of the bad-input corpus: the bytes, the call, and what must come of it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

Outcome = Literal["REJECT", "WARN", "OK"]
Content = bytes | Callable[[], bytes]  # large ones are made when they are needed
Around = Callable[[], AbstractContextManager[None]]
Make = Callable[[Path], None]  # puts something into a folder that bytes alone cannot be: a pipe, a link


class Case(NamedTuple):
    """One row of the table in its first form, or another form of it: `C12` and `C12 by name`.

    `code` is the one kind of finding that there must be: the refusal, the warning, or the note of a case that is OK.
    `says` are facts that its message must hold, `place` is where it must point.
    """

    name: str
    outcome: Outcome
    code: str
    files: Mapping[str, Content]
    arguments: tuple[str, ...]
    says: tuple[str, ...] = ()
    place: str = ""
    rows: int | None = None  # in all parts
    also: tuple[str, ...] = ()  # findings that the bytes cannot be without
    make: Make | None = None
    around: Around = nullcontext  # what the command is run in
    memory: int | None = None  # MiB that it may take; such a case is run in a process of its own

    @property
    def id(self) -> str:
        """The id of the row in the table."""
        return self.name.split(" ")[0]

    def write(self, folder: Path) -> None:
        """Put the files of the case into an empty folder."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content())
        if self.make is not None:
            self.make(folder)


def reject(name: str, code: str, files: Mapping[str, Content], *arguments: str, **more: object) -> Case:
    """Input that must be refused before any work."""
    return _case(name, "REJECT", code, files, arguments, more)


def warn(name: str, code: str, files: Mapping[str, Content], *arguments: str, **more: object) -> Case:
    """Input that can be used, and is told about."""
    return _case(name, "WARN", code, files, arguments, more)


def fine(name: str, files: Mapping[str, Content], *arguments: str, note: str = "", **more: object) -> Case:
    """Input with nothing wrong in it, about which there is a note at most."""
    return _case(name, "OK", note, files, arguments, more)


def _case(
    name: str,
    outcome: Outcome,
    code: str,
    files: Mapping[str, Content],
    given: tuple[str, ...],
    more: dict[str, object],
) -> Case:
    """The files themselves are the arguments unless others are named before the options."""
    if not given or given[0].startswith("--"):
        given = (*(name for name in files if not name.startswith(("dev", "test"))), *given)
    for part in ("dev", "test"):
        given = (*given, *(word for name in files if name.startswith(part) for word in (f"--{part}", name)))
    return Case(name, outcome, code, files, given, **more)  # type: ignore[arg-type]  # checked by Case itself


def sentences(count: int, start: int = 0) -> list[str]:
    """Different sentences."""
    return [f"sentence {number} is about the {number * number}th thing" for number in range(start, start + count)]


def labeled(count: int = 10, start: int = 0) -> list[str]:
    """Rows of a csv file with as many of the one label as of the other."""
    return [f"{text},{('neg', 'pos')[number % 2]}" for number, text in enumerate(sentences(count, start))]


def lines(*rows: str, end: str = "\n") -> bytes:
    """A file of lines."""
    return "".join(row + end for row in rows).encode()


def table(*rows: str, header: str = "text,label", end: str = "\n") -> bytes:
    """A csv file with a header."""
    return lines(header, *rows, end=end)


def replaced(rows: list[str], line: int, row: str) -> list[str]:
    """Rows of a csv file with a header, another one in this line."""
    return [*rows[: line - 2], row, *rows[line - 1 :]]
