"""Samples followed over time: the same examples at the first validations, in between, and at the end."""

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.training.pages.lines import SampleLine, ValidationLine

MOST_EXAMPLES, MOST_MOMENTS = 8, 4


class Followed(NamedTuple):
    """One example and the answers to it, the earliest first."""

    input: str
    true: str
    answers: tuple[tuple[int, SampleLine], ...]


def followed(validations: Sequence[ValidationLine]) -> list[Followed]:
    """A few examples of the last validation with what was said to them before; wrong answers first."""
    if not validations:
        return []
    moments = [_by_example(one) for one in _spread(validations)]
    last = sorted(moments[-1][1].values(), key=lambda sample: sample.right is True)[:MOST_EXAMPLES]
    return [_followed(sample, moments) for sample in last]


def _spread(validations: Sequence[ValidationLine]) -> list[ValidationLine]:
    """The first, the last and some in between."""
    count = min(MOST_MOMENTS, len(validations))
    places = [round(at * (len(validations) - 1) / max(1, count - 1)) for at in range(count)]
    return [validations[place] for place in places[:-1]] + [validations[-1]]


def _by_example(validation: ValidationLine) -> tuple[int, dict[tuple[str, str], SampleLine]]:
    return validation.step, {(sample.input, sample.true): sample for sample in validation.samples}


def _followed(sample: SampleLine, moments: Sequence[tuple[int, dict[tuple[str, str], SampleLine]]]) -> Followed:
    key = (sample.input, sample.true)
    return Followed(*key, tuple((step, known[key]) for step, known in moments if key in known))
