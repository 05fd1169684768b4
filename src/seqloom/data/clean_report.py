"""The report on a cleaned copy: every change, the labels of the copy, and the commands to run next."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from seqloom.data.checks.labels import FEW_ROWS
from seqloom.data.checks.spelling import SHORTEST_TYPO
from seqloom.data.clean_commands import MOST_LABELS
from seqloom.report.document import (
    Aside,
    Bullets,
    Callout,
    CodeBlock,
    Details,
    Document,
    Heading,
    KeyFigures,
    Paragraph,
    Shown,
    TableBlock,
    TableCell,
)
from seqloom.report.labels import excerpt, excerpt_from
from seqloom.report.numbers import counted

SHOWN = 5  # changes of each kind, conflicts and bad rows in a terminal
WIDTH = 40  # columns of an example
CHANGES = {  # what is counted, in the order of the report
    "encoding": "line in Windows-1252, converted to UTF-8 in a row that is kept",
    "mojibake": "UTF-8 that was read as Windows-1252, repaired",
    "line-ends": "line ends inside a field, replaced",
    "space": "white space at the start or end of a text, removed",
    "spelling": "label in another spelling, renamed",
    "table": "label in the table, renamed or dropped",
    "typo": "label with typing errors, renamed",
    "rare": "rare label, renamed or dropped",
    "empty": "row without input or target, dropped",
    "repeat": "row with the same input and target as an earlier one, dropped",
    "near": "row nearly the same as an earlier one, with the same target, dropped",
    "conflict": "row with the same input as another and a different target, dropped",
}
GONE = "(dropped)"
KEPT_TYPOS = (
    "To rename such labels, use a table. Without one, --typo-distance 1 merges those of at least "
    f"{SHORTEST_TYPO} characters."
)
KEPT_RARE = f"Labels with fewer than {FEW_ROWS} rows are hardly learned, and labels without rows are never predicted."
KEPT_CONFLICTS = "{} the same input as another row and a different target; {} kept. To drop them, use --conflicts drop."


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that changes; of longer texts, what is around their first difference."""

    row: int  # from 1, without the header
    line: int
    before: str
    after: str  # empty: dropped


@dataclass(frozen=True)
class CleanedRows:
    """All changes of one kind: its code, the number of rows, and each of them."""

    code: str
    rows: int
    each: tuple[ChangedRow, ...]

    @property
    def described(self) -> str:
        """What is counted; whether labels are renamed or dropped, if all of them are."""
        effects = {bool(one.after) for one in self.each}
        effect = "" if len(effects) > 1 else "renamed" if True in effects else "dropped"
        return CHANGES[self.code].replace("renamed or dropped", effect or "renamed or dropped")


@dataclass(frozen=True)
class RenamedLabel:
    """A label that changes: what it becomes (empty: dropped), in how many rows, and the codes of the reasons."""

    label: str
    becomes: str
    rows: int
    why: tuple[str, ...]


@dataclass(frozen=True)
class KeptLabel:
    """A label of the copy, and its rows; `like` is a far more frequent label that is one typing error away."""

    label: str
    rows: int
    like: str = ""

    @property
    def is_rare(self) -> bool:
        """Whether it has too few rows, and is no likely typing error."""
        return self.rows < FEW_ROWS and not self.like


@dataclass(frozen=True)
class CleanReport(Shown):
    """What `seqloom data clean` changed, or would change."""

    file: str
    out: str | None  # None: nothing was written
    rows: int  # good rows of the file
    written: int  # rows of the copy
    changed: int  # rows of the copy that differ from the file
    changes: tuple[CleanedRows, ...]
    labels: tuple[RenamedLabel, ...]
    conflict_lines: tuple[int, ...]  # of each row that contradicts others and is kept
    skipped: tuple[str, ...] = ()  # each bad row, which was left out: its place and what is wrong
    unmatched: tuple[str, ...] = ()  # labels of the table that the file does not have
    kept: tuple[KeptLabel, ...] = ()  # the labels of the copy, the most frequent first
    next: tuple[str, ...] = ()  # the commands to run next, in the shell
    rare: tuple[str, ...] = ()  # labels of the copy with few rows
    rare_options: tuple[str, ...] = ()  # that drop or merge them, where enough other labels are left
    planned: str | None = None  # the copy that a dry run would write
    relabeling: tuple[str, ...] = ()  # the commands that rename likely typing errors and merge rare labels

    @property
    def conflicts(self) -> int:
        """How many rows contradict others and are kept."""
        return len(self.conflict_lines)

    @property
    def bad_rows(self) -> int:
        """How many bad rows were left out."""
        return len(self.skipped)

    @property
    def is_clean(self) -> bool:
        """Whether there was nothing to change."""
        return not self.changes and not self.bad_rows

    def __repr__(self) -> str:
        return f"CleanReport({self.file})\n  {self._verdict}"

    @property
    def _verdict(self) -> str:
        dropped, place = self.rows - self.written, f"written to {self.out}" if self.out else "nothing is written"
        if self.planned:
            place += f" to {self.planned}: a dry run"
        done = f"{counted(self.changed, 'row')} changed and {counted(dropped, 'row')} dropped"
        done += f", {counted(self.bad_rows, 'bad row')} left out" if self.bad_rows else ""
        return f"{'There is nothing to change' if self.is_clean else done}; {place}"

    def document(self) -> Document:
        found: list[list[TableCell]] = [
            [*((one.described, one.rows) if at == 0 else ("", "")), *_cells(changed)]
            for one in self.changes
            for at, changed in enumerate(one.each[:SHOWN])
        ]
        every = [
            Details(
                f"all {counted(one.rows, 'change')}: {one.described}",
                [TableBlock(("line", "before", "after"), [*map(_cells, one.each)])],
            )
            for one in self.changes
            if one.rows > SHOWN
        ]
        renamed: list[list[TableCell]] = [
            [label_shown(one.label), label_shown(one.becomes) if one.becomes else GONE, one.rows, ", ".join(one.why)]
            for one in self.labels
        ]
        unmatched = ", ".join(map(label_shown, self.unmatched))
        many, more = self.conflicts, self.conflicts - SHOWN
        have, are = (f"{many:,} rows have", "they are") if many > 1 else ("1 row has", "it is")
        lines = [*map(str, self.conflict_lines)]
        listed = f" Lines: {', '.join(lines[:SHOWN])}{f' and {more:,} more' if more > 0 else ''}."
        kept: list[list[TableCell]] = [[label_shown(one.label), one.rows] for one in self.kept]
        rows = {one.label: one.rows for one in self.kept}
        typos = [
            f"{label_shown(one.label)} ({counted(one.rows, 'row')}) may be a typing error of {label_shown(one.like)} "
            f"({counted(rows[one.like], 'row')})"
            for one in self.kept
            if one.like
        ]
        few = [f"{label_shown(label)} has {counted(rows[label], 'row')}" for label in self.rare[:MOST_LABELS]]
        few += [f"and {len(self.rare) - MOST_LABELS:,} more labels"] if len(self.rare) > MOST_LABELS else []
        return Document(
            f"{self.file} cleaned" if self.out is not None else f"{self.file}: what would be cleaned",
            [
                Callout(self._verdict, "fine"),
                KeyFigures(
                    [
                        (self.rows + self.bad_rows, "rows in the file"),
                        *([(self.bad_rows, "bad rows left out")] if self.bad_rows else []),
                        (self.rows - self.written, "rows dropped"),
                        (self.written, "rows kept"),
                        (self.changed, "of these changed"),
                    ]
                ),
                Heading("Changes"),
                TableBlock(("change", "rows", "line", "before", "after"), found),
                *every,
                Heading("Labels that change"),
                TableBlock(("label", "becomes", "rows", "why"), renamed, brief=20),
                Aside(f"Labels of the table that the file does not have: {unmatched}." if unmatched else ""),
                Heading(f"Labels of the copy ({len(kept):,})"),
                TableBlock(("label", "rows"), kept, brief=20),
                Heading("Left as they are"),
                Bullets([*typos[:MOST_LABELS], *few]),
                Aside(KEPT_TYPOS if typos else ""),
                Aside(" ".join([KEPT_RARE, *map(_effect, self.rare_options)]) if few else ""),
                Aside("If you want that, run this instead:" if self.relabeling else ""),
                CodeBlock("\n".join(self.relabeling), "sh"),
                Aside(KEPT_CONFLICTS.format(have, are) + listed if many else ""),
                Details(f"all {many:,} lines", [Paragraph(", ".join(lines))] if more > 0 else []),
                Heading(f"Bad rows, left out ({self.bad_rows:,})"),
                Bullets(self.skipped[:SHOWN]),
                Aside(f"and {self.bad_rows - SHOWN:,} more" if self.bad_rows > SHOWN else ""),
                Details(f"all {self.bad_rows:,} bad rows", [Bullets(self.skipped)] if self.bad_rows > SHOWN else []),
                Heading("Next"),
                CodeBlock("\n".join(self.next), "sh"),
            ],
        )


def _effect(options: str) -> str:
    return f"{options} {'merges them' if '--rare-label' in options else 'drops their rows'}."


def _cells(changed: ChangedRow) -> list[TableCell]:
    return [changed.line, changed.before, changed.after or GONE]


def label_shown(text: str) -> str:
    """A label in quotes, which show spaces."""
    return f"'{excerpt(text, WIDTH)}'"


class ChangeLog:
    """The changes by code."""

    def __init__(self) -> None:
        self.rows: defaultdict[str, list[ChangedRow]] = defaultdict(list)

    def add(self, code: str, row: int, line: int, before: Any, after: Any = "") -> None:
        """Keep a changed row; of longer texts, a part from a little before their first difference."""
        one, other = (
            text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in (before, after)
        )
        shorter = min(len(one), len(other))  # beyond it they differ
        same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), shorter)
        start = max(0, same - WIDTH // 2) if len(one) > WIDTH and other else 0
        cut = (excerpt_from(text, start, WIDTH) for text in (one, other))
        self.rows[code].append(ChangedRow(row + 1, line, *cut))

    def changes(self) -> tuple[CleanedRows, ...]:
        """Return the changes in the order of the report."""
        return tuple(
            CleanedRows(code, len(self.rows[code]), tuple(self.rows[code])) for code in CHANGES if code in self.rows
        )
