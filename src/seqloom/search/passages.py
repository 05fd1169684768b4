"""Split long texts into passages: whole sentences, up to the number of tokens a model reads.

    text      |One sentence. Another one. A third.   A very long one that ...|
    passages  [0, 26)                [27, 35)        ...

A model reads only a limited number of tokens, and one vector cannot represent a long text well. A sentence that is too
long is split between words, and a word that is too long (a URL, a script without spaces) in its middle. Spans are in
characters. Only white space is dropped, and no passage is longer than the model reads.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

Span = tuple[int, int]
Lengths = Callable[[Sequence[str]], np.ndarray]  # number of tokens of each text

END = re.compile(r"""[.!?…]+["'”’)\]]*\s+|[。！？]+[”’」）]*\s*|\n\s*""")
WORD = re.compile(r"\S+")
SHORT = re.compile(r"(?:^|[\s(])(?:\w|[Dd]r|[Mm]rs?|[Mm]s|[Pp]rof|[Ss]t|vs|[Ff]igs?|al|e\.g|i\.e|cf|ca)\.\s+$")


def sentences_of(text: str) -> list[Span]:
    """Return the spans of the sentences of a text, without surrounding white space.

    >>> text = "Dr. Smith left. Why? (He knew e.g. Ann.)  So!"
    >>> [text[start:stop] for start, stop in sentences_of(text)]
    ['Dr. Smith left.', 'Why?', '(He knew e.g. Ann.)', 'So!']
    """
    ends = [match.end() for match in END.finditer(text) if _ends(text, match)]
    starts = [0, *ends]
    return [span for span in map(_trimmed, [text] * len(starts), starts, [*ends, len(text)]) if span[0] < span[1]]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Return whether a punctuation mark ends a sentence: not before a lowercase letter, not after an abbreviation."""
    if "\n" in match[0] or match[0][0] in "。！？":
        return True
    follows = text[match.end() : match.end() + 1]
    return not follows.islower() and not SHORT.search(text[max(0, match.start() - 8) : match.end()])


def _trimmed(text: str, start: int, stop: int) -> Span:
    inner = text[start:stop]
    return start + len(inner) - len(inner.lstrip()), stop - len(inner) + len(inner.rstrip())


def passages_of(text: str, lengths: Lengths, most: int) -> list[Span]:
    """Return the spans of the passages of a text: consecutive sentences with at most `most` tokens together.

    >>> by_words = lambda texts: np.array([len(text.split()) for text in texts])
    >>> passages_of("One two. Three. Four five six seven eight.", by_words, 3)
    [(0, 15), (16, 29), (30, 42)]
    """
    framed = int(lengths([""])[0])  # special tokens, which a passage has only once
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
        else:  # join neighbors while they and the space between them fit
            packed[-1] = (packed[-1][0], stop)
    return list(_divided(text, packed, lengths, framed + room))  # tokens may differ where the parts meet


def _pieces(text: str, lengths: Lengths, framed: int, room: int) -> Iterator[tuple[Span, int]]:
    """Yield sentences, the words of sentences that are too long, and parts of such words, with their lengths."""
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
    """Return the number of tokens that the white space before each span (but the first) adds."""
    between = [text[stop:start] for (_, stop), (start, _) in pairwise(spans)]
    kinds = sorted({one for one in between if one})
    letter, *joined = lengths(["x", *(f"x{one}x" for one in kinds)]).tolist()
    added = {one: length - 2 * letter + framed for one, length in zip(kinds, joined, strict=True)}
    return [added.get(one, 0) for one in between]


def _divided(text: str, spans: Sequence[Span], lengths: Lengths, most: int) -> Iterator[Span]:
    """Yield the spans; one with more than `most` tokens is halved, recursively."""
    found = lengths([text[start:stop] for start, stop in spans])
    for (start, stop), length in zip(spans, found.tolist(), strict=True):
        if length <= most or stop - start < 2:
            yield start, stop
        else:
            middle = (start + stop) // 2
            space = text.rfind(" ", start, middle)
            cut = middle if space < 0 else space
            yield from _divided(text, [_trimmed(text, start, cut), _trimmed(text, cut, stop)], lengths, most)
