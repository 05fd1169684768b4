"""Labels that mean the same and are written differently, and the one spelling that replaces them.

`trimmed` is the form in which labels are compared and written: Unicode NFC, single spaces, no damaged characters.
`merged_cases` and `merged_typos` map labels to a more frequent one. A label that the user asked for is *fixed*: others
are mapped to it, and it is never mapped itself.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from itertools import combinations

from seqloom.data.mojibake import repaired

SHORTEST_TYPO = 4  # letters: shorter labels are often similar on purpose,
SHORT_TYPO, SHORT_TIMES = 3, 100  # unless one is far rarer; then they are only told
LONGEST_TYPO = 64  # letters: the search makes a copy of the label for each of its letters
LIKELY_TIMES = 10  # a typing error is likely if it is at least this much rarer than the label that it resembles
Merged = dict[str, str]  # the labels that change, and what they become


def spaced(label: str) -> str:
    """Return the label with single spaces."""
    return " ".join(label.split())


def composed(label: str) -> str:
    """Return the label in NFC with single spaces."""
    return unicodedata.normalize("NFC", spaced(label))


def folded(label: str) -> str:
    """Return the same without the difference between upper and lower case."""
    return composed(label).casefold()


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


def likely_typos(counts: Counter[str], *, fold: bool = True) -> Merged:
    """Map labels to a far more frequent one that is one typing error away; of short labels only very rare ones."""
    found = merged_typos(counts, (), 1, SHORT_TYPO, fold=fold)
    return {label: meant for label, meant in found.items() if _times(label, meant) * counts[label] <= counts[meant]}


def _times(label: str, meant: str) -> int:
    return LIKELY_TIMES if min(len(label), len(meant)) >= SHORTEST_TYPO else SHORT_TIMES


def one_spelling(counts: Counter[str], *, typos: bool) -> Merged:
    """Map labels to the one that replaces them when a file with these labels is cleaned, with --typo-distance 1 or not.

    >>> one_spelling(Counter({"spam": 30, " Spam": 2, "ham": 40, "spma": 1}), typos=True)
    {' Spam': 'spam', 'spma': 'spam'}
    """
    found = {label: trimmed(label) for label in counts}
    while True:
        totals = Counter[str]()
        for label, name in found.items():
            totals[name] += counts[label]
        merged = merged_cases(totals, ()) or (merged_typos(totals, (), 1) if typos else {})
        if not merged:
            return {label: name for label, name in found.items() if name != label}
        found = {label: merged.get(name, name) for label, name in found.items()}


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
