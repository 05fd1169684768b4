"""The comparison judged: how often it sees what is there, and how often what is not, in simulated comparisons."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from comparing_common import ScoreWorld, World, accuracy, compared, compared_spans, covers, judged
from seqloom.experiments.compare.results import ALPHA
from seqloom.experiments.compare.statistics import (
    Estimate,
    Margin,
    ModelScores,
    SeedSpread,
    difference,
    needed,
    resampled,
)

# between seeds, as trained models differ, and the number of comparisons
WORLDS = pytest.mark.parametrize(
    ("spread", "count"),
    [(0.0075, 20), *(pytest.param(spread, 100, marks=pytest.mark.soak) for spread in (0.0, 0.0075))],
)


@pytest.mark.slow
@WORLDS
def test_equal_models_are_called_equal_in_at_least_90_percent(spread: float, count: int) -> None:
    outcomes = [compared(World(gap=0.0, spread=spread), seed) for seed in range(count)]
    shown = sum(one.shown for one in outcomes)
    assert shown <= count // 10
    assert shown or count < 100, "who never sees anything is no comparison"


@pytest.mark.slow
@WORLDS
def test_five_points_at_1000_rows_are_found_in_at_least_80_percent_and_intervals_cover(
    spread: float, count: int
) -> None:
    outcomes = [compared(World(gap=0.05, spread=spread), seed) for seed in range(count)]
    assert sum(one.won for one in outcomes) >= 0.8 * count
    for covered in (
        sum(covers(one.difference, 0.05) for one in outcomes),
        sum(covers(one.first, 0.85) for one in outcomes),
    ):
        assert 0.9 * count <= covered and (covered < count or count < 100)


@pytest.mark.slow
def test_the_f1_of_spans_is_judged_as_well() -> None:
    equal = [compared_spans(World(rows=500), seed) for seed in range(12)]
    assert sum(not one.shown for one in equal) >= 11
    apart = [compared_spans(World(gap=0.05, rows=500), seed) for seed in range(12)]
    assert sum(one.won for one in apart) >= 10
    assert sum(covers(one.difference, 0.05) for one in apart) >= 11


@pytest.mark.soak
@pytest.mark.slow
def test_an_interval_over_examples_alone_would_be_too_narrow_and_this_one_is_not() -> None:
    """With seeds two points apart, three seeds of each: what the seeds do must be in the interval."""
    outcomes = [compared(World(spread=0.02, rows=400), seed) for seed in range(40)]
    wide = sum(covers(one.difference, 0.0) for one in outcomes)
    narrow = sum(abs(one.difference.value) < 1.96 * 0.0135 for one in outcomes)  # of the examples, measured
    assert wide >= 36 > narrow


@pytest.mark.soak
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.0, 0.005, 0.01, 0.02])
@pytest.mark.parametrize("rows", [200, 1000])
def test_intervals_cover_and_equal_models_are_called_equal_in_every_world(seeds: int, spread: float, rows: int) -> None:
    world = World(spread=spread, seeds=seeds, rows=rows)
    outcomes = [compared(world, seed) for seed in range(400)]
    covered = sum(covers(one.difference, 0.0) for one in outcomes) / 400
    assert covered >= 0.93
    assert covered <= (0.999 if seeds == 2 else 0.985)  # two seeds say little about how far seeds lie apart
    assert sum(not one.shown for one in outcomes) / 400 >= 0.93


def said_different(spreads: Sequence[float | None], seeds: int, rows: int, trials: int) -> float:
    """The share of comparisons of equal models in which any pair is said to differ."""
    world = ScoreWorld(spreads, seeds, rows)
    return sum(any(world.shown(trial)) for trial in range(trials)) / trials


def within(share: float, nominal: float, trials: int) -> bool:
    """Whether a share is at most three standard errors above the nominal rate."""
    return share <= nominal + 3 * math.sqrt(nominal * (1 - nominal) / trials)


UNEQUAL = {
    "equal": lambda count: [0.02] * count,
    "one that varies": lambda count: [0.02] + [0.0] * (count - 1),
    "one that does not vary": lambda count: [None] + [0.02] * (count - 1),
    "half of them": lambda count: [0.02 * (model % 2) for model in range(count)],
    "ever more": lambda count: np.linspace(0.0, 0.02, count).tolist(),
}


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "count"), [(2, 3), (2, 8), (3, 3)])
def test_equal_models_are_said_to_differ_in_about_one_comparison_of_20(seeds: int, count: int) -> None:
    """Two seeds of eight models that vary by two points: with the spread of each pair alone it was one of five."""
    assert within(said_different([0.02] * count, seeds, 2000, 150), ALPHA, 150)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [200, 2000])
@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("spread", [0.0, 0.005, 0.01])
def test_equal_models_with_equal_spreads_are_rarely_said_to_differ(
    spread: float, count: int, seeds: int, rows: int
) -> None:
    assert within(said_different([spread] * count, seeds, rows, 500), ALPHA, 500)


@pytest.mark.soak
@pytest.mark.parametrize("rows", [200, 2000])
@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", UNEQUAL)
def test_equal_models_with_unequal_spreads_are_rarely_said_to_differ(
    kind: str, count: int, seeds: int, rows: int
) -> None:
    """Two models of which one alone varies are the worst case: 8 of 100 with two seeds, 7 with three."""
    assert within(said_different(UNEQUAL[kind](count), seeds, rows, 500), 0.08 if count == 2 else 0.065, 500)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.0075, 0.015])  # as the other tests have, and twice as much
def test_two_equal_models_are_said_to_differ_in_at_most_one_comparison_of_20(seeds: int, spread: float) -> None:
    assert within(said_different([spread, spread], seeds, 1000, 600), ALPHA, 600)


# Of 600 comparisons of models that are five points apart, with 1,000 rows. Two seeds find fewer than 80 %: their
# variance is hardly known, and a rule that finds more calls models whose seeds spread by 2 points different too often.
POWER = {(2, 0.0075): 0.55, (3, 0.0075): 0.85, (5, 0.0075): 0.95, (2, 0.015): 0.3, (3, 0.015): 0.55, (5, 0.015): 0.8}


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "spread"), POWER)
def test_five_points_are_found_as_often_as_the_documentation_says(seeds: int, spread: float) -> None:
    world = ScoreWorld([spread, spread], seeds, 1000, [0.05, 0.0])
    assert sum(world.shown(trial)[0] for trial in range(600)) / 600 >= POWER[seeds, spread]


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("gap", [0.01, 0.02])  # the margin itself, where it is hardest, and beyond it
@pytest.mark.parametrize(("rows", "spread"), [(20_000, 0.0), (100_000, 0.002)])
def test_models_that_differ_by_the_margin_or_more_are_called_equal_in_at_most_5_percent(
    seeds: int, gap: float, rows: int, spread: float
) -> None:
    found = [ScoreWorld([spread, spread], seeds, rows, [gap, 0.0]).differences(trial)[0] for trial in range(400)]
    called = np.mean([one.p_equal(Margin(0.01)) < ALPHA for one in found])
    assert within(float(called), ALPHA, 400)
    assert gap > 0.01 or called > 0 or seeds == 2, "at the margin itself it happens"


@pytest.mark.slow
def test_models_that_are_equal_are_called_equal_where_rows_and_seeds_suffice_and_never_on_few_rows() -> None:
    called = [
        np.mean([one.p_equal(Margin(0.01)) < ALPHA for trial in range(200) for one in world.differences(trial)])
        for world in (ScoreWorld([0.001, 0.001], 3, 50_000), ScoreWorld([0.001, 0.001], 3, 500))
    ]
    assert called[0] > 0.95 and called[1] == 0.0


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("rows", [20, 50, 100, 200, 400])
@pytest.mark.parametrize("hits", [(1.0, 0.97), (1.0, 0.985), (0.99, 0.97), (1.0, 0.99)])
def test_models_near_100_percent_that_differ_are_rarely_called_equal(hits: tuple[float, float], rows: int) -> None:
    """All seeds of a model make the same mistakes, and on few rows there may be none."""
    called, trials = 0, 400 if rows < 400 else 200
    for trial in range(trials):
        draws = np.random.default_rng(trial)
        right = [(draws.random(rows) < hit).astype(np.float64) for hit in hits]
        tables = {
            name: np.stack([np.stack([each, np.ones(rows)], axis=1)] * 2)
            for name, each in zip(("first", "second"), right, strict=True)
        }
        scores = resampled(list(tables.values()), accuracy, resamples=60)
        found = difference(*scores, SeedSpread.pooled(scores))
        called += found.p_equal(Margin.of_share(0.01, rows)) < ALPHA
    assert within(called / trials, ALPHA, trials)


def test_models_without_a_mistake_on_20_rows_are_undecided() -> None:
    right = np.ones((2, 20, 2))
    (pair,) = judged({"first": right, "second": right.copy()}).pairs
    assert pair.verdict == "undecided" and pair.rows_needed is not None and 250 <= pair.rows_needed <= 400


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 8])
def test_90_against_29_with_two_seeds_is_better(count: int) -> None:
    """Also where the seeds of the worse model lie far apart."""
    world = ScoreWorld([0.01] * (count - 1) + [0.05], 2, 300, [0.1] + [0.0] * (count - 2) + [-0.51])
    assert sum(world.shown(trial)[count - 2] for trial in range(100)) >= 97


@pytest.mark.slow
def test_a_model_whose_seeds_lie_far_apart_hides_no_difference_between_the_others() -> None:
    steady, shaken = (
        ScoreWorld([0.005, 0.005, last], 3, 1000, [0.05, 0.0, -0.2]) for last in (0.005, 0.2)
    )  # the third model's seeds are as the others', or collapse now and then
    found = [sum(world.shown(trial)[0] for trial in range(100)) for world in (steady, shaken)]
    assert found[0] >= 90
    assert found[1] >= found[0] - 15


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3])
def test_about_so_many_more_seeds_do_decide_where_there_is_a_difference(seeds: int) -> None:
    """Five points: who trains as many more as were said is told the difference in most cases."""
    decided = []
    for trial in range(120):
        world = ScoreWorld([0.015, 0.015], seeds + 10, 1000, [0.05, 0.0])
        scores = world.scores(np.random.default_rng(trial))
        before = first_seeds(scores, seeds)
        more = needed([before], [ALPHA / 10], Margin(0.01), ALPHA)[0].more_seeds
        if before.p() >= ALPHA and more is not None:
            decided.append(first_seeds(scores, seeds + more).p() < ALPHA)
    assert len(decided) > 20
    assert np.mean(decided) > 0.7


def first_seeds(scores: list[ModelScores], count: int) -> Estimate:
    """The difference of two models, of whose seeds only the first are known."""
    one, other = (ModelScores(each.found[:count], each.drawn[:, :count]) for each in scores)
    return difference(one, other, SeedSpread.pooled([one, other]))
