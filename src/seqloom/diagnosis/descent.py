"""How a loss goes down: along a line or in a bend, and whether that can be told from noise."""

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean, linear_regression
from typing import NamedTuple

from seqloom.diagnosis.story import Story

SEEN = 6.0  # so many times its own error a descent must be, to have a form at all


class Way(NamedTuple):
    """How the loss went down over the sum of the rates."""

    descent: float  # of a line through all points
    error: float  # of that
    second: float  # the share of the descent in the second half of the way

    @property
    def is_seen(self) -> bool:
        """Whether there is a descent at all, and not only noise."""
        return self.descent > SEEN * self.error


def way_of(story: Story) -> Way:
    """The way of the training loss of a story."""
    gone = list(accumulate(block.rate * block.steps for block in story.blocks))
    points = [(x, block.loss) for x, block in zip(gone, story.blocks, strict=True)]
    half = (gone[0] + gone[-1]) / 2
    descent, error = _line(points)
    first, _ = _line([point for point in points if point[0] <= half])
    second, _ = _line([point for point in points if point[0] > half])
    total = first + second
    return Way(descent, error, second / total if total > 0 else math.nan)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How far the line of least squares through the points goes down, and the standard error of that."""
    if len(points) < 3 or (span := points[-1][0] - points[0][0]) <= 0:
        return 0.0, math.inf
    slope, level = linear_regression(*zip(*points, strict=True))
    left = sum((y - level - slope * x) ** 2 for x, y in points) / (len(points) - 2)
    spread = sum((x - fmean(x for x, _ in points)) ** 2 for x, _ in points)
    return -slope * span, math.sqrt(left / spread) * span
