"""Checks of labels and tags: too many, too few, rare, unseen in training, or spelled in several ways.

Two labels may be meant as one if they differ only in white space, case, number format, Unicode form or look-alike
letters. Each of these has a *key*: labels with equal keys differ in nothing else. Keys grow coarser step by step, and a
step reports only what the finer keys keep apart: 'pos ' and 'pos' differ in white space, 'pos' and 'Pos' in case.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal

from seqloom.data.checks.check import ExampleBlock
from seqloom.data.kinds.kind import TargetKind
from seqloom.data.problems import Ledger, Place
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
SHORTEST_TYPO = 4  # letters: shorter labels are often similar on purpose,
SHORT_TYPO, SHORT_TIMES = 3, 100  # unless one is far rarer; then they are only told
LONGEST_TYPO = 64  # letters: the search makes a copy of the label for each of its letters
LONGEST_SHOWN = 64  # letters of a label in a message


def quoted(label: str) -> str:
    """The label in quotation marks; a long one is cut and shown with its length.

    >>> quoted("pos"), quoted("ab" * 100)[-24:]
    ("'pos'", "b...' (200 characters)")
    """
    return f"'{label}'" if len(label) <= LONGEST_SHOWN else f"'{label[:LONGEST_SHOWN]}...' ({len(label):,} characters)"


def _spaced(label: str) -> str:
    return " ".join(label.split())


def composed(label: str) -> str:
    """Return the label in NFC with single spaces."""
    return unicodedata.normalize("NFC", _spaced(label))


def folded(label: str) -> str:
    """Return the same without the difference between upper and lower case."""
    return composed(label).casefold()


def _valued(label: str) -> str:
    return str(Decimal(_spaced(label)).normalize() + 0) if NUMERAL.fullmatch(_spaced(label)) else composed(label)


def _drawn(label: str) -> str:
    return composed(label).translate(LOOK_ALIKES)


BY_TABLE = "--labels TABLE"
STEPS: tuple[tuple[str, Key, Key, str, str], ...] = (  # code, finer key, coarser key, what differs, how to clean it
    ("label.space", str, _spaced, "white space", ""),
    ("label.normal_form", _spaced, composed, "the Unicode form (NFC or NFD)", ""),
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
        groups: defaultdict[str, dict[str, str]] = defaultdict(dict)  # the first label for each pair of keys
        for label in counts:
            groups[coarser(label)].setdefault(finer(label), label)
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
    typos = dict(_typos(counts))
    for label, meant in typos.items():
        text = f"label {shown[label]} may be a typo of {shown[meant]}"
        by = "--typo-distance 1" if min(len(label), len(meant)) >= SHORTEST_TYPO else BY_TABLE
        fix = advice(f"correct it if {quoted(meant)} is meant", places[label].path, by)
        ledger.warn("label.rare", text, places[label], fix, counts[label])
    return odd | set(typos)


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
    """Finds label.too_many, label.single, label.singleton and label.unseen, and different spellings of a label."""

    def __init__(self, schema: Schema) -> None:
        self._target = schema.target
        self._noun = schema.target.noun
        self._counts: dict[str, Counter[str]] = {}
        self._firsts: dict[str, dict[str, Place]] = {}  # the first place of each label in each split
        self._rows: Counter[str] = Counter()

    def update(self, block: ExampleBlock) -> None:
        """Count the labels of a block, up to a limit."""
        self._rows[block.split] += len(block.examples)
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
        if self._target.exclusive and len(counts) == 1:
            text = f"every {self._noun} is {quoted(next(iter(counts)))}, so there is nothing to learn"
            ledger.bad_file("label.single", text, self._file(reference), "add examples of a second class")
        advice = _fix_alone if self._target.of_steps else ledger.or_clean  # tags are not cleaned
        odd = find_spellings(ledger, *self._everywhere(), advice)
        for label in (label for label, count in counts.items() if count == 1 and label not in odd):
            text = f"{self._noun} {quoted(label)} has only one example in {reference}"
            place = self._firsts[reference][label]
            in_file = sum(  # of all parts: cleaning reads the whole file
                of_part[label]
                for part, of_part in self._counts.items()
                if label in of_part and self._firsts[part][label].path == place.path
            )
            merging = f"--rare {in_file + 1} --rare-label other"
            fix = advice("add examples, or merge it with another class", place.path, merging)
            ledger.warn("label.singleton", text, place, fix)
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

    def _file(self, part: str) -> Place:
        return Place(next(iter(self._firsts[part].values()), Place(part)).path)

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
