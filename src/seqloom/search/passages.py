"""Long texts as passages: whole sentences, as many as a model reads at once.

    text      |One sentence. Another one. A third.   A very long one that ...|
    passages  [0, 26)                [27, 35)        ...

A model reads no further than its longest input, and the vector of a long text is about everything and nothing. A
sentence that is too long itself is divided between words, and a word that is (a long address, a script without spaces)
in its middle. Spans are characters of the text, so nothing but space is lost, and none is longer than a model reads.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

Span = tuple[int, int]
Lengths = Callable[[Sequence[str]], np.ndarray]  # how many symbols a model reads of each text

END = re.compile(r"""[.!?…]+["'”’)\]]*\s+|[。！？]+[”’」）]*\s*|\n\s*""")
WORD = re.compile(r"\S+")
SHORT = re.compile(r"(?:^|[\s(])(?:\w|[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|vs|[Ff]igs?|al|e\.g|i\.e|cf|ca)\.\s+$")


def sentences_of(text: str) -> list[Span]:
    """Where the sentences of a text stand, without the space around them.

    >>> text = "Dr. Smith left. Why? (He knew e.g. Ann.)  So!"
    >>> [text[start:stop] for start, stop in sentences_of(text)]
    ['Dr. Smith left.', 'Why?', '(He knew e.g. Ann.)', 'So!']
    """
    ends = [match.end() for match in END.finditer(text) if _ends(text, match)]
    starts = [0, *ends]
    return [span for span in map(_trimmed, [text] * len(starts), starts, [*ends, len(text)]) if span[0] < span[1]]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a mark ends a sentence: not before a small letter, and not behind an initial or an abbreviation."""
    if "\n" in match[0] or match[0][0] in "。！？":
        return True
    follows = text[match.end() : match.end() + 1]
    return not follows.islower() and not SHORT.search(text[max(0, match.start() - 8) : match.end()])


def _trimmed(text: str, start: int, stop: int) -> Span:
    inner = text[start:stop]
    return start + len(inner) - len(inner.lstrip()), stop - len(inner) + len(inner.rstrip())


def passages_of(text: str, lengths: Lengths, most: int) -> list[Span]:
    """Where the passages of a text stand: sentences that have no more than `most` symbols together.

    >>> by_words = lambda texts: np.array([len(text.split()) for text in texts])
    >>> passages_of("One two. Three. Four five six seven eight.", by_words, 3)
    [(0, 15), (16, 29), (30, 42)]
    """
    framed = int(lengths([""])[0])  # symbols around every text, which a passage has once
    room = max(1, most - framed)
    whole = _trimmed(text, 0, len(text))
    if int(lengths([text])[0]) <= most:
        return [whole]
    pieces = list(_pieces(text, lengths, framed, room))
    gaps = _gaps(text, [span for span, _ in pieces], lengths, framed)
    packed, used = [pieces[0][0]], pieces[0][1]
    for ((start, stop), length), gap in zip(pieces[1:], gaps, strict=True):
        used += gap + length
        if used > room:
            packed.append((start, stop))
            used = length
        else:  # neighbours are joined as long as there is room for them and the space between
            packed[-1] = (packed[-1][0], stop)
    return list(_divided(text, packed, lengths, framed + room))  # symbols may be others where pieces meet


def _pieces(text: str, lengths: Lengths, framed: int, room: int) -> Iterator[tuple[Span, int]]:
    """Sentences, the words of those that are too long, and parts of such words, each with its length."""
    for span, length in _measured(text, sentences_of(text), lengths, framed):
        if length <= room:
            yield span, length
        else:
            words = [(span[0] + one.start(), span[0] + one.end()) for one in WORD.finditer(text[slice(*span)])]
            parts = list(_divided(text, words, lengths, framed + room))
            yield from _measured(text, parts, lengths, framed)


def _measured(text: str, spans: Sequence[Span], lengths: Lengths, framed: int) -> Iterator[tuple[Span, int]]:
    found = lengths([text[start:stop] for start, stop in spans]) - framed
    return zip(spans, found.tolist(), strict=True)


def _gaps(text: str, spans: Sequence[Span], lengths: Lengths, framed: int) -> list[int]:
    """How many symbols the space before each span but the first adds where it stands between two letters."""
    between = [text[stop:start] for (_, stop), (start, _) in pairwise(spans)]
    kinds = sorted({one for one in between if one})
    letter, *joined = lengths(["x", *(f"x{one}x" for one in kinds)]).tolist()
    added = {one: length - 2 * letter + framed for one, length in zip(kinds, joined, strict=True)}
    return [added.get(one, 0) for one in between]


def _divided(text: str, spans: Sequence[Span], lengths: Lengths, most: int) -> Iterator[Span]:
    """The spans; one that has more than `most` symbols in halves, and those again."""
    found = lengths([text[start:stop] for start, stop in spans])
    for (start, stop), length in zip(spans, found.tolist(), strict=True):
        if length <= most or stop - start < 2:
            yield start, stop
        else:
            middle = (start + stop) // 2
            space = text.rfind(" ", start, middle)
            cut = middle if space < 0 else space
            yield from _divided(text, [_trimmed(text, start, cut), _trimmed(text, cut, stop)], lengths, most)
