"""What several inputs come to: each measure as a mean, with what nine in ten inputs reach and with its baseline."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seqloom.inspection.faithfulness.eraser import Curves
from seqloom.inspection.faithfulness.measuring import Attention, Example
from seqloom.inspection.faithfulness.uniform import Needed
from seqloom.inspection.faithfulness.verdict import Evidence

BINS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the largest weight


class Measure(NamedTuple):
    """One number over all inputs."""

    name: str
    mean: float
    low: float  # one input in ten is below
    high: float  # one input in ten is above
    inputs: int  # that it was measured on


class Bin(NamedTuple):
    """The inputs whose largest weight lies in one of four bins, and how far shuffles move their answers."""

    low: float
    high: float
    moved: Measure | None  # None where there are none


def measures(examples: Sequence[Example]) -> tuple[Measure, ...]:
    """Every number over all inputs, those of attention where there is any."""
    found = [_measure(name, [take(each) for each in examples]) for name, take in OF_TOKENS.items()]
    attended = [each.attention for each in examples if each.attention is not None]
    found += [_measure(name, [take(each) for each in attended]) for name, take in OF_WEIGHTS.items()]
    return tuple(each for each in found if each is not None)


def named(found: Sequence[Measure], name: str) -> float | None:
    """The mean of a measure; None where it was not measured."""
    return next((each.mean for each in found if each.name == name), None)


def _measure(name: str, values: Sequence[float | None]) -> Measure | None:
    known = np.array([value for value in values if value is not None])
    if not known.size:
        return None
    mean, low, high = float(known.mean()), *(float(each) for each in np.quantile(known, (0.1, 0.9)))
    return Measure(name, mean, min(low, mean), max(high, mean), len(known))


COMPREHENSIVENESS, RANDOM_COMPREHENSIVENESS = "comprehensiveness", "comprehensiveness, random"
MOVED, ADVERSARY, SEEDS = "shuffled weights: TVD", "adversarial weights: JSD", "other seeds: JSD"

OF_TOKENS: dict[str, Callable[[Example], float | None]] = {
    COMPREHENSIVENESS: lambda each: each.rationale.told.comprehensiveness,
    RANDOM_COMPREHENSIVENESS: lambda each: each.rationale.chance.comprehensiveness,
    "sufficiency": lambda each: each.rationale.told.sufficiency,
    "sufficiency, random": lambda each: each.rationale.chance.sufficiency,
    "normalised comprehensiveness": lambda each: each.rationale.told.normalised[0],
    "normalised sufficiency": lambda each: each.rationale.told.normalised[1],
    "area under deletion": lambda each: each.rationale.told.areas[0],
    "area under insertion": lambda each: each.rationale.told.areas[1],
}
OF_WEIGHTS: dict[str, Callable[[Attention], float | None]] = {
    "largest weight": lambda each: each.permuted.sharpness,
    MOVED: lambda each: each.permuted.median,
    "equal weights: TVD": lambda each: each.even.moved,
    "equal weights: decisions kept": lambda each: each.even.kept,
    "largest weight erased: JS": lambda each: None if each.erased is None else each.erased.top,
    "random weight erased: JS": lambda each: None if each.erased is None else each.erased.other,
    "largest weight erased: flips": lambda each: None if each.erased is None else each.erased.top_flips,
    "random weight erased: flips": lambda each: None if each.erased is None else each.erased.other_flips,
    ADVERSARY: lambda each: None if each.adversary is None else each.adversary.distance,
    "adversarial weights found": lambda each: None if each.adversary is None else float(each.adversary.feasible),
    SEEDS: lambda each: each.seeds,
}


def evidence(found: Sequence[Measure], count: int, needed: Needed | None, *, of_attention: bool) -> Evidence:
    """What the verdict rests on."""
    whole, random = named(found, COMPREHENSIVENESS), named(found, RANDOM_COMPREHENSIVENESS)
    assert whole is not None and random is not None, "measured on every input"
    if not of_attention:
        return Evidence(count, whole, random)
    moved, far, seeds = (named(found, name) for name in (MOVED, ADVERSARY, SEEDS))
    score, again = (None, None) if needed is None else (needed.score, needed.retrained_score)
    return Evidence(count, whole, random, moved, far, seeds, score, again)


def bins(examples: Sequence[Example]) -> tuple[Bin, ...]:
    """How far shuffles move answers, by the largest weight in four equal bins (Jain and Wallace 2019, figure 6)."""
    found = [each.attention.permuted for each in examples if each.attention is not None]
    places = np.digitize([each.sharpness for each in found], BINS[1:-1])
    return tuple(
        Bin(low, high, _measure(MOVED, [each.median for each, at in zip(found, places, strict=True) if at == number]))
        for number, (low, high) in enumerate(pairwise(BINS))
    )


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """The mean over inputs."""
    return Curves(*(np.mean([each[at] for each in curves], axis=0) for at in range(2)))
