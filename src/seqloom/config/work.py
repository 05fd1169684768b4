"""What a model computes: matrix products, written numbers and kernel calls, counted from its configuration.

`training/estimate.py` turns these counts into seconds, before anything is built. Counts are of a forward pass.
"""

import msgspec


class Work(msgspec.Struct, frozen=True):
    """The work of a part of a model for one sequence; calls are the same for a batch of any size."""

    products: float = 0.0  # multiply-adds of matrix products
    numbers: float = 0.0  # numbers that are written between them: activations, gates, scores
    calls: float = 0.0  # layers, and steps of recurrences, which cannot run at the same time

    def __add__(self, other: "Work") -> "Work":
        return Work(self.products + other.products, self.numbers + other.numbers, self.calls + other.calls)

    def __mul__(self, times: float) -> "Work":
        return Work(self.products * times, self.numbers * times, self.calls * times)


def linear_work(count: float, narrow: int, wide: int) -> Work:
    """A linear map from `narrow` to `wide` numbers, for `count` vectors.

    >>> linear_work(10, 3, 4)
    Work(products=120, numbers=40, calls=1)
    """
    return Work(count * narrow * wide, count * wide, 1)
