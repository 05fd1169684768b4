"""Labels and tags as a whole: how many there are, how often each occurs, and which were never seen in training.

Labels that may be meant as one are spelt with other spaces, case, numerals, composed letters or look-alikes. Each way
to spell is a *key*: labels with equal keys would be the same but for that way. Keys grow coarser step by step, and a
step is blamed only for what the finer keys still keep apart: 'pos ' and 'pos' differ in space, 'pos' and 'Pos' in case.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from seqloom.data.checks.check import ExampleBlock
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Schema
from seqloom.data.values import is_number
from seqloom.report.numbers import counted

Key = Callable[[str], str]

NULL_LIKE = frozenset({"nan", "null", "none", "na", "n/a", "nil", "<na>", "#n/a", "nat"})
NUMERAL = re.compile(r"[+-]?[0-9]{1,14}(\.[0-9]{0,14})?")
TAG_PREFIX = re.compile(r"[BIESLU]-(?=.)")
WORD = re.compile(r"[^\W\d_]{2,}")
# Letters that most typefaces draw alike: Cyrillic, Greek, and the Latin letter that a reader takes them for.
LOOK_ALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЈЅаеорсухіјѕһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναι",
    "ABEKMHOPCTYXIJSaeopcyxijshdqwABEZHIKMNOPTYXovai",
)
TIMES_RARER = 50  # a typo is that much rarer than the label it is near to
RARE_SHARE = 0.001
SHORTEST_TYPO = 4  # letters: shorter labels are often near each other on purpose
LONGEST_TYPO = 64  # letters: a search makes as many copies of a label as it has letters
LONGEST_SHOWN = 64  # letters of a label in a message


def quoted(label: str) -> str:
    """The label between quotation marks, a long one cut and with its length.

    >>> quoted("pos"), quoted("ab" * 100)[-24:]
    ("'pos'", "b...' (200 characters)")
    """
    return f"'{label}'" if len(label) <= LONGEST_SHOWN else f"'{label[:LONGEST_SHOWN]}...' ({len(label):,} characters)"


def _spaced(label: str) -> str:
    return " ".join(label.split())


def _composed(label: str) -> str:
    return unicodedata.normalize("NFC", _spaced(label))


def _folded(label: str) -> str:
    return _composed(label).casefold()


def _valued(label: str) -> str:
    return str(Decimal(_spaced(label)).normalize() + 0) if NUMERAL.fullmatch(_spaced(label)) else _composed(label)


def _drawn(label: str) -> str:
    return _composed(label).translate(LOOK_ALIKES)


STEPS: tuple[tuple[str, Key, Key, str], ...] = (  # code, finer key, coarser key, what differs
    ("label.space", str, _spaced, "white space"),
    ("label.normal_form", _spaced, _composed, "the Unicode form (NFC or NFD)"),
    ("label.case", _composed, _folded, "upper and lower case"),
    ("label.numeric_forms", _composed, _valued, "how a number is written"),
    ("label.confusable", _composed, _drawn, "letters that look alike"),
)


def find_spellings(ledger: Ledger, counts: Counter[str], places: Mapping[str, Place]) -> set[str]:
    """Warn of labels that may be meant as one, and give back those that are told of as the odd ones."""
    said = {label: f"{quoted(label)} ({counted(count, 'row')})" for label, count in counts.items()}
    odd = set()
    for code, finer, coarser, difference in STEPS:
        groups: defaultdict[str, dict[str, str]] = defaultdict(dict)  # of labels alike to both keys, the first
        for label in counts:
            groups[coarser(label)].setdefault(finer(label), label)
        for group in (list(group.values()) for group in groups.values() if len(group) > 1):
            group.sort(key=lambda label: -counts[label])
            *others, last = (said[label] for label in group)
            text = f"labels {', '.join(others)} and {last} differ only in {difference}"
            if code == "label.confusable":
                letters = sorted(set("".join(group)) & set(map(chr, LOOK_ALIKES)))
                text += "".join(f"; {_named(letter)}" for letter in letters[:2])
            fewer = sum(counts[label] for label in group[1:])
            ledger.warn(code, text, places[group[1]], "write them in one way if they mean the same", fewer)
            odd.update(group[1:])
    for label, count in counts.items():
        if label != label.strip() and label.strip() not in counts:
            text = f"label {said[label]} begins or ends with white space"
            ledger.warn("label.space", text, places[label], "remove the white space", count)
        if label.strip().casefold() in NULL_LIKE:
            text = f"label {said[label]} is taken as a class; does it stand for a missing one?"
            ledger.warn("label.null_like", text, places[label], "leave rows without a label out", count)
        if not label.isascii() and _drawn(label) not in counts and (strange := _strange_letter(label)):
            text = f"label {said[label]} mixes alphabets: {_named(strange)}"
            ledger.warn("label.confusable", text, places[label], "write each word in one alphabet", count)
    typos = dict(_typos(counts))
    for label, meant in typos.items():
        fix = f"correct it if {quoted(meant)} is meant"
        ledger.warn("label.rare", f"label {said[label]} is near {said[meant]}", places[label], fix, counts[label])
    return odd | set(typos)


def _named(letter: str) -> str:
    return f"'{letter}' is U+{ord(letter):04X} ({unicodedata.name(letter).lower()})"


def _strange_letter(label: str) -> str:
    """A letter of another alphabet that only looks like its neighbours in the word, if there is one."""
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
    """Rare labels one slip away from a frequent one, each with the one that is meant."""
    limit = max(1.0, RARE_SHARE * counts.total())
    shortened: defaultdict[str, list[str]] = defaultdict(list)
    for label, count in counts.items():
        if count >= TIMES_RARER and SHORTEST_TYPO <= len(label) <= LONGEST_TYPO:
            for piece in _pieces(label):
                shortened[piece].append(label)
    for label, count in counts.items():
        if count <= limit and SHORTEST_TYPO <= len(label) <= LONGEST_TYPO:
            near = {meant for piece in _pieces(label) for meant in shortened.get(piece, ())}
            meant = [one for one in near if counts[one] >= TIMES_RARER * count and is_slip(label, one)]
            if meant:
                yield label, min(meant, key=lambda one: (-counts[one], one))


def _pieces(label: str) -> set[str]:
    """The label, and the label with any one letter left out: labels one slip apart share a piece."""
    return {label, *(label[:at] + label[at + 1 :] for at in range(len(label)))}


def is_slip(label: str, meant: str) -> bool:
    """Whether one letter more, fewer, changed or swapped with its neighbour makes the one label the other.

    Digits are no slips ('class1', 'class2'), and neither is what only differs in case or space.
    """
    first = next(
        (at for at, (a, b) in enumerate(zip(label, meant, strict=False)) if a != b), min(len(label), len(meant))
    )
    one, other = label[first:], meant[first:]
    if any(letter.isdigit() for letter in one[:1] + other[:1]) or _folded(label) == _folded(meant):
        return False
    swapped = len(one) > 1 and one[1::-1] == other[:2] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]


TRAINING = "train"
MOST_LABELS = 1_000_000  # so many different ones are never classes, and memory has an end
FEWEST_ROWS = 20  # below, half of the rows may well have a label of their own
UNSEEN_SHARE = 0.01
OTHERWISE = "name the column of the label, or choose another task"


class LabelCheck:
    """Finds label.too_many, label.single, label.singleton and label.unseen, and what `spellings` finds."""

    def __init__(self, schema: Schema) -> None:
        self._target = schema.target
        self._thing = schema.target.thing
        self._counts: dict[str, Counter[str]] = {}
        self._firsts: dict[str, dict[str, Place]] = {}  # of each part, where each label stands first
        self._rows: Counter[str] = Counter()

    def see(self, block: ExampleBlock) -> None:
        """Count the labels of a block, up to a number that no set of classes has."""
        self._rows[block.part] += len(block.examples)
        counts, firsts = self._counts.setdefault(block.part, Counter()), self._firsts.setdefault(block.part, {})
        if len(counts) > MOST_LABELS:
            return
        labels = [label for example in block.examples for label in self._target.labels(example.target)]
        counts.update(labels)
        if set(labels) - firsts.keys():
            for example in block.examples:
                for label in self._target.labels(example.target):
                    firsts.setdefault(label, example.place)

    def finish(self, ledger: Ledger) -> None:
        """Write the findings; raise RejectedError where the labels cannot be learnt."""
        if not self._counts:
            return
        reference = TRAINING if TRAINING in self._counts else next(iter(self._counts))
        self._refuse_too_many(ledger, reference)
        counts = self._counts[reference]
        if self._target.exclusive and len(counts) == 1:
            text = f"every {self._thing} is {quoted(next(iter(counts)))}; there is nothing to tell apart"
            ledger.bad_file("label.single", text, self._file(reference), "give examples of at least two classes")
        odd = find_spellings(ledger, *self._everywhere())
        for label in (label for label, count in counts.items() if count == 1 and label not in odd):
            text = f"{self._thing} {quoted(label)} has a single example in {reference}"
            fix = "add examples, or join it with another class: one is too few to learn from"
            ledger.warn("label.singleton", text, self._firsts[reference][label], fix)
        for part in self._counts:
            if part != reference:
                self._find_unseen(ledger, part, reference)

    def _everywhere(self) -> tuple[Counter[str], dict[str, Place]]:
        """How often each label occurs in all parts, and where first; of tags the types, as B-PER and I-PER are near."""
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
        own = self._target.one_label and rows >= FEWEST_ROWS and len(counts) > rows / 2  # a small dev set may well do
        for part in [*endless, *([reference] if own else [])]:
            rows, counts = self._rows[part], self._counts[part]
            text = f"{len(counts):,} different {self._thing}s in {rows:,} rows; is it the right column?"
            measured = self._target.one_label and all(map(is_number, counts))
            fix = "--task regress, if they are measured; else --target NAME, of the label" if measured else OTHERWISE
            ledger.bad_file("label.too_many", text, self._file(part), fix)

    def _find_unseen(self, ledger: Ledger, part: str, reference: str) -> None:
        counts, firsts = self._counts[part], self._firsts[part]
        unseen = sorted(counts.keys() - self._counts[reference].keys(), key=lambda label: -counts[label])
        total = sum(counts[label] for label in unseen)
        if not unseen:
            return
        if total > UNSEEN_SHARE * counts.total():
            listed = ", ".join(f"{quoted(label)} ({counts[label]:,})" for label in unseen[:5])
            text = f"{total:,} of {counts.total():,} {self._thing}s of {part} are not in {reference}: {listed}"
            more = f" and {len(unseen) - 5:,} more" if len(unseen) > 5 else ""
            ledger.bad_file("label.unseen", text + more, firsts[unseen[0]], f"put examples of each into {reference}")
        for label in unseen:
            text = f"{self._thing} {quoted(label)} ({counted(counts[label], 'row')}) of {part} is not in {reference}"
            ledger.warn("label.unseen", f"{text}; it counts as an error", firsts[label], count=counts[label])
