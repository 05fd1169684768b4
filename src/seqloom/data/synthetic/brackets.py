"""Brackets: does every bracket close the one that was opened last? Three kinds, `length` brackets in all.

    balanced  ( [ ] { } )             broken  ( [ } { ] )

A broken string is a balanced one in which two closing brackets of different kinds have changed places. Both are drawn
together: they have the same brackets in the same numbers, they open and close at the same places, and only a memory
for what was opened, however long ago, tells them apart.
"""

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Parameter, Sizes, SyntheticSet

LABELS = ("broken", "balanced")
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")


def _balanced(draws: RandomDraws, pairs: int) -> list[str]:
    """A balanced string: where both are possible, opening and closing are equally likely."""
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
    """The string with two closing brackets exchanged; None if all of them are of one kind."""
    closing = [at for at, bracket in enumerate(string) if bracket in CLOSING]
    one = draws.pick(closing)
    others = [at for at in closing if string[at] != string[one]]
    if not others:
        return None
    other = draws.pick(others)
    changed = list(string)
    changed[one], changed[other] = string[other], string[one]
    return changed


def _draw(draws: RandomDraws, length: int) -> DrawnExample:
    string = _balanced(draws, length // 2)
    while (broken := _broken(draws, string)) is None:
        string = _balanced(draws, length // 2)
    rows = [(" ".join(broken), LABELS[0]), (" ".join(string), LABELS[1])]
    key = "".join("." if bracket in CLOSING else bracket for bracket in string)  # the same for both
    return DrawnExample(key, tuple(draws.mixed(rows)))


BRACKETS = SyntheticSet(
    name="brackets",
    schema=Schema("text", "label", LABELS),
    description="is a string of three kinds of brackets balanced (an odd length counts as the even one below)",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"length": Parameter(24, 4, 10_000)},
)
