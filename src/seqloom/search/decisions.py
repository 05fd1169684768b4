"""The log of labeling decisions: one line per decision, only ever appended, so nothing is lost when it stops.

    {"kind": "label", "action": 1, "row": "17", "text": "8d1f02c3", "label": "good", "by": "person", ...}
    {"kind": "skip", "action": 2, "row": "4", "text": "55aa0e91"}
    {"kind": "undo", "action": 3, "undone": 2}

An action is the effect of one answer. It usually has one line; accepting many suggestions at once has thousands. The
key `of` says how many lines an action has if there are several: an action with missing lines, after a crash, is ignored
as a whole. An undo is an action too and reverts the last active one. Lines are never removed; the current state comes
from replaying the log. Each line has a checksum of the text of its row (`text`), so it cannot apply to another text.

Any process can read a log. Only one at a time can write it, and it holds `.NAME.held` beside the log meanwhile.
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


class RowLabel(NamedTuple):
    """The label of a row, None if it was skipped, and who decided ("person" or "model")."""

    label: str | None
    by: str


class Undo(msgspec.Struct, frozen=True, tag_field="kind", tag="undo"):
    """A line that reverts an action."""

    action: int
    undone: int


class Label(msgspec.Struct, frozen=True, tag_field="kind", tag="label", omit_defaults=True):
    """A line that gives a row a label."""

    action: int
    row: str
    text: str  # its checksum
    label: str
    by: str
    suggested: str | None = None
    confidence: float | None = None
    of: int = 1  # lines of the action

    def decided(self) -> RowLabel:
        return RowLabel(self.label, self.by)


class Skip(msgspec.Struct, frozen=True, tag_field="kind", tag="skip", omit_defaults=True):
    """A line that skips a row."""

    action: int
    row: str
    text: str
    suggested: str | None = None
    confidence: float | None = None
    of: int = 1

    def decided(self) -> RowLabel:
        return RowLabel(None, PERSON)


Line = Label | Skip | Undo


class Action(NamedTuple):
    """The effect of one answer: decisions by row name, and the decisions they replaced."""

    number: int
    rows: Mapping[str, RowLabel]
    previous: Mapping[str, RowLabel | None]


class Decision(NamedTuple):
    """A new decision: the name and text of a row, its label (None skips it), and what was suggested."""

    row: str
    text: str
    label: str | None
    by: str = PERSON
    suggested: str | None = None
    confidence: float | None = None

    def line(self, action: int, of: int) -> Label | Skip:
        text, sure = text_sum(self.text), None if self.confidence is None else round(self.confidence, 6)
        if self.label is None:
            return Skip(action, self.row, text, self.suggested, sure, of)
        return Label(action, self.row, text, self.label, self.by, self.suggested, sure, of)


def text_sum(text: str) -> str:
    """Return a checksum of a text, eight hexadecimal digits."""
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


class Decisions:
    """The decisions of a log about rows, whose texts are given by name; `current` has the active one of each row."""

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path, self.texts = path, texts
        self.actions: list[Action] = []  # active ones
        self.current: dict[str, RowLabel] = {}
        self.last = 0  # number of the last action
        for _, found in groupby(_read(path), key=lambda one: (one[1].action, isinstance(one[1], Undo))):
            self._replay(list(found))

    @property
    def labeled(self) -> dict[str, RowLabel]:
        """Return the decisions of all rows that have a label."""
        return {row: decided for row, decided in self.current.items() if decided.label is not None}

    def _replay(self, found: list[tuple[int, Line]]) -> None:
        """Apply the numbered lines of one action; ignore the action if lines are missing."""
        lines = list[Label | Skip]()
        for number, line in found:
            self.last = max(self.last, line.action)
            if isinstance(line, Undo):
                if not self.actions or self.actions[-1].number != line.undone:
                    why = f"it undoes action {line.undone}, which is not the last active one"
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
            found = "is not in this file" if text is None else "has a different text in this file"
            fix = "give the file that was labeled, or a new name for --out"
            raise ConfigError(f"{self.path} has a decision about row {line.row!r}, but that row {found}", fix=fix)

    def _hold(self, number: int, rows: dict[str, RowLabel]) -> None:
        self.actions.append(Action(number, rows, {row: self.current.get(row) for row in rows}))
        self.current.update(rows)

    def _take_back(self) -> Action:
        """Revert the last active action and return it."""
        action = self.actions.pop()
        for row, decided in action.previous.items():
            if decided is None:
                del self.current[row]
            else:
                self.current[row] = decided
        return action


class WritableDecisions(Decisions):
    """The decisions of a log, for the one process that writes it."""

    def add(self, choices: Sequence[Decision]) -> None:
        """Append decisions as one action; they are on disk when this returns."""
        number = self._next()
        append_lines(self.path, [msgspec.to_builtins(choice.line(number, len(choices))) for choice in choices])
        self._hold(number, {choice.row: RowLabel(choice.label, choice.by) for choice in choices})

    def undo(self) -> Action | None:
        """Revert the last active action and return it; None if there is none."""
        if not self.actions:
            return None
        append_lines(self.path, [msgspec.to_builtins(Undo(self._next(), self.actions[-1].number))])
        return self._take_back()

    def _next(self) -> int:
        """Return an unused action number, also after a write that failed."""
        self.last += 1
        return self.last


@contextmanager
def open_log(path: Path, texts: Mapping[str, str]) -> Iterator[WritableDecisions]:
    """A context in which only this process can write the log; raises DurableError if another process does."""
    with ExitStack() as stack:
        held = path.with_name(f".{path.name}.held")
        try:
            if path.is_symlink():
                raise DurableError("it is a link", fix="name the file itself")
            if path.exists() and not os.access(path, os.W_OK):
                raise DurableError("its permissions forbid it", fix="change them, or give another name")
            stack.enter_context(hold(held))
        except DurableError as error:
            raise type(error)(f"{path} cannot be written: {error.problem}", fix=error.fix) from None
        stack.callback(remove_held, held)
        yield WritableDecisions(path, texts)


def _read(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield the numbered lines of a log; raise DamagedError for a line that is not a decision."""
    for number, record in enumerate(read_lines(path).records, 1):
        try:
            yield number, msgspec.convert(record, Line)
        except msgspec.ValidationError as error:
            raise _damaged(path, number, str(error)) from None


def _damaged(path: Path, number: int, why: str) -> DamagedError:
    fix = "give another name for the labels, or restore the log from a copy"
    return DamagedError(f"{path}, line {number}: expected a decision about a label ({why})", fix=fix)
