"""Adding."""

import numpy as np

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Parameter, Sizes, SyntheticSet

# Adding: the sum of two marked numbers in a long row of numbers.
#
# Hochreiter and Schmidhuber 1997, in the form of Bai et al. 2018: `length` steps of two channels; the first is uniform
# on [0, 1), the second is 0 but for a 1 at two different steps. The marks are drawn over the whole length (other papers
# put one into each half). The target is the sum of the two marked numbers; the loss is the mean squared error, and
# whoever always answers 1 has 1/6.


def _draw_sum(draws: RandomDraws, length: int) -> DrawnExample:
    steps = np.zeros((length, 2), np.float32)
    steps[:, 0] = draws.reals(length)
    one = draws.below(length)
    other = (one + 1 + draws.below(length - 1)) % length
    steps[[one, other], 1] = 1
    return DrawnExample(steps.astype("<f4").tobytes(), ((steps, (float(steps[one, 0]) + float(steps[other, 0]),)),))


ADDING = SyntheticSet(
    name="adding",
    schema=Schema("vectors", "numbers"),
    description="the sum of the two marked numbers of a long row",
    draw=_draw_sum,
    sizes=Sizes(50_000, 1_000, 1_000),
    parameters={"length": Parameter(600, 2, 100_000)},
)
