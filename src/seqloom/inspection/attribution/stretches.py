"""Stretches of a text: its sentences, whose totals are looked at first where tokens are many."""

from collections.abc import Sequence

from seqloom.inspection.attention_tables import units
from seqloom.inspection.tokens import Token

ENDS = frozenset(".!?…。！？؟۔।")
LONGEST = 64  # tokens: what has no end by then is cut
SHOWN = 48  # letters of its beginning


def stretches(tokens: Sequence[Token], text: str | None) -> tuple[tuple[int, int], ...]:
    """Where each stretch starts and stops: at the ends of sentences and lines, or after 64 tokens.

    >>> tokens = [Token(word) for word in "It rains . We stay .".split()]
    >>> stretches(tokens, None)
    ((0, 3), (3, 6))
    """
    starts, start = [0], 0
    for at in range(1, len(tokens)):
        if at - start >= LONGEST or _ends(tokens[at - 1], tokens[at], text):
            starts.append(at)
            start = at
    return tuple(zip(starts, [*starts[1:], len(tokens)], strict=True))


def _ends(before: Token, token: Token, text: str | None) -> bool:
    between = text[before.stop : token.start] if text is not None else ""
    if ENDS.intersection(between) or "\n" in between + before.text:
        return True
    closes = before.text.strip()[-1:] in ENDS
    return closes and token.text.strip()[:1] not in ENDS


def beginning(tokens: Sequence[Token], text: str | None) -> str:
    """The first letters of a stretch, as they were written."""
    real = [token for token in tokens if not token.is_special] or list(tokens)
    whole = text[real[0].start : real[-1].stop] if text is not None else " ".join(token.text for token in real)
    whole = " ".join(whole.split())
    return whole if len(whole) <= SHOWN else f"{whole[: SHOWN - 1]}…"


def merged(tokens: Sequence[Token]) -> tuple[tuple[Token, ...], tuple[int, ...]]:
    """Words as tokens, and the number of the first piece of each; a token without a word stays alone."""
    found = units(tokens, words=True)
    ends = found.starts[1:]
    words = tuple(
        tokens[a]._replace(text=name, stop=tokens[b - 1].stop, symbol=tokens[a].symbol if b == a + 1 else None)
        for name, a, b in zip(found.names, found.starts[:-1], ends, strict=True)
    )
    return words, found.starts[:-1]
