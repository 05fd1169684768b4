"""The sentence: how far the picture may be believed on this model, from numbers against stated thresholds.

    moves      shuffled weights move the answers:                mean of the median TVD >= 0.1
    carries    the tokens that it marks carry the answers:       comprehensiveness - that of random tokens >= 0.1

    both       the picture may be believed         one      in part, and the sentence says which part
    neither    it may not be believed              carries alone decides for explanations that are not attention

Of inputs of one token nothing can be told: there is no other weight to take, and no other token to compare with.

What else is known is said behind it and does not change the level: that far other weights give the same answers, that
equal weights would have done, that few inputs were looked at. A test that says "used" and one that says "not needed"
may both be right, so the numbers stand beside the sentence and are never put together into one score.

What several inputs come to: each measure as a mean, with what nine in ten inputs reach and with its baseline.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from seqloom.inspect.faithfulness.alternatives import Needed
from seqloom.inspect.faithfulness.eraser import Curves
from seqloom.inspect.faithfulness.measures import Attention, MeasuredExample
from seqloom.report.numbers import number

MOVES, CARRIES = 0.1, 0.1
FAR = 0.2  # JSD from which other weights make another picture
NO_WORSE = 0.01  # of the score: so near it is the same
FEW = 20  # inputs

Level = Literal["believed", "in part", "not believed", "not measured"]


class Badge(NamedTuple):
    """What other views say about how far they may be believed."""

    level: Level = "not measured"
    value: float | None = None  # comprehensiveness
    baseline: float | None = None  # that of random tokens
    inputs: int = 0

    @property
    def text(self) -> str:
        """The badge in words.

        >>> Badge().text
        'faithfulness: not measured'
        >>> Badge("believed", 0.49, 0.031, 200).text
        'faithfulness: believed, comprehensiveness 0.49 (random tokens 0.031), 200 inputs'
        """
        if self.value is None or self.baseline is None:
            return f"faithfulness: {self.level}"
        numbers = f"comprehensiveness {number(self.value)} (random tokens {number(self.baseline)})"
        return f"faithfulness: {self.level}, {numbers}, {_counted(self.inputs)}"


class Evidence(NamedTuple):
    """The numbers that a verdict rests on; None where something was not measured."""

    inputs: int
    comprehensiveness: float
    random_comprehensiveness: float
    moved: float | None = None  # TVD of shuffles; None: the picture is not attention
    adversary: float | None = None  # JSD of the furthest weights with the same answers
    seeds: float | None = None  # JSD between models of other seeds
    score: float | None = None
    uniform_score: float | None = None  # of a model that learnt with equal weights
    alone: int = 0  # inputs of one token, which there is nothing to shuffle or compare in


def level_of(evidence: Evidence) -> Level:
    """How far the picture may be believed."""
    if evidence.alone and evidence.alone == evidence.inputs:
        return "not measured"
    passed = [carries(evidence)] + ([moves(evidence)] if evidence.moved is not None else [])
    return "believed" if all(passed) else "in part" if any(passed) else "not believed"


def moves(evidence: Evidence) -> bool:
    """Whether the answers need these weights."""
    return evidence.moved is not None and evidence.moved >= MOVES


def carries(evidence: Evidence) -> bool:
    """Whether the answers need these tokens, more than others."""
    return evidence.comprehensiveness - evidence.random_comprehensiveness >= CARRIES


def verdict(evidence: Evidence, picture: str) -> str:
    """How far the picture may be believed, in one sentence."""
    heading = {
        "believed": f"{picture} may be believed on this model",
        "in part": f"{picture} may be believed in part",
        "not believed": f"{picture} may not be believed on this model",
        "not measured": f"{picture} could not be put to the test, since every input has one token alone",
    }[level_of(evidence)]
    marked = (
        f"taking away the tokens that it marks costs {number(evidence.comprehensiveness)} of the answer's probability, "
        f"random ones {number(evidence.random_comprehensiveness)}"
    )
    if evidence.moved is None:
        return f"{heading}: {marked} ({_counted(evidence.inputs)})."
    shuffled = f"shuffling its weights moves the answers by {number(evidence.moved)}"
    joint = ", and" if moves(evidence) == carries(evidence) else ", but"
    return f"{heading}: {shuffled}{joint} {marked} ({_counted(evidence.inputs)})."


def reservations(evidence: Evidence) -> tuple[str, ...]:
    """What else is to be known before the picture is shown to somebody."""
    few = None if evidence.inputs >= FEW else f"That is little to go by: {_counted(evidence.inputs)} only."
    return tuple(
        sentence
        for sentence in (_alone(evidence), _other_weights(evidence), _not_needed(evidence), few)
        if sentence is not None
    )


def _alone(evidence: Evidence) -> str | None:
    if not 0 < evidence.alone < evidence.inputs:
        return None
    has = "has" if evidence.alone == 1 else "have"
    return f"{evidence.alone} of {_counted(evidence.inputs)} {has} one token alone: nothing can be compared there."


def _other_weights(evidence: Evidence) -> str | None:
    if evidence.adversary is None or evidence.adversary < FAR:
        return None
    found = f"It is not the only picture: weights as far off as JSD {number(evidence.adversary)} (of at most 0.69)"
    if evidence.seeds is None:
        return f"{found} leave the answers as they are."
    beyond = "no further than" if evidence.adversary <= evidence.seeds else "further than"
    return f"{found} leave the answers as they are, {beyond} models of other seeds are ({number(evidence.seeds)})."


def _not_needed(evidence: Evidence) -> str | None:
    if evidence.score is None or evidence.uniform_score is None:
        return None
    does = "needs no attention" if evidence.uniform_score >= evidence.score - NO_WORSE else "needs attention"
    even, mine = number(evidence.uniform_score), number(evidence.score)
    return f"The task {does}: a model that learnt with equal weights scores {even}, this one {mine}."


def _counted(count: int) -> str:
    return f"{count} input{'s' if count != 1 else ''}"


BINS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the largest weight


class MeasureSummary(NamedTuple):
    """One number over all inputs."""

    name: str
    mean: float
    low: float  # one input in ten is below
    high: float  # one input in ten is above
    inputs: int  # that it was measured on


class SummaryBin(NamedTuple):
    """The inputs whose largest weight lies in one of four bins, and how far shuffles move their answers."""

    low: float
    high: float
    moved: MeasureSummary | None  # None where there are none


def measures(examples: Sequence[MeasuredExample]) -> tuple[MeasureSummary, ...]:
    """Every number over all inputs, those of attention where there is any."""
    found = [_measure(name, [take(each) for each in examples]) for name, take in OF_TOKENS.items()]
    attended = [each.attention for each in examples if each.attention is not None]
    found += [_measure(name, [take(each) for each in attended]) for name, take in OF_WEIGHTS.items()]
    return tuple(each for each in found if each is not None)


def named(found: Sequence[MeasureSummary], name: str) -> float | None:
    """The mean of a measure; None where it was not measured."""
    return next((each.mean for each in found if each.name == name), None)


def _measure(name: str, values: Sequence[float | None]) -> MeasureSummary | None:
    known = np.array([value for value in values if value is not None])
    if not known.size:
        return None
    mean, low, high = float(known.mean()), *(float(each) for each in np.quantile(known, (0.1, 0.9)))
    return MeasureSummary(name, mean, min(low, mean), max(high, mean), len(known))


COMPREHENSIVENESS, RANDOM_COMPREHENSIVENESS = "comprehensiveness", "comprehensiveness, random"
MOVED, ADVERSARY, SEEDS = "shuffled weights: TVD", "adversarial weights: JSD", "other seeds: JSD"

OF_TOKENS: dict[str, Callable[[MeasuredExample], float | None]] = {
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


def evidence(found: Sequence[MeasureSummary], count: int, needed: Needed | None, *, of_attention: bool) -> Evidence:
    """What the verdict rests on."""
    whole, random = named(found, COMPREHENSIVENESS), named(found, RANDOM_COMPREHENSIVENESS)
    assert whole is not None and random is not None, "measured on every input"
    if not of_attention:
        return Evidence(count, whole, random)
    moved, far, seeds = (named(found, name) for name in (MOVED, ADVERSARY, SEEDS))
    score, again = (None, None) if needed is None else (needed.score, needed.retrained_score)
    return Evidence(count, whole, random, moved, far, seeds, score, again)


def bins(examples: Sequence[MeasuredExample]) -> tuple[SummaryBin, ...]:
    """How far shuffles move answers, by the largest weight in four equal bins (Jain and Wallace 2019, figure 6)."""
    found = [each.attention.permuted for each in examples if each.attention is not None]
    places = np.digitize([each.sharpness for each in found], BINS[1:-1])
    return tuple(
        SummaryBin(
            low, high, _measure(MOVED, [each.median for each, at in zip(found, places, strict=True) if at == number])
        )
        for number, (low, high) in enumerate(pairwise(BINS))
    )


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """The mean over inputs."""
    return Curves(*(np.mean([each[at] for each in curves], axis=0) for at in range(2)))
