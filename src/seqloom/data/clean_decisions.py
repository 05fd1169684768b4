"""What every label of a file becomes when it is cleaned, and which rows are dropped."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.config.cleaning import CleaningConfig
from seqloom.data.checks.minhash import near_groups
from seqloom.data.checks.spelling import likely_typos, merged_cases, merged_typos, trimmed
from seqloom.data.label_table import LabelTable
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

EMPTYING = {  # what is said of the rows, and how to keep some, if all of them would be dropped
    "empty": ("without input or target", "name other columns with --input and --target"),
    "table": ("with a label that the table drops", "correct the table of --labels"),
    "rare": ("with a rare label", "give a smaller --rare"),
    "conflict": ("with the same input as another and a different target", "leave out --conflicts drop"),
    "repeat": ("repeated", ""),
    "near": ("nearly repeated", ""),
}


class RowContent(NamedTuple):
    """What is kept of a row between the passes."""

    line: int
    input: bytes  # digest of the repaired input, as it is compared
    target: bytes  # digest of the repaired target; empty for labels
    labels: tuple[str, ...]  # as they are written
    is_empty: bool
    text: str = ""  # of the input, as near duplicates are compared; empty if they are kept


class CleaningDecisions:
    """What every label becomes, and which rows are dropped."""

    def __init__(self, rows: Sequence[RowContent], one_label: bool, cleaning: CleaningConfig) -> None:
        self.rows, self.one_label, self.cleaning = rows, one_label, cleaning
        self.dropped = ["empty" if row.is_empty else "" for row in rows]  # the reason; empty: it stays
        self.names = {label: label for row in rows for label in row.labels}  # an empty text: the label is dropped
        self.why: dict[str, list[str]] = {label: [] for label in self.names}
        self.conflicts: list[int] = []  # rows that contradict others and stay
        self.unmatched: tuple[str, ...] = ()  # labels of the table that no row has

    def decide(self, table: LabelTable) -> None:
        """Apply all rules until none of them changes anything."""
        cleaning, target, folds = self.cleaning, self.cleaning.rare_label, self.cleaning.case == "fold"
        fixed = table.names | ({target} if target else set())
        self._rename({label: trimmed(label) for label in self.names}, "spelling")
        self.unmatched = table.unmatched({*self.names.values()})
        self._rename({name: table.renamed(name) for name in self.names.values()}, "table")
        while True:
            changed = folds and self._rename(merged_cases(self.counts(), fixed), "spelling")
            if cleaning.typo_distance:
                typos = merged_typos(self.counts(), fixed, cleaning.typo_distance, fold=folds)
                changed |= self._rename(typos, "typo")
            changed |= self._drop_repeats()
            rare = [one for one, count in self.counts().items() if count < cleaning.rare and one != target]
            changed |= self._rename(dict.fromkeys(rare, target or ""), "rare")
            if not changed:
                return

    def labels(self, row: RowContent) -> tuple[str, ...]:
        """Return the new labels of a row, each once."""
        return tuple(dict.fromkeys(name for label in row.labels if (name := self.names[label])))

    def counts(self) -> Counter[str]:
        """Count the new labels of the rows that stay."""
        kept = (row for row, why in zip(self.rows, self.dropped, strict=True) if not why)
        return Counter(chain.from_iterable(map(self.labels, kept)))

    def _rename(self, renames: Mapping[str, str], why: str) -> bool:
        """Rename labels, and drop the rows of a dropped label if each row has one; return whether anything changed."""
        gone, changed = set[str](), False
        for label, name in self.names.items():
            if (new := renames.get(name, name)) != name:
                self.names[label], changed = new, True
                self.why[label] += [why] if why not in self.why[label] else []
                if not new:
                    gone.add(label)
        if gone and self.one_label:
            for number, row in enumerate(self.rows):
                if not self.dropped[number] and row.labels[0] in gone:
                    self.dropped[number] = why
        return changed

    def _drop_repeats(self) -> bool:
        """Drop repeated rows, and rows that contradict others if asked; return whether there are any."""
        same: defaultdict[bytes, dict[Any, list[int]]] = defaultdict(dict)  # rows by input and target
        for number, row in enumerate(self.rows):
            if not self.dropped[number]:
                key = (row.target, *sorted(self.labels(row)))
                same[row.input].setdefault(key, []).append(number)
        changed, self.conflicts = False, []
        for targets in same.values():
            if len(targets) > 1 and self.cleaning.conflicts == "drop":
                gone, why = [number for rows in targets.values() for number in rows], "conflict"
            else:
                later = [number for rows in targets.values() for number in rows[1:]]
                gone, why = later if self.cleaning.repeats != "keep" else [], "repeat"
                self.conflicts += {*chain(*targets.values())} - {*gone} if len(targets) > 1 else ()
            for number in gone:
                self.dropped[number], changed = why, True
        self.conflicts.sort()
        return self._drop_near() or changed if self.cleaning.repeats == "near" else changed

    def _drop_near(self) -> bool:
        """Drop rows that are nearly the same as an earlier one with the same target; return whether there are any."""
        left = [number for number, why in enumerate(self.dropped) if not why]
        before = set[Any]()
        for group, members in enumerate(near_groups([self.rows[number].text for number in left])):
            for number in sorted(left[member] for member in members):
                row = self.rows[number]
                key = (group, row.target, *sorted(self.labels(row)))
                if key in before:
                    self.dropped[number] = "near"
                before.add(key)
        return any(self.dropped[number] for number in left)

    def require_rows(self, path: Path) -> None:
        """Raise ConfigError if no row is left: nothing could be trained on the copy."""
        dropped = Counter(self.dropped)
        if not dropped[""]:
            why = {code: words for code, words in EMPTYING.items() if dropped[code]}
            found = ", ".join(f"{dropped[code]:,} {words}" for code, (words, _) in why.items())
            raise ConfigError(
                f"all {counted(len(self.rows), 'row')} of {path} would be dropped: {found}",
                fix=", or ".join(fix for _, fix in why.values() if fix),
            )

    def likely_typos(self) -> dict[str, str]:
        """Labels that stay, each with a far more frequent one that is a typing error away."""
        return likely_typos(self.counts(), fold=self.cleaning.case == "fold")
