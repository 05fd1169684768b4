"""Labels that mean the same and are written differently, and the one spelling that replaces them.

`trimmed` is the form in which labels are compared and written: Unicode NFC, single spaces, no damaged characters.
`merged_cases` and `merged_typos` map labels to a more frequent one. A label that the user asked for is *fixed*: others
are mapped to it, and it is never mapped itself. `LabelTable` is the table of a user.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.checks.labels import LONGEST_TYPO, SHORTEST_TYPO, composed, folded
from seqloom.data.mojibake import repaired
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.registry import read_table
from seqloom.errors import ConfigError

COLUMNS = ("from", "to")
Merged = dict[str, str]  # the labels that change, and what they become


def trimmed(label: str) -> str:
    """Return the label in NFC, with single spaces, and with damaged characters repaired.

    >>> trimmed(" very  good\\u00a0"), trimmed("cafe\\u0301"), trimmed("cafÃ©")
    ('very good', 'café', 'café')
    """
    while (better := composed(repaired(label))) != label:  # NFC may join what is then recognized as damage
        label = better
    return label


def merged_cases(counts: Counter[str], fixed: Collection[str]) -> Merged:
    """Map labels that differ only in upper and lower case to the fixed or else the most frequent one.

    >>> merged_cases(Counter({"Spam": 3, "spam": 5, "SPAM": 1, "ham": 4}), ())
    {'Spam': 'spam', 'SPAM': 'spam'}
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        groups[folded(label)].append(label)
    found: Merged = {}
    for group in groups.values():
        best = min(group, key=_rank(counts, fixed))
        found |= {label: best for label in group if label != best and label not in fixed}
    return found


def merged_typos(
    counts: Counter[str], fixed: Collection[str], most: int, shortest: int = SHORTEST_TYPO, *, fold: bool = True
) -> Merged:
    """Map labels to a more frequent one that is at most `most` typing errors away.

    Labels have at least `shortest` letters for each typing error. The labels that stay are more than `most` errors
    apart, as far as they are long enough to be compared. Without `fold`, labels that differ only in upper and lower
    case stay too.

    >>> merged_typos(Counter({"complaint": 40, "compliant": 2, "praise": 9}), (), 1)
    {'compliant': 'complaint'}
    """
    found: Merged = {}
    near: defaultdict[str, list[str]] = defaultdict(list)  # the labels that stay, by what is left of them
    for label in sorted(counts, key=_rank(counts, fixed)):
        compared = folded(label)
        if not shortest * most <= len(compared) <= LONGEST_TYPO:
            continue
        parts = _shortened(compared, most)
        others = dict.fromkeys(other for part in parts for other in near.get(part, ()))
        close = [
            other
            for other in others
            if (fold or folded(other) != compared) and typos_between(compared, folded(other), most) is not None
        ]
        if close and label not in fixed:
            found[label] = min(
                close, key=lambda one: (typos_between(compared, folded(one), most), *_rank(counts, fixed)(one))
            )
        else:
            for part in parts:
                near[part].append(label)
    return found


def _rank(counts: Counter[str], fixed: Collection[str]) -> Callable[[str], tuple[bool, int, str]]:
    """Return the order in which labels are preferred: fixed, frequent, alphabetical."""
    return lambda label: (label not in fixed, -counts[label], label)


def _shortened(label: str, most: int) -> set[str]:
    """Return the label without up to `most` letters: labels that are `most` typing errors apart share one of these."""
    return {
        "".join(letter for at, letter in enumerate(label) if at not in without)
        for count in range(most + 1)
        for without in combinations(range(len(label)), count)
    }


def typos_between(one: str, other: str, most: int) -> int | None:
    """Return how many letters are added, missing, changed or swapped with a neighbor; None if more than `most`.

    This is the optimal string alignment distance. Labels whose digits differ are different on purpose: None.

    >>> typos_between("complaint", "compliant", 1), typos_between("class1", "class2", 1)
    (1, None)
    """
    if [letter for letter in one if letter.isdigit()] != [letter for letter in other if letter.isdigit()]:
        return None
    before, last = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        this = [row]
        for column, meant in enumerate(other, 1):
            best = min(last[column] + 1, this[-1] + 1, last[column - 1] + (letter != meant))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == meant:
                best = min(best, before[column - 2] + 1)
            this.append(best)
        before, last = last, this
    return last[-1] if last[-1] <= most else None


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
