"""Decisions about rows, one line each in a log that only grows: stopping at any moment loses nothing.

    {"kind": "label", "action": 1, "row": "17", "text": "8d1f02c3", "label": "good", "by": "person", ...}
    {"kind": "skip", "action": 2, "row": "4", "text": "55aa0e91"}
    {"kind": "undo", "action": 3, "undone": 2}

An action is what one answer did: mostly one line, or thousands when suggestions were accepted together. Each line says
how many lines its action has, if there are more; of an action that a crash cut short nothing holds. An undo is an
action too; it takes back the last one that still stands. Nothing is ever taken out of the log: what holds is found by
reading it from the start. Each line has the sum of its row's text, so a decision never slips to another text.

Anybody may read a log; one process at a time writes it, and holds `.NAME.held` beside it meanwhile.
"""

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.files.jsonl import append_lines, read_lines
from seqloom.files.lock import hold, remove_held

PERSON, MODEL = "person", "model"  # who decided


class Decided(NamedTuple):
    """The label of a row, None if it was skipped, and who decided."""

    label: str | None
    by: str


class Undo(msgspec.Struct, frozen=True, tag_field="kind", tag="undo"):
    """A line that takes back an action."""

    action: int
    undone: int


class Label(msgspec.Struct, frozen=True, tag_field="kind", tag="label", omit_defaults=True):
    """A line that gives a row a label."""

    action: int
    row: str
    text: str  # the sum of it
    label: str
    by: str
    suggested: str | None = None
    confidence: float | None = None
    of: int = 1  # the lines of the action

    def decided(self) -> Decided:
        """What holds for the row."""
        return Decided(self.label, self.by)


class Skip(msgspec.Struct, frozen=True, tag_field="kind", tag="skip", omit_defaults=True):
    """A line that says that a row gets no label."""

    action: int
    row: str
    text: str
    suggested: str | None = None
    confidence: float | None = None
    of: int = 1

    def decided(self) -> Decided:
        """What holds for the row."""
        return Decided(None, PERSON)


Line = Label | Skip | Undo


class Action(NamedTuple):
    """What one answer did, with the rows by their names, and what held for them before."""

    number: int
    rows: Mapping[str, Decided]
    before: Mapping[str, Decided | None]


class Decision(NamedTuple):
    """A decision to be taken: the name and text of a row, its label or None to skip it, and what was suggested."""

    row: str
    text: str
    label: str | None
    by: str = PERSON
    suggested: str | None = None
    confidence: float | None = None

    def line(self, action: int, of: int) -> Label | Skip:
        """The line of the log."""
        text, sure = text_sum(self.text), None if self.confidence is None else round(self.confidence, 6)
        if self.label is None:
            return Skip(action, self.row, text, self.suggested, sure, of)
        return Label(action, self.row, text, self.label, self.by, self.suggested, sure, of)


def text_sum(text: str) -> str:
    """Eight digits that tell a text from others."""
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


class Decisions:
    """The decisions in a log about rows with these texts, by their names; `standing` is what holds now."""

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path, self.texts = path, texts
        self.actions: list[Action] = []  # those that stand
        self.standing: dict[str, Decided] = {}
        self.last = 0  # the number of the last action
        for _, found in groupby(_read(path), key=lambda one: (one[1].action, isinstance(one[1], Undo))):
            self._replay(list(found))

    @property
    def labelled(self) -> dict[str, Decided]:
        """The rows that have a label."""
        return {row: decided for row, decided in self.standing.items() if decided.label is not None}

    def _replay(self, found: list[tuple[int, Line]]) -> None:
        """Do what the lines of one action say, which come with their numbers; nothing, if some are missing."""
        lines = list[Label | Skip]()
        for number, line in found:
            self.last = max(self.last, line.action)
            if isinstance(line, Undo):
                if not self.actions or self.actions[-1].number != line.undone:
                    why = f"it takes back action {line.undone}, which is not the last that stands"
                    raise _damaged(self.path, number, why)
                self._take_back()
            else:
                self._require_same(line)
                lines.append(line)
        if lines and len(lines) >= lines[0].of:
            self._hold(lines[0].action, {line.row: line.decided() for line in lines})

    def _require_same(self, line: Label | Skip) -> None:
        text = self.texts.get(line.row)
        if text is None or text_sum(text) != line.text:
            found = "is not in this file" if text is None else "has another text in this file"
            fix = "give the file that it was made with, or a new name for the labels"
            raise ConfigError(f"{self.path} holds a decision about row {line.row!r}, which {found}", fix=fix)

    def _hold(self, number: int, rows: dict[str, Decided]) -> None:
        self.actions.append(Action(number, rows, {row: self.standing.get(row) for row in rows}))
        self.standing.update(rows)

    def _take_back(self) -> Action:
        """The last action that stood: what was before it holds again."""
        action = self.actions.pop()
        for row, decided in action.before.items():
            if decided is None:
                del self.standing[row]
            else:
                self.standing[row] = decided
        return action


class WritableDecisions(Decisions):
    """The same for the process that writes the log."""

    def take(self, choices: Sequence[Decision]) -> None:
        """Add choices as one action; when this returns, they are on the disk and hold."""
        number = self._next()
        append_lines(self.path, [msgspec.to_builtins(choice.line(number, len(choices))) for choice in choices])
        self._hold(number, {choice.row: Decided(choice.label, choice.by) for choice in choices})

    def undo(self) -> Action | None:
        """The last action that stood and now does not; None if there was none."""
        if not self.actions:
            return None
        append_lines(self.path, [msgspec.to_builtins(Undo(self._next(), self.actions[-1].number))])
        return self._take_back()

    def _next(self) -> int:
        """A number that no action has, nor one whose writing fails half-way."""
        self.last += 1
        return self.last


@contextmanager
def writing(path: Path, texts: Mapping[str, str]) -> Iterator[WritableDecisions]:
    """A block in which this process alone may add to a log; DurableError at once if it cannot, or another one does."""
    with ExitStack() as stack:
        held = path.with_name(f".{path.name}.held")
        try:
            if path.is_symlink():
                raise DurableError("it is a link", fix="name the file itself")
            if path.exists() and not os.access(path, os.W_OK):
                raise DurableError("its rights forbid it", fix="change them, or give another name")
            stack.enter_context(hold(held))
        except DurableError as error:
            raise type(error)(f"{path} cannot be written: {error.problem}", fix=error.fix) from None
        stack.callback(remove_held, held)
        yield WritableDecisions(path, texts)


def _read(path: Path) -> Iterator[tuple[int, Line]]:
    """The lines of a log with their numbers; DamagedError for one that is no decision."""
    for number, record in enumerate(read_lines(path).records, 1):
        try:
            yield number, msgspec.convert(record, Line)
        except msgspec.ValidationError as error:
            raise _damaged(path, number, str(error)) from None


def _damaged(path: Path, number: int, why: str) -> DamagedError:
    fix = "give another name for the labels, or restore the log from a copy"
    return DamagedError(f"{path}, line {number}: expected a decision about a label ({why})", fix=fix)
