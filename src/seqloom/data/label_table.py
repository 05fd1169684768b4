"""The table with which users rename and drop labels."""

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.checks.spelling import folded, trimmed
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.registry import read_table
from seqloom.errors import ConfigError

COLUMNS = ("from", "to")


class LabelTable(NamedTuple):
    """What a user wants labels to become: an exact match wins, else upper and lower case make no difference."""

    exact: dict[str, str]  # an empty text: the label is dropped
    by_case: dict[str, str]  # by the folded label; without those that say two things

    @classmethod
    def of(cls, renames: dict[str, str]) -> "LabelTable":
        """Create the table from its rows.

        >>> table = LabelTable.of({"spam": "unwanted", "US": "country", "us": "pronoun"})
        >>> [table.renamed(label) for label in ("Spam", "us", "Us", "ham")]
        ['unwanted', 'pronoun', 'Us', 'ham']
        """
        folds: defaultdict[str, set[str]] = defaultdict(set)
        for old, new in renames.items():
            folds[folded(old)].add(new)
        return cls(renames, {old: min(news) for old, news in folds.items() if len(news) == 1})

    @classmethod
    def read(cls, path: Path) -> "LabelTable":
        """Read a file with the columns `from` and `to`.

        Raises RejectedError or ConfigError if it cannot be read, or says two things about one label.
        """
        ledger, found = Ledger(), dict[str, str]()
        table = read_table((path,), ReadingConfig(), ledger)
        lower = [name.strip().lower() for name in table.columns]
        if not all(name in lower for name in COLUMNS):
            text = f"expected the columns from and to, found {', '.join(table.columns)}"
            ledger.bad_file("label.table", text, Place(str(path), 1), "name the columns in the first row: from,to")
        columns = [lower.index(name) for name in COLUMNS]
        for record in table.records:
            old, new = (trimmed(str(record.values[column])) for column in columns)
            if found.setdefault(old, new) != new:
                text = f"'{old}' becomes '{found[old]}' in an earlier row and '{new}' here"
                ledger.bad_file("label.table", text, Place(str(path), record.line), "keep one of the two rows")
        ledger.close()
        made = cls.of(found)
        for old, new in found.items():
            if new and (last := made.renamed(new)) != new:
                raise ConfigError(
                    f"{path}: '{old}' becomes '{new}', which becomes '{last or 'nothing'}'",
                    fix=f"write what '{old}' finally becomes",
                )
        return made

    def renamed(self, label: str) -> str:
        """Return what a label becomes."""
        return self.exact.get(label, self.by_case.get(folded(label), label))

    def unmatched(self, labels: Collection[str]) -> tuple[str, ...]:
        """Return what is renamed and is none of these labels.

        >>> LabelTable.of({"spam": "unwanted", "hma": "ham"}).unmatched(["Spam", "ham"])
        ('hma',)
        """
        folds = {folded(label) for label in labels} & self.by_case.keys()
        return tuple(old for old in self.exact if old not in labels and folded(old) not in folds)

    @property
    def names(self) -> set[str]:
        """Return all names that labels become."""
        return {new for new in self.exact.values() if new}
