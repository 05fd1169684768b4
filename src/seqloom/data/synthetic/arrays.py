"""Adding and pictures: datasets whose inputs are arrays of numbers."""

from collections.abc import Callable

import numpy as np

from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, Parameter, RandomDraws, Sizes, SyntheticSet

# Adding: the sum of two marked numbers in a long sequence of numbers.
#
# Hochreiter and Schmidhuber 1997, in the form of Bai et al. 2018: `length` steps of two channels; the first is uniform
# on [0, 1), the second is 0 except for a 1 at two different steps. The marks are drawn over the whole length (other
# papers put one into each half). The target is the sum of the two marked numbers; the loss is the mean squared error,
# and always predicting 1 gives a loss of 1/6.


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
    description="sum of the two marked numbers in a long sequence",
    draw=_draw_sum,
    sizes=Sizes(50_000, 1_000, 1_000),
    parameters={"length": Parameter(600, 2, 100_000)},
)


# Pictures: six shapes of random size and position in noise, 16 x 16 gray pixels from 0 to 1.

LABELS = ("disc", "ring", "square", "cross", "saltire", "triangle")
SIDE, LEAST_RADIUS, MOST_RADIUS = 16, 3, 6
NOISE = 0.25


def _shape(label: str, y: np.ndarray, x: np.ndarray, radius: int) -> np.ndarray:
    """Return the mask [H,W] of a shape, given the distances down [H,1] and to the right [1,W] from its center."""
    far, near = np.maximum(abs(y), abs(x)), np.minimum(abs(y), abs(x))
    inside: dict[str, Callable[[], np.ndarray]] = {
        "disc": lambda: np.hypot(y, x) <= radius,
        "ring": lambda: abs(np.hypot(y, x) - radius + 0.5) <= 0.8,
        "square": lambda: far < radius,
        "cross": lambda: (near <= 0.5) & (far <= radius),
        "saltire": lambda: (far - near <= 0.5) & (far <= radius),
        "triangle": lambda: (abs(y) <= radius) & (2 * abs(x) <= y + radius),
    }
    return inside[label]()


def _draw_picture(draws: RandomDraws) -> DrawnExample:
    label, radius = draws.pick(LABELS), draws.between(LEAST_RADIUS, MOST_RADIUS)
    down, right = (draws.between(radius, SIDE - 1 - radius) for _ in range(2))
    steps = np.arange(SIDE, dtype=np.float32)
    shape = _shape(label, steps[:, None] - down, steps - right, radius)
    brightness = 0.4 + 0.25 * draws.reals(1)
    noise = NOISE / 255 * draws.bytes(SIDE * SIDE).reshape(SIDE, SIDE)
    picture = (shape * brightness + noise).astype(np.float32)[:, :, None]
    return DrawnExample(picture.astype("<f4").tobytes(), ((picture, label),))


PICTURES = SyntheticSet(
    name="pictures",
    schema=Schema("picture", "label", LABELS),
    description="noisy pictures of shapes with random sizes and positions",
    draw=_draw_picture,
    sizes=Sizes(4_000, 1_000, 1_000),
)
