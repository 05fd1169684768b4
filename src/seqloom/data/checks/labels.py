"""Checks of labels and tags: too many, too few, rare, unseen in training, or spelled in several ways.

Two labels may be meant as one if they differ only in white space, case, number format, Unicode form or look-alike
letters. Each of these has a *key*: labels with equal keys differ in nothing else. Keys grow coarser step by step, and a
step reports only what the finer keys keep apart: 'pos ' and 'pos' differ in white space, 'pos' and 'Pos' in case.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

from seqloom.data.checks.check import ExampleBlock
from seqloom.data.checks.spelling import (
    LIKELY_TIMES,
    LONGEST_TYPO,
    SHORT_TIMES,
    SHORT_TYPO,
    SHORTEST_TYPO,
    composed,
    folded,
    one_spelling,
    spaced,
)
from seqloom.data.kinds.kind import TargetKind
from seqloom.data.problems import SAMPLES, Ledger, Place
from seqloom.data.schema import Schema, Target
from seqloom.data.values import is_number
from seqloom.report.numbers import counted

Key = Callable[[str], str]

NULL_LIKE = frozenset({"nan", "null", "none", "na", "n/a", "nil", "<na>", "#n/a", "nat"})
NUMERAL = re.compile(r"[+-]?[0-9]{1,14}(\.[0-9]{0,14})?")
TAG_PREFIX = re.compile(r"[BIESLU]-(?=.)")
WORD = re.compile(r"[^\W\d_]{2,}")
# Letters that look alike in most typefaces: Cyrillic and Greek letters, and the Latin letters they resemble.
LOOK_ALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЈЅаеорсухіјѕһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναι",
    "ABEKMHOPCTYXIJSaeopcyxijshdqwABEZHIKMNOPTYXovai",
)
TIMES_RARER = 50  # a typo is at least this much rarer than the correct label
RARE_SHARE, RARE_ROWS = 0.001, 5  # and it has at most this share of the rows, or so few of them
LONGEST_SHOWN = 64  # letters of a label in a message
MOST_SHOWN = 20  # labels in a message
FEW_ROWS = 5  # a label with fewer is hardly learned, and may be missing in the dev or the test set


def quoted(label: str) -> str:
    """The label in quotation marks; a long one is cut and shown with its length.

    >>> quoted("pos"), quoted("ab" * 100)[-24:]
    ("'pos'", "b...' (200 characters)")
    """
    return f"'{label}'" if len(label) <= LONGEST_SHOWN else f"'{label[:LONGEST_SHOWN]}...' ({len(label):,} characters)"


def _valued(label: str) -> str:
    return str(Decimal(spaced(label)).normalize() + 0) if NUMERAL.fullmatch(spaced(label)) else composed(label)


def _drawn(label: str) -> str:
    return composed(label).translate(LOOK_ALIKES)


BY_TABLE = "--labels TABLE"
STEPS: tuple[tuple[str, Key, Key, str, str], ...] = (  # code, finer key, coarser key, what differs, how to clean it
    ("label.space", str, spaced, "white space", ""),
    ("label.normal_form", spaced, composed, "the Unicode form (NFC or NFD)", ""),
    ("label.case", composed, folded, "upper and lower case", ""),
    ("label.numeric_forms", composed, _valued, "how the number is written", BY_TABLE),
    ("label.confusable", composed, _drawn, "letters that look alike", BY_TABLE),
)


def _fix_alone(fix: str, *_: str) -> str:
    return fix


def find_spellings(
    ledger: Ledger, counts: Counter[str], places: Mapping[str, Place], advice: Callable[..., str]
) -> set[str]:
    """Warn of labels that may be meant as one, and return the rarer spellings; `advice` completes the fixes."""
    shown = {label: f"{quoted(label)} ({counted(count, 'row')})" for label, count in counts.items()}
    odd = set()
    for code, finer, coarser, difference, options in STEPS:
        groups: defaultdict[str, dict[str, str]] = defaultdict(dict)  # the most frequent label for each pair of keys
        for label in counts:
            same, key = groups[coarser(label)], finer(label)
            if key not in same or counts[label] > counts[same[key]]:
                same[key] = label
        for group in (list(group.values()) for group in groups.values() if len(group) > 1):
            group.sort(key=lambda label: -counts[label])
            *others, last = (shown[label] for label in group)
            text = f"labels {', '.join(others)} and {last} differ only in {difference}"
            if code == "label.confusable":
                letters = sorted(set("".join(group)) & set(map(chr, LOOK_ALIKES)))
                text += "".join(f"; {_named(letter)}" for letter in letters[:2])
            fewer = sum(counts[label] for label in group[1:])
            fix = advice("use one spelling if they mean the same", places[group[1]].path, options)
            ledger.warn(code, text, places[group[1]], fix, fewer)
            odd.update(group[1:])
    for label, count in counts.items():
        if label != label.strip() and label.strip() not in counts:
            text = f"label {shown[label]} begins or ends with white space"
            ledger.warn("label.space", text, places[label], advice("remove the white space", places[label].path), count)
        if label.strip().casefold() in NULL_LIKE:
            text = f"label {shown[label]} is used as a class; is it a missing value?"
            ledger.warn("label.null_like", text, places[label], "remove rows without a label", count)
        if not label.isascii() and _drawn(label) not in counts and (strange := _strange_letter(label)):
            text = f"label {shown[label]} mixes alphabets: {_named(strange)}"
            ledger.warn("label.confusable", text, places[label], "write each word in one alphabet", count)
    return odd | _find_typos(ledger, counts, places, advice)


TYPOS_MERGED = "--typo-distance 1"


class TypoCase(NamedTuple):
    """Labels that may be typing errors of one label, what is said of them, and how they are corrected and cleaned."""

    labels: list[str]
    text: str
    correct: str
    by: str


def _find_typos(
    ledger: Ledger, counts: Counter[str], places: Mapping[str, Place], advice: Callable[..., str]
) -> set[str]:
    """Warn of labels that may be typing errors, with all that the option of the fix would merge; return them.

    The option is not advised if it would also merge labels that may be different on purpose.
    """
    found = dict(_typos(counts))
    merging = advice is not _fix_alone and any(
        min(len(one), len(meant)) >= SHORTEST_TYPO for one, meant in found.items()
    )
    if merging:
        merged, merging = _merged_typos(counts)
        found = merged | found
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)  # by what is meant, and how it is cleaned
    for label, meant in found.items():
        by = TYPOS_MERGED if merging and min(len(label), len(meant)) >= SHORTEST_TYPO else BY_TABLE
        groups[meant, by].append(label)
    cases = []
    for (meant, by), labels in groups.items():
        text = f"{_names(labels, counts, 'may be a typo of', 'may be typos of')} {_named_rows(meant, counts)}"
        cases.append(TypoCase(labels, text, f"correct it if {quoted(meant)} is meant", by))
    if len(cases) > SAMPLES:  # no more samples are kept, and all labels are named
        rest = [label for case in cases[SAMPLES - 1 :] for label in case.labels]
        text = ", ".join(f"{_named_rows(label, counts)} of {quoted(found[label])}" for label in rest)
        by = TYPOS_MERGED if all(case.by == TYPOS_MERGED for case in cases[SAMPLES - 1 :]) else BY_TABLE
        cases[SAMPLES - 1 :] = [TypoCase(rest, f"labels that may be typos: {text}", "correct those that are", by)]
    for labels, text, correct, by in cases:
        place = places[labels[0]]
        ledger.warn("label.rare", text, place, advice(correct, place.path, by), sum(counts[label] for label in labels))
    return set(found)


def _merged_typos(counts: Counter[str]) -> tuple[dict[str, str], bool]:
    """The typing errors that cleaning with --typo-distance 1 merges, and whether all of them are likely ones."""
    folds, names = one_spelling(counts, typos=False), one_spelling(counts, typos=True)
    rows, shown = Counter[str](), dict[str, str]()  # by the one spelling, and its most frequent label
    for label in sorted(counts, key=lambda one: -counts[one]):
        name = folds.get(label, label)
        rows[name] += counts[label]
        shown.setdefault(name, label)
    pairs = [(name, names[label]) for name, label in shown.items() if names.get(label, label) not in (label, name)]
    likely = all(LIKELY_TIMES * rows[name] <= rows[meant] for name, meant in pairs)
    return ({shown[name]: shown[meant] for name, meant in pairs} if likely else {}), likely


def _named_rows(label: str, counts: Mapping[str, int]) -> str:
    return f"{quoted(label)} ({counted(counts[label], 'row')})"


def _names(labels: Sequence[str], counts: Mapping[str, int], one: str, several: str) -> str:
    """The subject and the verb of a sentence about labels: "labels 'a' (2 rows) and 'b' (1 row) have"."""
    shown = [_named_rows(label, counts) for label in islice(labels, MOST_SHOWN)]
    if len(labels) > MOST_SHOWN:
        shown.append(f"{len(labels) - MOST_SHOWN:,} more")
    *before, last = shown
    return f"labels {', '.join(before)} and {last} {several}" if before else f"label {last} {one}"


def few_rows_options(rows: Collection[int], others: int, *, one_label: bool = True) -> tuple[str, ...]:
    """The options that drop labels of these few rows or merge them, where that leaves labels that can be learned.

    >>> few_rows_options([4, 2], 3), few_rows_options([2, 1], 3), few_rows_options([4, 2], 1), few_rows_options([2], 1)
    (('--rare 5', '--rare 5 --rare-label other'), ('--rare 5',), ('--rare 5 --rare-label other',), ())
    """
    drop, merge = f"--rare {FEW_ROWS}", f"--rare {FEW_ROWS} --rare-label other"
    may_drop = others >= (2 if one_label else 1)
    return (*([drop] if may_drop else []), *([merge] if others and len(rows) > 1 and sum(rows) >= FEW_ROWS else []))


def _named(letter: str) -> str:
    return f"'{letter}' is U+{ord(letter):04X} ({unicodedata.name(letter).lower()})"


def _strange_letter(label: str) -> str:
    """A look-alike letter of another alphabet in a word, or an empty text."""
    words: list[str] = WORD.findall(unicodedata.normalize("NFC", label))
    for word in words:
        latin = [letter for letter in word if unicodedata.name(letter, "").startswith("LATIN")]
        other = [letter for letter in word if unicodedata.name(letter, "").startswith(("CYRILLIC", "GREEK"))]
        if latin and other and all(ord(letter) in LOOK_ALIKES for letter in other):
            return other[0]
        if latin and other and all(ord(letter) in LOOK_ALIKES.values() for letter in latin):
            return latin[0]
    return ""


def _typos(counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield rare labels that are one typing error away from a frequent one, and the frequent one."""
    limit = max(RARE_ROWS, RARE_SHARE * counts.total())
    shortened: defaultdict[str, list[str]] = defaultdict(list)
    for label, count in counts.items():
        if count >= TIMES_RARER and SHORT_TYPO <= len(label) <= LONGEST_TYPO:
            for variant in _variants(label):
                shortened[variant].append(label)
    for label, count in counts.items():
        if count <= limit and SHORT_TYPO <= len(label) <= LONGEST_TYPO:
            near = {meant for variant in _variants(label) for meant in shortened.get(variant, ())}
            meant = [one for one in near if counts[one] >= times_rarer(label, one) * count and is_typo(label, one)]
            if meant:
                yield label, min(meant, key=lambda one: (-counts[one], one))


def times_rarer(label: str, meant: str) -> int:
    """How much rarer a label must be to be told as a typo of another one."""
    return TIMES_RARER if min(len(label), len(meant)) >= SHORTEST_TYPO else SHORT_TIMES


def _variants(label: str) -> set[str]:
    """The label, and the label without any one letter: labels one typing error apart share a variant."""
    return {label, *(label[:at] + label[at + 1 :] for at in range(len(label)))}


def is_typo(label: str, meant: str) -> bool:
    """Whether the labels differ by one letter that is added, missing, changed or swapped with its neighbor.

    A different digit is no typo ('class1', 'class2'), and neither is a difference in case or space only.
    """
    first = next(
        (at for at, (a, b) in enumerate(zip(label, meant, strict=False)) if a != b), min(len(label), len(meant))
    )
    one, other = label[first:], meant[first:]
    if any(letter.isdigit() for letter in one[:1] + other[:1]) or folded(label) == folded(meant):
        return False
    swapped = len(one) > 1 and one[1::-1] == other[:2] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]


TRAINING = "train"
MOST_LABELS = 1_000_000  # no classification has more; the limit bounds memory
FEWEST_ROWS = 20  # in fewer rows, many labels may be unique
UNSEEN_SHARE = 0.01
OTHERWISE = "name the label column with --target, or choose another --task"


def counted_labels(targets: Iterable[Target], kind: TargetKind) -> Counter[str]:
    """The number of occurrences of each label in these targets, in the order of appearance."""
    counts: Counter[str] = Counter()
    for target, times in Counter(targets).items():
        for label in kind.labels(target):
            counts[label] += times
    return counts


class LabelCheck:
    """Finds label.too_many, label.none, label.single, label.singleton, label.few, label.unseen and other spellings."""

    def __init__(self, schema: Schema) -> None:
        self._target = schema.target
        self._noun = schema.target.noun
        self._counts: dict[str, Counter[str]] = {}
        self._firsts: dict[str, dict[str, Place]] = {}  # the first place of each label in each split
        self._rows: Counter[str] = Counter()
        self._files: dict[str, str] = {}  # the first file of each split
        self._paths: set[str] = set()  # whether there are several files

    def update(self, block: ExampleBlock) -> None:
        """Count the labels of a block, up to a limit."""
        self._rows[block.split] += len(block.examples)
        self._paths.update(block.examples.paths)
        for path in islice(block.examples.paths, 1):
            self._files.setdefault(block.split, path)
        counts, firsts = self._counts.setdefault(block.split, Counter()), self._firsts.setdefault(block.split, {})
        if len(counts) > MOST_LABELS:
            return
        found = counted_labels(block.examples.targets, self._target)
        counts.update(found)
        if found.keys() - firsts.keys():
            for example in block.examples:
                for label in self._target.labels(example.target):
                    firsts.setdefault(label, example.place)

    def finish(self, ledger: Ledger) -> None:
        """Write the findings to the ledger; raise RejectedError if the labels cannot be learned."""
        if not self._counts:
            return
        reference = TRAINING if TRAINING in self._counts else next(iter(self._counts))
        self._refuse_too_many(ledger, reference)
        counts = self._counts[reference]
        if not counts:
            text = f"no row of {reference} has a {self._noun}, so there is nothing to learn; is this the right column?"
            ledger.bad_file("label.none", text, self._file(reference), f"add {self._noun}s, or {OTHERWISE}")
        if self._target.exclusive and len(counts) == 1:
            text = f"every {self._noun} is {quoted(next(iter(counts)))}, so there is nothing to learn"
            ledger.bad_file("label.single", text, self._file(reference), "add examples of a second class")
        advice = _fix_alone if self._target.of_steps else ledger.or_clean  # tags are not cleaned
        odd = find_spellings(ledger, *self._everywhere(), advice)
        few = Counter[str]() if self._target.of_steps else self._few(reference, odd)
        firsts = self._firsts[reference]
        fix = self._advice_of_few(ledger, reference, few, odd) if few else "add examples"
        for label in (label for label, count in counts.items() if count == 1 and label not in odd):
            text = f"{self._noun} {quoted(label)} has only one example in {reference}"
            ledger.warn("label.singleton", text, firsts[label], fix if label in few else f"add examples to {reference}")
        alone = {label for label, rows in few.items() if rows == 1}  # told already
        many = sum(self._rows.values()) >= FEWEST_ROWS  # not a file to try something with
        if many and (len(few) > len(alone) or len(alone) > SAMPLES):
            text = _names([*few], few, "has", "have") + f" fewer than {FEW_ROWS} rows, too few to be learned well"
            ledger.note("label.few", text, firsts[next(iter(few))], sum(few.values()), fix)
        for part in self._counts:
            if part != reference:
                self._find_unseen(ledger, part, reference)

    def _everywhere(self) -> tuple[Counter[str], dict[str, Place]]:
        """The counts and first places of labels over all splits; for tags without the prefix (B-PER, I-PER: PER)."""
        counts: Counter[str] = Counter()
        places: dict[str, Place] = {}
        for part, of_part in self._counts.items():
            for label, count in of_part.items():
                kind = TAG_PREFIX.sub("", label, count=1) if self._target.of_steps else label
                counts[kind] += count
                places.setdefault(kind, self._firsts[part][label])
        return counts, places

    def _few(self, reference: str, odd: Collection[str]) -> Counter[str]:
        """The labels of few rows in all splits, other spellings included, the most frequent first; only if few are."""
        counts, _ = self._everywhere()
        rows = Counter[str]()
        for label, count in counts.items():
            rows[folded(label)] += count
        if max(rows.values()) < FEW_ROWS:
            return Counter()
        known = self._counts[reference]
        few = {label: rows[folded(label)] for label in known if label not in odd and rows[folded(label)] < FEW_ROWS}
        return Counter(dict(Counter(few).most_common()))

    def _advice_of_few(self, ledger: Ledger, reference: str, few: Counter[str], odd: Collection[str]) -> str:
        """What to do about labels of few rows; several files are cleaned one by one, and need the same labels."""
        path = self._firsts[reference][next(iter(few))].path
        if len(self._paths) > 1:
            fix = ledger.or_clean("add examples", path, BY_TABLE)
            return fix if fix == "add examples" else f"{fix}, with the same table for all files"
        others = len(self._everywhere()[0].keys() - few.keys() - set(odd))
        options = few_rows_options(few.values(), others, one_label=self._target.one_label)
        if not options:
            return "add examples"
        fix = ledger.or_clean("add examples", path, options[0])
        if fix == "add examples":
            return fix
        fix += f", which {'merges them' if '--rare-label' in options[0] else 'drops such rows'}"
        merging = (ledger.clean_command(path, one) for one in options[1:])
        return "; ".join([fix, *(f"to merge them clean a copy: `{command}`" for command in merging)])

    def _file(self, part: str) -> Place:
        return Place(self._files.get(part, part))

    def _refuse_too_many(self, ledger: Ledger, reference: str) -> None:
        endless = [part for part, counts in self._counts.items() if len(counts) > MOST_LABELS]
        rows, counts = self._rows[reference], self._counts[reference]
        own = self._target.one_label and rows >= FEWEST_ROWS and len(counts) > rows / 2  # mostly unique labels
        for part in [*endless, *([reference] if own else [])]:
            rows, counts = self._rows[part], self._counts[part]
            text = f"{len(counts):,} different {self._noun}s in {rows:,} rows; is this the right column?"
            measured = self._target.one_label and all(map(is_number, counts))
            fix = "use --task regress for numbers, or name the label column with --target" if measured else OTHERWISE
            ledger.bad_file("label.too_many", text, self._file(part), fix)

    def _find_unseen(self, ledger: Ledger, part: str, reference: str) -> None:
        counts, firsts = self._counts[part], self._firsts[part]
        unseen = sorted(counts.keys() - self._counts[reference].keys(), key=lambda label: -counts[label])
        total = sum(counts[label] for label in unseen)
        if not unseen:
            return
        if total > UNSEEN_SHARE * counts.total():
            listed = ", ".join(f"{quoted(label)} ({counts[label]:,})" for label in unseen[:5])
            text = f"{total:,} of {counts.total():,} {self._noun}s in {part} are not in {reference}: {listed}"
            more = f" and {len(unseen) - 5:,} more" if len(unseen) > 5 else ""
            ledger.bad_file("label.unseen", text + more, firsts[unseen[0]], f"add examples of each to {reference}")
        for label in unseen:
            text = f"{self._noun} {quoted(label)} ({counted(counts[label], 'row')}) in {part} is not in {reference}"
            ledger.warn("label.unseen", f"{text}; it counts as an error", firsts[label], count=counts[label])
