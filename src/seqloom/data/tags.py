"""Tag schemes: how spans are written as one tag per word, which sequences are valid, and how a scheme is detected.

    words      Ada    King   met   Mr     Hyde   Smith
    bio        B-PER  I-PER  O     O      B-PER  B-PER      IOB2: every span begins with B
    iob1       I-PER  I-PER  O     O      I-PER  B-PER      B only between two adjacent spans of one type; read as bio
    bioes      B-PER  E-PER  O     O      S-PER  S-PER      ends and single words are marked as well
    bilou      B-PER  L-PER  O     O      U-PER  U-PER      bioes with other letters; read as bioes
    plain      PROPN  PROPN  VERB  PROPN  PROPN  PROPN      no spans: parts of speech and the like

Ramshaw & Marcus (1995), Tjong Kim Sang & Veenstra (1999), Ratinov & Roth (2009). Whether a tag is valid depends only on
the tag before it. So the checker counts pairs of adjacent tags, and checks them at the end of the file.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from seqloom.data.problems import SAMPLES, Ledger, Place
from seqloom.errors import DataError

Scheme = Literal["bio", "iob1", "bioes", "bilou", "plain"]

OUTSIDE = "O"
READ_AS: dict[Scheme, Scheme] = {"bio": "bio", "iob1": "bio", "bioes": "bioes", "bilou": "bioes", "plain": "plain"}
WITH_TYPE = re.compile(r"[BIESLU]-.+", re.DOTALL)
NEARLY = re.compile(r"[A-Za-z][-_].*|[BIESLUbieslu]", re.DOTALL)  # probably meant as a span tag, if O occurs too
WITHOUT_TYPE = re.compile(r"[BIESLU]-?")
CANONICAL = {"L": "E", "U": "S"}
FIXES = {
    "tags.prefix": "write O, or B- or I- with a type, such as B-PER",
    "tags.no_type": "write O, or B- or I- with a type, such as B-PER",
    "tags.orphan_I": "begin every span with B-",
    "tags.orphan_E": "begin every span with B-, or write S- for a single word",
    "tags.type_change": "begin the new span with B-, or give both words the same type",
    "tags.scheme": "use one scheme for all spans: bio, iob1, bioes or bilou",
}


class Span(NamedTuple):
    """The words start..stop of a sentence as one span, such as an entity."""

    start: int
    stop: int
    label: str


Pair = tuple[str | None, str | None]  # a tag and the next one; None: before the first word, after the last


class Sighting(NamedTuple):
    """Where a pair of tags occurred: the number and place of the sentence, and the number of the second word."""

    sentence: int
    word: int  # both from 1
    place: Place


@lru_cache(maxsize=65_536)
def _parts(tag: str | None) -> tuple[str, str]:
    """The prefix in terms of bioes, and the type; None reads as O."""
    if tag is None or tag == OUTSIDE:
        return OUTSIDE, ""
    if not WITH_TYPE.fullmatch(tag):
        raise DataError(f"{tag!r} is not a span tag", fix=FIXES["tags.prefix"])
    return CANONICAL.get(tag[0], tag[0]), tag[2:]


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of tags in any scheme. In invalid sequences a tag that cannot continue begins a span (as in conlleval).

    >>> spans(["B-PER", "I-PER", "O", "S-LOC"])
    [Span(start=0, stop=2, label='PER'), Span(start=3, stop=4, label='LOC')]
    """
    found: list[Span] = []
    start, open_type = 0, None
    for index, tag in enumerate(tags):
        letter, kind = _parts(tag)
        if open_type is not None and (letter in "OBS" or kind != open_type):
            found.append(Span(start, index, open_type))
            open_type = None
        if letter != OUTSIDE and open_type is None:
            start, open_type = index, kind
        if letter in "ES" and open_type is not None:
            found.append(Span(start, index + 1, open_type))
            open_type = None
    if open_type is not None:
        found.append(Span(start, len(tags), open_type))
    return found


def tags_of(marked: Iterable[Span], length: int, scheme: Scheme) -> tuple[str, ...]:
    """The tags of these spans in a sentence of `length` words.

    >>> tags_of([Span(0, 2, "PER"), Span(3, 4, "LOC")], 4, "bioes")
    ('B-PER', 'E-PER', 'O', 'S-LOC')
    """
    tags = [OUTSIDE] * length
    before = Span(0, 0, "")
    for span in sorted(marked):
        if not (before.stop <= span.start < span.stop <= length and span.label):
            raise DataError(f"{span} does not fit after {before} in {length} words", fix="give spans without overlap")
        touching = before.stop == span.start and before.label == span.label
        letters = _letters(span.stop - span.start, scheme, touching)
        tags[span.start : span.stop] = [f"{letter}-{span.label}" for letter in letters]
        before = span
    return tuple(tags)


def _letters(length: int, scheme: Scheme, touching: bool) -> str:
    """One letter per word of a span; `touching`: it directly follows a span of the same type."""
    match scheme:
        case "bio":
            return "B" + "I" * (length - 1)
        case "iob1":
            return ("B" if touching else "I") + "I" * (length - 1)
        case "bioes":
            return "S" if length == 1 else "B" + "I" * (length - 2) + "E"
        case "bilou":
            return "U" if length == 1 else "B" + "I" * (length - 2) + "L"
    raise DataError("plain tags have no spans", fix="choose from bio, iob1, bioes, bilou")


def convert(tags: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same spans in another scheme.

    >>> convert(["I-PER", "B-PER", "O"], "bio")
    ('B-PER', 'B-PER', 'O')
    """
    return tuple(tags) if scheme == "plain" else tags_of(spans(tags), len(tags), scheme)


def fault(pair: Pair, scheme: Scheme) -> str | None:
    """The code of the problem with two adjacent tags, or None if the scheme allows them.

    >>> fault(("O", "I-PER"), "bio"), fault(("O", "I-PER"), "iob1"), fault(("B-PER", "O"), "bioes")
    ('tags.orphan_I', None, 'tags.scheme')
    """
    if scheme == "plain":
        return None
    (before, old), (letter, new) = _parts(pair[0]), _parts(pair[1])
    if scheme == "iob1":
        return "tags.scheme" if letter == "B" and old != new else None
    is_open = before in "BI"
    if letter in "IE":
        if not is_open:
            return f"tags.orphan_{letter}"
        return None if old == new else "tags.type_change"
    return "tags.scheme" if is_open and READ_AS[scheme] == "bioes" else None  # a span without its end


def form_fault(tag: str | None) -> str | None:
    """The code of the problem with a single span tag, or None.

    >>> form_fault("B-PER"), form_fault("B-"), form_fault("b-per")
    (None, 'tags.no_type', 'tags.prefix')
    """
    if tag is None or tag == OUTSIDE or WITH_TYPE.fullmatch(tag):
        return None
    return "tags.no_type" if WITHOUT_TYPE.fullmatch(tag) else "tags.prefix"


def uses_scheme(counts: Counter[str]) -> bool:
    """Whether tags with these counts are span tags rather than plain labels: if at least half of all tags but O are.

    A span tag is B, I, E, S, L or U, a hyphen, and a type. If O occurs, misspelled tags count as well: `b-per`,
    `B_PER`, `X-PER`, `B-`, `B`. Tags that are all O count as span tags.

    >>> uses_scheme(Counter(["O", "B-fromloc.city_name"])), uses_scheme(Counter(["NOUN", "X", "I", "B"]))
    (True, False)
    """
    others = {tag: count for tag, count in counts.items() if tag != OUTSIDE}
    form = NEARLY if OUTSIDE in counts else WITH_TYPE
    return 2 * sum(count for tag, count in others.items() if form.fullmatch(tag)) >= sum(others.values())


class TagChecker:
    """Detects the scheme of tagged sentences, and rejects a file that breaks its own scheme.

    >>> checker = TagChecker()
    >>> checker.feed(["I-PER", "O"], Place("a.conll", 1))
    >>> checker.feed(["I-LOC", "B-LOC"], Place("a.conll", 4))
    >>> checker.finish(Ledger(), Place("a.conll"))
    'iob1'
    """

    def __init__(self) -> None:
        self._sentences = 0
        self._counts: dict[Pair, int] = {}
        self._first: dict[Pair, list[Sighting]] = {}  # at most SAMPLES of each pair

    def feed(self, tags: Sequence[str], place: Place) -> None:
        """Count the tags of one sentence, which begins at `place`."""
        self._sentences += 1
        for number, pair in enumerate(pairwise((None, *tags, None)), 1):
            count = self._counts[pair] = self._counts.get(pair, 0) + 1
            if count <= SAMPLES:
                sighting = Sighting(self._sentences, min(number, len(tags)), place)
                self._first.setdefault(pair, []).append(sighting)

    def finish(self, ledger: Ledger, file: Place, expected: Scheme | None = None) -> Scheme:
        """Return the scheme of the file; `expected` is that of the files before it.

        The caller converts iob1 and bilou to the scheme in `READ_AS` (`convert`), and a note says so. A file with only
        O has the expected scheme, or bio.
        """
        scheme = self._scheme(ledger, expected)
        if expected is not None and READ_AS[scheme] != READ_AS[expected]:
            text = f"the tags are {scheme}, but those of the files before are {expected}"
            ledger.bad_file("tags.scheme", text, file, "use one scheme in all files")
        if READ_AS[scheme] != scheme:
            ledger.note("tags.converted", f"the tags are {scheme}, converted to {READ_AS[scheme]}", file)
        return scheme

    def _scheme(self, ledger: Ledger, expected: Scheme | None) -> Scheme:
        counts = Counter[str]()
        for (_, tag), count in self._counts.items():
            if tag is not None:
                counts[tag] += count
        if not uses_scheme(counts):
            return "plain"
        self._require_no(lambda pair: form_fault(pair[1]), ledger)
        letters = {tag[0] for tag in counts} - {OUTSIDE}
        return self._valid(letters, ledger) if letters else expected or "bio"

    def _valid(self, letters: set[str], ledger: Ledger) -> Scheme:
        """The scheme with these letters that allows all pairs of tags."""
        if letters <= {"B", "I"}:
            if not self._faults(lambda pair: fault(pair, "iob1")) and self._faults(lambda pair: fault(pair, "bio")):
                return "iob1"
            self._require_no(lambda pair: fault(pair, "bio"), ledger)
            return "bio"
        if letters & {"E", "S"} and letters & {"L", "U"}:
            self._require_no(lambda pair: "tags.scheme" if (pair[1] or "O")[0] in "LU" else None, ledger)
        self._require_no(lambda pair: fault(pair, "bioes"), ledger)
        return "bioes" if letters & {"E", "S"} else "bilou"

    def _faults(self, check: Callable[[Pair], str | None]) -> dict[Pair, str]:
        return {pair: code for pair in self._counts if (code := check(pair))}

    def _require_no(self, check: Callable[[Pair], str | None], ledger: Ledger) -> None:
        """Raise RejectedError for the first kind of problem in the file, with the first places and the total."""
        faults = self._faults(check)
        if not faults:
            return
        pair = min(faults, key=lambda pair: self._first[pair][0])
        code = faults[pair]
        alike = [other for other, its_code in faults.items() if its_code == code]
        total = sum(self._counts[other] for other in alike)
        first = sorted(sighting for other in alike for sighting in self._first[other])[:SAMPLES]
        sentences = ", ".join(dict.fromkeys(str(one.place.line or one.sentence) for one in first[1:]))
        more = f"; {total:,} such words in total, the next in the sentences at lines {sentences}" if sentences else ""
        text = f"word {first[0].word}: {self._wording(code, pair)}{more}"
        ledger.bad_file(code, text, first[0].place, FIXES[code])

    def _wording(self, code: str, pair: Pair) -> str:
        before, tag = (repr(one) if one else "the end" for one in pair)
        match code:
            case "tags.prefix":
                return f"{tag} is not a span tag"
            case "tags.no_type":
                return f"{tag} has no type"
            case "tags.type_change":
                return f"{tag} after {before} changes the type within a span"
            case "tags.scheme":  # the problem, and the first tag of the other scheme
                others = [one for one in self._counts if one[1] and one[1][0] in "ESLU" and repr(one[1]) != tag]
                other = min(others, key=lambda one: self._first[one][0], default=None)
                shown = f", but {other[1]!r} at {self._first[other][0].place}" if other else ""
                return f"two schemes are mixed: {tag} after {before}{shown}"
        return f"{tag} follows {before if pair[0] else 'nothing'} and does not continue a span"
