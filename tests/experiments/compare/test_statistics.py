"""The bootstrap and the tests against what is known of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparing_common import ScoreWorld, World, accuracy
from seqloom.experiments.compare.statistics import (
    Estimate,
    Margin,
    ModelScores,
    SeedSpread,
    Uncertainty,
    decide,
    difference,
    estimate,
    holm,
    mcnemar,
    needed,
    randomization,
    resampled,
)

pytestmark = pytest.mark.slow


def alone(scores: ModelScores) -> Estimate:
    """The estimate of a model that shares its spread with no other."""
    return estimate(scores, SeedSpread.pooled([scores]))


def apart(one: ModelScores, other: ModelScores) -> Estimate:
    """The difference of two models that are the only ones."""
    return difference(one, other, SeedSpread.pooled([one, other]))


def tables(**world: float) -> list[np.ndarray]:
    return World(**world).answers(np.random.default_rng(3))  # type: ignore[arg-type]


def test_the_spread_over_examples_is_that_of_the_formula() -> None:
    """One seed: the variance of a share is p (1 - p) / n."""
    table = tables(seeds=1, rows=1000)[:1]
    (scores,) = resampled(table, accuracy, resamples=4000)
    share = scores.mean
    assert alone(scores).high - share == pytest.approx(1.96 * math.sqrt(share * (1 - share) / 1000), rel=0.05)


def test_every_model_is_resampled_with_the_same_examples() -> None:
    table = tables()[0]
    one, other = resampled([table, table], accuracy, resamples=50)
    assert np.array_equal(one.drawn, other.drawn)
    assert apart(one, other).value == 0.0


def test_two_models_alike_in_every_answer_show_no_difference() -> None:
    table = tables(seeds=1)[0]
    found = apart(*resampled([table, table], accuracy, resamples=50))
    assert (found.value, found.p()) == (0.0, 1.0)


def test_the_first_against_the_second_is_the_second_against_the_first_turned_round() -> None:
    one, other = resampled(tables(gap=0.05), accuracy, resamples=100)
    there, back = apart(one, other), apart(other, one)
    assert (back.value, back.low, back.high) == pytest.approx((-there.value, -there.high, -there.low))
    assert back.p() == pytest.approx(there.p())


def test_a_block_of_resamples_is_as_good_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = resampled(tables(), accuracy, resamples=30)
    monkeypatch.setattr("seqloom.experiments.compare.statistics.CELLS", 4000)
    for one, other in zip(whole, resampled(tables(), accuracy, resamples=30), strict=True):
        np.testing.assert_allclose(one.drawn, other.drawn)


def test_seeds_that_lie_apart_widen_the_interval() -> None:
    drawn = np.random.default_rng(0).normal(0.8, 0.001, (500, 1))
    near, far = (np.array([0.8 - gap, 0.8, 0.8 + gap]) for gap in (0.0001, 0.02))
    close, wide = (alone(ModelScores(found, drawn + found - 0.8)) for found in (near, far))
    assert wide.high - wide.low > 10 * (close.high - close.low)
    assert wide.uncertainty.freedom == close.uncertainty.freedom == 2.0
    assert close.high - close.value == pytest.approx(1.96 * 0.001, rel=0.1)  # of examples alone
    assert wide.high - wide.value == pytest.approx(4.303 * 0.02 / math.sqrt(3), rel=0.02)  # Student's t of 2


def test_what_other_examples_alone_would_change_is_not_put_down_to_the_seeds() -> None:
    """Seeds that differ by chance in single answers only: all of their spread is that of the examples."""
    found = [
        resampled(World(rows=300).answers(np.random.default_rng(n))[:1], accuracy, resamples=60)[0] for n in range(200)
    ]
    apart, both = (np.mean([getattr(one, name) for one in found]) for name in ("of_seeds", "of_both"))
    assert both == pytest.approx(apart, rel=0.15)
    reach = [(alone(one).high - one.mean) / one.drawn.mean(axis=1).std() for one in found]
    # 1.96 of examples alone, 2.84 with what is counted twice, 4.30 of Student's t with two degrees of freedom
    assert np.median(reach) == pytest.approx(2.6, abs=0.1)


MARGIN = Margin(0.01)


def projected(found: list[Estimate], **more: float) -> list[Estimate]:
    return [Estimate(one.value, one.uncertainty.projected(**more)) for one in found]  # type: ignore[arg-type]


def decided(found: list[Estimate]) -> list[bool]:
    return [min(one) < 0.05 for one in decide(found, [0.0005] * len(found), MARGIN)]


def test_so_many_more_seeds_are_the_fewest_that_would_decide() -> None:
    world = ScoreWorld([0.02, 0.02, 0.02], 2, 2000, [0.05, 0.025, 0.0])
    for trial in range(10):
        found = world.differences(trial)
        for place, would in enumerate(needed(found, [0.0005] * 3, MARGIN, 0.05)):
            reached = [more for more in range(1, 11) if decided(projected(found, more_seeds=more))[place]]
            assert would.more_seeds == (reached[0] if reached else None)
            assert would.rows is None or decided(projected(found, rows=would.rows))[place]


def test_rows_that_are_projected_have_the_variance_of_rows_that_are_there() -> None:
    """The same world with four times the rows: its variances are those that were projected from the smaller one."""
    small, large = (
        [ScoreWorld([0.01, 0.01], 3, rows, [0.0, 0.0]).differences(trial)[0].uncertainty for trial in range(300)]
        for rows in (500, 2000)
    )
    then = [one.projected(rows=4.0) for one in small]
    for part in ("examples", "both", "seeds"):
        expected, found = (np.median([getattr(one, part) for one in each]) for each in (large, then))
        assert found == pytest.approx(expected, rel=0.25), part


def test_a_difference_that_moves_with_the_examples_alone_is_decided_by_rows_and_not_by_seeds() -> None:
    """All seeds of each model give the same answers, so more of them say no more."""
    found = ScoreWorld([None, None], 3, 500, [0.05, 0.0]).differences(0)
    assert projected(found, more_seeds=10)[0].p() == pytest.approx(found[0].p(), rel=0.01)
    shaky = [Estimate(found[0].uncertainty.variance ** 0.5, found[0].uncertainty)]  # one standard error
    (would,) = needed(shaky, [0.3], MARGIN, 0.05)
    assert would.more_seeds is None and would.rows is not None and would.rows == pytest.approx(3.84, rel=0.15)


def test_equality_is_the_interval_of_90_percent_inside_the_margin() -> None:
    for trial in range(20):
        (found,) = ScoreWorld([0.002, 0.002], 3, 50_000).differences(trial)
        inside = abs(found.value) + found.uncertainty.reach(0.9) < MARGIN.value
        assert (found.p_equal(MARGIN) < 0.05) == inside
    sure = Estimate(0.004, Uncertainty(1e-9))
    assert sure.p_equal(Margin(0.005)) < 1e-9 and sure.p_equal(Margin(0.003)) > 1 - 1e-9
    assert Estimate(0.0, Uncertainty(0.0)).p_equal(Margin(0.005)) == 1.0, "no resample differs: nothing is known"


def with_variances(*variances: float, seeds: int = 3) -> list[ModelScores]:
    """Models with these variances between their seeds."""
    draws = np.random.default_rng(0)
    unit = np.linspace(-1, 1, seeds)
    unit /= unit.std(ddof=1)
    founds = [0.8 + math.sqrt(each) * unit for each in variances]
    return [ModelScores(found, found + draws.normal(0, 1e-4, (20, seeds))) for found in founds]


def test_the_spread_of_few_seeds_is_that_of_all_models_or_the_clearly_larger_own() -> None:
    scores = with_variances(1e-4, 1e-4, 1.6e-4)
    pool = SeedSpread.pooled(scores)
    assert pool == (pytest.approx(1.2e-4), pytest.approx(6.0), math.inf)
    assert apart(*scores[:2]).uncertainty.freedom == pytest.approx(4.0)  # of two models alone
    alike, larger = (Uncertainty.of(models, np.zeros(1), pool) for models in (scores[:2], scores[1:]))
    assert (alike.seeds, alike.freedom) == (pytest.approx(2.4e-4), pytest.approx(6.0))
    assert (larger.seeds, larger.freedom) == (pytest.approx(2.6e-4), pytest.approx(6.0))
    far = with_variances(1e-4, 1e-4, 9e-4)
    clearly = Uncertainty.of(far[1:], np.zeros(1), SeedSpread.pooled(far))
    assert (clearly.seeds, clearly.freedom) == (pytest.approx(1e-3), pytest.approx(2 * 10 / 9))


def test_the_pool_has_less_freedom_if_its_models_vary_unequally() -> None:
    equal, unequal = (
        SeedSpread.pooled(with_variances(*each)).freedom for each in ([1e-4] * 4, [1e-4, 1e-5, 1e-5, 4e-4])
    )
    assert equal == pytest.approx(8.0) and unequal < 5.0


def test_a_model_whose_seeds_lie_far_apart_adds_nothing_to_the_spread_of_the_others() -> None:
    scores = ScoreWorld([0.01, 0.01, 0.3], 3, 2000).scores(np.random.default_rng(0))
    assert SeedSpread.pooled(scores) == SeedSpread.pooled(scores[:2])


def test_a_difference_that_one_model_alone_varies_in_has_the_freedom_of_that_model() -> None:
    found = ScoreWorld([None, 0.03], 3, 2000).differences(0)[0].uncertainty
    assert found.freedom == 2.0


def test_seeds_that_lie_close_by_chance_are_taken_to_vary_as_much_as_the_examples_cause() -> None:
    """Two seeds with the very same score err on different examples."""
    (one,) = ScoreWorld([0.01], 2, 500).scores(np.random.default_rng(0))
    equal, close = (
        ModelScores(found, one.drawn - one.found + found)
        for found in (np.full(2, one.mean), one.mean + np.array([0, 1e-3]))
    )
    assert equal.of_seeds == 0.0 < equal.of_both
    assert alone(equal).uncertainty.variance == pytest.approx(one.drawn.mean(axis=1).var())
    assert alone(close).uncertainty.reach(0.95) > 1.02 * alone(equal).uncertainty.reach(0.95)


def test_an_error_of_seeds_alone_is_students_t() -> None:
    for freedom, reach in ((1.0, 63.657), (2.0, 9.925), (5.0, 4.032), (30.0, 2.750), (1e6, 2.5758)):
        seeds = Uncertainty(0.0, 0.0, 1.0, freedom)
        assert seeds.outside(reach) == pytest.approx(0.01, rel=1e-3)
        assert seeds.reach(0.99) == pytest.approx(reach, rel=1e-3)


def test_an_error_of_examples_and_seeds_is_the_sum_of_a_normal_and_a_scaled_t() -> None:
    """Of 400,000 draws; the seeds vary at least as much as the examples cause, and at most as much as possible."""
    draws = np.random.default_rng(0)
    for freedom, both, most in ((1.0, 0.0, math.inf), (1.5, 0.5, math.inf), (1.0, 0.5, 40.0), (8.0, 0.2, math.inf)):
        found = Uncertainty(0.3 + both / 2, both, 1.2, freedom, most, num_seeds=2)
        seeds = np.clip(1.2 * freedom / draws.chisquare(freedom, 400_000), both, most)
        errors = np.abs(np.sqrt(0.3 + seeds / 2) * draws.standard_normal(400_000))
        for reach in (0.5, 1.5, 4.0, 9.0):
            assert found.outside(reach) == pytest.approx((errors > reach).mean(), abs=0.003)


def test_a_p_that_is_not_known_costs_the_other_pairs_nothing() -> None:
    assert holm([math.nan, 0.001, 0.02]) == pytest.approx([1.0, 0.003, 0.04])
    unknown = Estimate(0.1, Uncertainty(math.nan))
    (_, shown), _ = zip(*decide([unknown, Estimate(0.1, Uncertainty(1e-6))], [math.nan, 0.001], MARGIN), strict=True)
    assert shown == pytest.approx(0.002)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_and_keeps_their_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(after >= before for after, before in zip(adjusted, values, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert min(adjusted) == pytest.approx(min(1.0, len(values) * min(values)))


@pytest.mark.slow
def test_mcnemar_is_the_exact_binomial_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = (table[0, :, 0] for table in tables(gap=0.03, seeds=1, rows=300))
    better, worse = int((one > other).sum()), int((one < other).sum())
    assert mcnemar(one, other) == pytest.approx(stats.binomtest(better, better + worse).pvalue)


def test_mcnemar_of_models_that_agree_is_1() -> None:
    assert mcnemar(np.ones(5), np.ones(5)) == 1.0


def test_randomization_of_single_answers_is_the_sign_test() -> None:
    """Six disagreements, all one way: 2 of 2^6 coins do as much."""
    one, other = np.ones((1, 20, 2)), np.ones((1, 20, 2))
    other[0, :6, 0] = 0.0
    found = randomization(one, other, accuracy, shuffles=20_000)
    assert found == pytest.approx(2 / 64, abs=0.005)


def test_randomization_holds_its_level_for_a_ratio_of_sums() -> None:
    """F1 of two models that answer alike by law: p below 0.1 in about one of ten."""
    draws, low = np.random.default_rng(0), 0
    for turn in range(120):
        made = draws.integers(0, 3, (2, 1, 60, 3)).astype(np.float64)
        low += (
            randomization(
                *made, lambda sums: 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2] + 1e-9), shuffles=99, seed=turn
            )
            < 0.1
        )
    assert 3 <= low <= 24
