"""Brackets, copy and copy memory: tasks that require remembering distant tokens."""

from functools import cache

from seqloom.data.kinds.words import Words
from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, Parameter, RandomDraws, Sizes, SyntheticSet

# Brackets: does every bracket close the one that was opened last? Three kinds, `length` brackets in all.
#
#     balanced  ( [ ] { } )             broken  ( [ } { ] )
#
# A broken string is a balanced one with two closing brackets of different kinds swapped. Both are drawn together: they
# have the same counts of brackets and open and close at the same places, so only a memory of the open brackets tells
# them apart.

LABELS = ("broken", "balanced")
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")


def _balanced(draws: RandomDraws, pairs: int) -> list[str]:
    """Draw a balanced string; where both are possible, opening and closing are equally likely."""
    string: list[str] = []
    waiting: list[int] = []
    left = pairs
    while left or waiting:
        if left and (not waiting or draws.chance(50)):
            waiting.append(draws.below(3))
            string.append(OPENING[waiting[-1]])
            left -= 1
        else:
            string.append(CLOSING[waiting.pop()])
    return string


def _broken(draws: RandomDraws, string: list[str]) -> list[str] | None:
    """Return the string with two closing brackets swapped; None if all closing brackets are of one kind."""
    closing = [at for at, bracket in enumerate(string) if bracket in CLOSING]
    one = draws.pick(closing)
    others = [at for at in closing if string[at] != string[one]]
    if not others:
        return None
    other = draws.pick(others)
    changed = list(string)
    changed[one], changed[other] = string[other], string[one]
    return changed


def _draw_brackets(draws: RandomDraws, length: int) -> DrawnExample:
    string = _balanced(draws, length // 2)
    while (broken := _broken(draws, string)) is None:
        string = _balanced(draws, length // 2)
    rows = [(" ".join(broken), LABELS[0]), (" ".join(string), LABELS[1])]
    key = "".join("." if bracket in CLOSING else bracket for bracket in string)  # the same for both
    return DrawnExample(key, tuple(draws.mixed(rows)))


BRACKETS = SyntheticSet(
    name="brackets",
    schema=Schema("text", "label", LABELS),
    description="whether a string of three kinds of brackets is balanced (an odd length is rounded down)",
    draw=_draw_brackets,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"length": Parameter(24, 4, 10_000)},
)


# Copy: which token was shown `distance` steps before the question? Every step in between shows another one.
#
#     distance 5:   c a h a b ?  ->  c
#
# The distractors are the same eight tokens, so the model must remember a position, not a word.

TOKENS = tuple("abcdefgh")
QUESTION = "?"


def _draw_copy(draws: RandomDraws, distance: int) -> DrawnExample:
    shown = [TOKENS[byte] for byte in draws.bytes(distance) & 7]
    text = " ".join([*shown, QUESTION])
    return DrawnExample(text, ((text, shown[0]),))


COPY = SyntheticSet(
    name="copy",
    schema=Schema("text", "label", TOKENS),
    description="the token that was shown a given number of steps ago",
    draw=_draw_copy,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"distance": Parameter(100, 6, 100_000)},
)


# Copy memory: ten tokens are shown, and after `delay` steps the model must repeat them in order.
#
# The published form (Hochreiter and Schmidhuber 1997; Arjovsky et al. 2016; Bai et al. 2018), delay + 20 steps:
#
#     input    s1 .. s10  0 x (delay - 1)  9 x 11      the first 9 is the delimiter, the others request the output
#     target   0 x (delay + 10)            s1 .. s10   s drawn uniformly from 1..8
#
# A model without memory that predicts 0 and then guesses has a cross-entropy of 10 ln 8 / (delay + 20) per step.

SHOWN = 10
TAGS = tuple("0123456789")


@cache
def _spans(steps: int) -> tuple[tuple[int, int], ...]:
    """Return the spans of the words: one letter each, separated by spaces."""
    return tuple((2 * step, 2 * step + 1) for step in range(steps))


def _draw_memory(draws: RandomDraws, delay: int) -> DrawnExample:
    shown = tuple(TAGS[1 + byte] for byte in draws.bytes(SHOWN) & 7)
    steps = (*shown, *"0" * (delay - 1), *"9" * (SHOWN + 1))
    given = Words(" ".join(steps), _spans(len(steps)))
    return DrawnExample("".join(shown), ((given, (*"0" * (delay + SHOWN), *shown)),))


COPY_MEMORY = SyntheticSet(
    name="copy_memory",
    schema=Schema("words", "tags", TAGS),
    description="repeat ten tokens after a delay (the copy memory task)",
    draw=_draw_memory,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"delay": Parameter(100, 1, 100_000)},
)
