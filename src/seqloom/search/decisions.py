"""Decisions about rows, one line each in a log that only grows: stopping at any moment loses nothing.

    {"action": 1, "kind": "label", "row": "17", "text": "8d1f02c3", "label": "good", "by": "person", ...}
    {"action": 2, "kind": "skip", "row": "4", "text": "55aa0e91"}
    {"action": 3, "kind": "undo", "undone": 2}

An action is what one answer did: mostly one line, or thousands when suggestions were accepted together. An undo is an
action too; it takes back the last one that still stands. Nothing is ever taken out of the log: what holds is found by
reading it from the start. Each line has the sum of its row's text, so a decision never slips to another text.
"""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.durable import append_lines, read_lines
from seqloom.errors import ConfigError, DamagedError, HeldError

PERSON, MODEL = "person", "model"  # who decided


class Decided(NamedTuple):
    """The label of a row, None if it was skipped, and who decided."""

    label: str | None
    by: str


class Action(NamedTuple):
    """What one answer did, with the rows by their names."""

    number: int
    rows: Mapping[str, Decided]


class Choice(NamedTuple):
    """A decision to be taken: the name and text of a row, its label or None to skip it, and what was suggested."""

    row: str
    text: str
    label: str | None
    by: str = PERSON
    suggested: str | None = None
    confidence: float | None = None

    def line(self, action: int) -> dict[str, Any]:
        """The line of the log."""
        line: dict[str, Any] = {"action": action, "kind": "skip" if self.label is None else "label"}
        line |= {"row": self.row, "text": text_sum(self.text)}
        if self.label is not None:
            line |= {"label": self.label, "by": self.by}
        if self.suggested is not None and self.confidence is not None:
            line |= {"suggested": self.suggested, "confidence": round(self.confidence, 6)}
        return line


def text_sum(text: str) -> str:
    """Eight digits that tell a text from others."""
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


class Decisions:
    """The decisions in a log, and those that are added to it; `standing` is what holds now, by names of rows."""

    def __init__(self, path: Path, texts: Mapping[str, str]) -> None:
        self.path, self.texts = path, texts
        self.actions: list[Action] = []  # those that stand
        self.standing: dict[str, Decided] = {}
        self.last = 0  # the number of the last action
        self.size = self._size()
        for number, lines in _grouped(read_lines(path).records, path).items():
            self._replay(number, lines)

    def _replay(self, number: int, lines: list[dict[str, Any]]) -> None:
        self.last = number
        if lines[0]["kind"] == "undo":
            self._take_back(lines[0]["undone"])
            return
        for line in lines:
            self._require_same(line)
        self._hold(Action(number, {one["row"]: Decided(one.get("label"), one.get("by", PERSON)) for one in lines}))

    def _require_same(self, line: Mapping[str, Any]) -> None:
        text = self.texts.get(line["row"])
        if text is None or text_sum(text) != line["text"]:
            found = "is not in this file" if text is None else "has another text in this file"
            fix = "give the file that it was made with, or a new name for the labels"
            raise ConfigError(f"{self.path} holds a decision about row {line['row']!r}, which {found}", fix=fix)

    def _hold(self, action: Action) -> None:
        self.actions.append(action)
        self.standing.update(action.rows)

    def _take_back(self, number: int) -> None:
        self.actions = [action for action in self.actions if action.number != number]
        self.standing = {}
        for action in self.actions:
            self.standing.update(action.rows)

    def take(self, choices: Sequence[Choice]) -> None:
        """Nothing; when it returns, the choices are one action on the disk, and hold."""
        number = self.last + 1
        self._append([choice.line(number) for choice in choices])
        self._hold(Action(number, {choice.row: Decided(choice.label, choice.by) for choice in choices}))

    def undo(self) -> Action | None:
        """The last action that stood and now does not; None if there was none."""
        if not self.actions:
            return None
        action, number = self.actions[-1], self.last + 1
        self._append([{"action": number, "kind": "undo", "undone": action.number}])
        self._take_back(action.number)
        return action

    def _append(self, lines: list[dict[str, Any]]) -> None:
        """Nothing; the lines of one action are on the disk. HeldError if somebody else wrote there since."""
        if self._size() != self.size:
            raise HeldError(f"{self.path} was written by another process meanwhile", fix="start this command again")
        append_lines(self.path, lines)
        self.size, self.last = self._size(), lines[0]["action"]

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def labelled(self) -> dict[str, Decided]:
        """The rows that have a label."""
        return {row: decided for row, decided in self.standing.items() if decided.label is not None}


def _grouped(records: Sequence[dict[str, Any]], path: Path) -> dict[int, list[dict[str, Any]]]:
    """The lines of each action, in their order; DamagedError for a log of something else."""
    actions: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        if not isinstance(record.get("action"), int) or record.get("kind") not in ("label", "skip", "undo"):
            raise DamagedError(f"{path} is a log of something else than labels", fix="give another name for the labels")
        actions.setdefault(record["action"], []).append(record)
    return actions
