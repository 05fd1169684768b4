"""Copy memory: ten symbols are shown, and after `delay` steps they are to be said again, in their order.

The published form (Hochreiter and Schmidhuber 1997; Arjovsky et al. 2016; Bai et al. 2018), delay + 20 steps:

    input    s1 .. s10  0 x (delay - 1)  9 x 11      the first 9 is the delimiter, the others ask
    target   0 x (delay + 10)            s1 .. s10   s drawn uniformly from 1..8

A model without memory that says 0 and then guesses has a cross-entropy of 10 ln 8 / (delay + 20) per step.
"""

from functools import cache

from seqloom.data.examples import Words
from seqloom.data.schema import Schema
from seqloom.data.synthetic.draws import Draws
from seqloom.data.synthetic.sets import Drawn, Parameter, Sizes, SyntheticSet

SHOWN = 10
TAGS = tuple("0123456789")


@cache
def _spans(steps: int) -> tuple[tuple[int, int], ...]:
    """Where the words stand: one letter each, a space between."""
    return tuple((2 * step, 2 * step + 1) for step in range(steps))


def _draw(draws: Draws, delay: int) -> Drawn:
    shown = tuple(TAGS[1 + byte] for byte in draws.bytes(SHOWN) & 7)
    steps = (*shown, *"0" * (delay - 1), *"9" * (SHOWN + 1))
    given = Words(" ".join(steps), _spans(len(steps)))
    return Drawn("".join(shown), ((given, (*"0" * (delay + SHOWN), *shown)),))


COPY_MEMORY = SyntheticSet(
    name="copy_memory",
    schema=Schema("words", "tags", TAGS),
    description="ten symbols to be said again after a delay: the copy memory task as published",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
    parameters={"delay": Parameter(100, 1, 100_000)},
)
