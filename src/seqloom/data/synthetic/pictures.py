"""Pictures: six shapes of any size at any place, in noise, 16 x 16 pixels of grey from 0 to 1."""

from collections.abc import Callable

import numpy as np

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet

LABELS = ("disc", "ring", "square", "cross", "saltire", "triangle")
SIDE, LEAST_RADIUS, MOST_RADIUS = 16, 3, 6
NOISE = 0.25


def _shape(label: str, y: np.ndarray, x: np.ndarray, radius: int) -> np.ndarray:
    """[H,W] where the shape is, given the distances down [H,1] and to the right [1,W] from its centre."""
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


def _draw(draws: RandomDraws) -> DrawnExample:
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
    description="shapes of any size at any place, in noise",
    draw=_draw,
    sizes=Sizes(4_000, 1_000, 1_000),
)
