"""Copy: which symbol was shown `distance` steps before the question? Every step in between shows another one.

    distance 5:   c a h a b ?  ->  c

The distractors are the same eight symbols, so what must be remembered is a place, not a word.
"""

from seqloom.data.schema import Schema
from seqloom.data.synthetic.draws import Draws
from seqloom.data.synthetic.sets import Drawn, Parameter, Sizes, SyntheticSet

SYMBOLS = tuple("abcdefgh")
QUESTION = "?"


def _draw(draws: Draws, distance: int) -> Drawn:
    shown = [SYMBOLS[byte] for byte in draws.bytes(distance) & 7]
    text = " ".join([*shown, QUESTION])
    return Drawn(text, ((text, shown[0]),))


COPY = SyntheticSet(
    name="copy",
    schema=Schema("text", "label", SYMBOLS),
    description="the symbol that was shown so many steps ago",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"distance": Parameter(100, 6, 100_000)},
)
