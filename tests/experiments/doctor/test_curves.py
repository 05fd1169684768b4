import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis_common import STEPS, constant, falling, looks, steps
from seqloom.config.training import SgdConfig, StreamsConfig, TrainingConfig
from seqloom.experiments.doctor import curves
from seqloom.experiments.doctor.curves import curve_findings, losses_drawn, risen_dev_loss, roughness, story_of
from seqloom.experiments.doctor.data import cost_findings
from seqloom.experiments.doctor.findings import Finding
from seqloom.tasks.task import Metric

CONFIG = TrainingConfig(lr=1e-3)


def found(records: list[dict[str, Any]], config: TrainingConfig = CONFIG) -> dict[str, Finding]:
    return {finding.code: finding for finding in curve_findings(story_of(records), config)}


def advised(finding: Finding) -> list[str]:
    return [advice.typed for advice in finding.advice]


# --- healthy runs ----------------------------------------------------------------------------------------------------

HEALTHY: dict[str, Callable[[float], float]] = {
    "to a tenth": falling,
    "to nothing": lambda share: 2.0 * math.exp(-12 * share) + 1e-4,
    "a language model, to its entropy": lambda share: 7.0 * (0.65 + 0.35 * math.exp(-9 * share)),
    "late but far": lambda share: 2.0 / (1 + math.exp(20 * (share - 0.4))) + 0.05,
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("schedule", [constant(1e-3), lambda share: 1e-3 * (1.01 - share)])
def test_a_healthy_run_has_no_finding(name: str, schedule: Callable[[float], float]) -> None:
    loss = HEALTHY[name]
    records = steps(loss, noise=0.05, lr=schedule) + looks([loss(share / 8) * 1.05 for share in range(1, 9)])
    if name.startswith("a language model") and schedule(1.0) == 1e-3:
        assert set(found(records)) <= {"loss.plateau"}  # at its entropy a loss stands still, and only the user knows
    else:
        assert found(records) == {}


@settings(max_examples=25)
@given(noise=st.floats(0.0, 0.1), every=st.sampled_from([1, 2, 5, 10, 20]))
def test_chance_is_no_finding_however_often_a_run_reports(noise: float, every: int) -> None:
    assert found(steps(falling, noise=noise, every=every)) == {}


def test_a_run_of_few_steps_is_not_judged() -> None:
    assert found(steps(constant(1.0))[:7]) == {}
    assert found(steps(constant(1.0))[:8]) != {}


# --- each fault ------------------------------------------------------------------------------------------------------


def jagged(share: float) -> float:
    return falling(share) + (1.5 if round(share * 40) % 2 else 0.0)


def test_a_jagged_loss_asks_for_a_lower_rate() -> None:
    finding = found(steps(jagged))["loss.jagged"]
    assert advised(finding)[:2] == ["--lr 0.0001", "--find-lr"]
    assert finding.evidence["roughness"] > curves.ROUGH
    assert finding.figure is not None


def test_a_steep_fall_is_not_jagged() -> None:
    """A loss that is nearly nothing after two reports lies far below the middle of its neighbors, once."""
    fast = steps(lambda share: 0.7 if share < 0.04 else 0.3 if share < 0.07 else 1e-4, noise=0.0)
    assert "loss.jagged" not in found(fast)


def test_a_slightly_jagged_loss_asks_for_a_third_of_the_rate() -> None:
    wave = found(steps(lambda share: falling(share) + (0.15 if round(share * 40) % 2 else 0.0), noise=0.0))
    assert advised(wave["loss.jagged"])[0] == "--lr 0.0003"


def test_a_loss_that_climbs_back_asks_for_a_lower_rate() -> None:
    assert "loss.jagged" in found(steps(lambda share: 2.0 - 1.5 * math.sin(math.pi * share)))


def test_a_loss_that_has_lost_half_of_what_it_won_asks_for_a_lower_rate() -> None:
    lost = found(steps(lambda share: 2.0 - 0.6 * share / 0.3 if share < 0.3 else 1.4 + 0.4 * (share - 0.3)))
    assert "loss.jagged" not in lost  # a seventh of it is what chance may do
    assert "loss.jagged" in found(steps(lambda share: 2.0 - 0.6 * share / 0.3 if share < 0.3 else 1.9))


def test_a_dev_loss_far_below_that_of_training_is_no_climb() -> None:
    """With dropout the training loss is the higher of the two, and need not come down to the other."""
    records = steps(lambda share: 2.0 * (0.2 + 0.8 * math.exp(-8 * share)), noise=0.02)
    assert found([*records, *looks([0.3, 0.1, 0.02, 0.01])]) == {}


@pytest.mark.parametrize("rate", [constant(1e-3), lambda share: 1e-3 * (1.01 - share)])
def test_a_straight_loss_asks_for_a_higher_rate_whatever_the_schedule(rate: Callable[[float], float]) -> None:
    def gone(share: float) -> float:  # the integral of the rate, as a share of the whole
        return share if rate(1.0) == 1e-3 else 1 - (1 - share) ** 2

    finding = found(steps(lambda share: 2.0 - 0.3 * gone(share), noise=0.005, lr=rate))["loss.linear"]
    assert advised(finding) == ["--lr 0.01", "--find-lr"]
    bent = steps(lambda share: 2.0 - 0.3 * (1 - math.exp(-6 * gone(share))), noise=0.005, lr=rate)
    assert "loss.linear" not in found(bent)


def test_a_loss_that_begins_to_fall_at_the_end_asks_for_more_epochs() -> None:
    finding = found(steps(lambda share: 2.0 - 0.8 * share**4))["loss.unfinished"]
    assert advised(finding)[0] == "--epochs 30"


def test_a_flat_loss_asks_to_measure_the_rate() -> None:
    assert advised(found(steps(constant(0.7)))["loss.flat"]) == ["--find-lr"]


def test_a_loss_that_stands_still_at_a_high_rate_asks_for_another_schedule() -> None:
    stands = steps(lambda share: 2.0 * max(0.6, 1 - 2 * share), noise=0.01)
    assert advised(found(stands)["loss.plateau"]) == ["--schedule cosine"]
    lowered = steps(lambda share: 2.0 * max(0.6, 1 - 2 * share), noise=0.01, lr=lambda share: 1e-3 * (1.01 - share))
    assert "loss.plateau" not in found(lowered)


def test_a_gap_between_training_and_dev_asks_to_regularize() -> None:
    finding = found(steps(falling) + looks([1.5, 1.2, 1.0, 1.1, 1.3, 1.5]))["dev.gap"]
    assert advised(finding) == ["--dropout 0.3", "--weight-decay 0.1", "--patience 3"]
    assert finding.evidence["at step"] == 198
    strong = TrainingConfig(optimizer=SgdConfig(weight_decay=0.1), patience=5)
    (same,) = curve_findings(story_of(steps(falling) + looks([1.5, 1.2, 1.0, 1.1, 1.3, 1.5])), strong, dropout=0.3)
    assert advised(same) == ["--dropout 0.5"]
    assert found(steps(falling) + looks([1.5, 1.2, 0.8, 0.6, 0.5, 0.4])) == {}


def translated(dev: Callable[[float], float]) -> list[dict[str, Any]]:
    """A translator whose training loss falls from 8.4 to 2.0."""
    training = steps(lambda share: 1.7 + 6.7 * math.exp(-3 * share), noise=0.02)
    return training + looks([dev(share / 10) for share in range(1, 11)])


def test_a_dev_loss_that_stands_while_the_training_loss_falls_is_overfitting() -> None:
    finding = found(translated(lambda share: 4.1 + 4.3 * math.exp(-10 * share)))["dev.gap"]
    apart = finding.evidence["loss gap between dev and training, relative to the decrease"]
    assert isinstance(apart, float) and curves.LESSER_GAP < apart < curves.GAP, "the gap alone says nothing"
    assert finding.evidence["about as low since step"] == 160 and "has hardly changed since step 160" in finding.text
    assert advised(finding)[0] == "--dropout 0.3"


@pytest.mark.parametrize(
    "losses",
    [
        [7.4, 5.9, 4.4],
        [8.0 - 0.36 * at for at in range(10)],
        [8.4 - 0.25 * at for at in range(16)],
    ],
)
def test_a_dev_loss_that_still_falls_far_above_the_training_loss_asks_to_train_longer(losses: list[float]) -> None:
    training = steps(lambda share: 1.2 + 7.2 * math.exp(-6 * share), noise=0.02)
    finding = found(training + looks(losses))["dev.gap"]
    assert finding.evidence["dev loss"] == finding.evidence["lowest dev loss"] == losses[-1]
    assert finding.title == "The dev loss is far above the training loss"
    assert "is still falling, but is far above the training loss" in finding.text and "risen" not in finding.text
    assert advised(finding) == ["--epochs 30", "--dropout 0.3", "--weight-decay 0.1", "--patience 3"]


@pytest.mark.parametrize("losses", [[7.4, 4.5, 4.4], [7.4, 4.4, 4.5], [6.0, 4.5, 4.42, *[4.4] * 7]])
def test_a_dev_loss_that_stands_still_far_above_the_training_loss_is_overfitting(losses: list[float]) -> None:
    training = steps(lambda share: 1.2 + 7.2 * math.exp(-6 * share), noise=0.02)
    finding = found(training + looks(losses))["dev.gap"]
    assert f"has hardly changed since step {2 * (STEPS // len(losses))}" in finding.text
    assert finding.title == "The model overfits" and advised(finding)[0] == "--dropout 0.3"


@pytest.mark.parametrize(
    ("losses", "lowest"),
    [
        ([7.4, 4.4, 5.9], 266),
        ([5.9, 4.4, 4.8, 5.2], 200),
        ([4.4, 7.0, 5.5, 5.0], 100),
        ([6.0, 4.4, 7.0, 6.2, 5.0], 160),
    ],
)
def test_a_dev_loss_rises_after_its_lowest_value(losses: list[float], lowest: int) -> None:
    training = steps(lambda share: 1.2 + 7.2 * math.exp(-6 * share), noise=0.02)
    finding = found(training + looks(losses))["dev.gap"]
    assert f"has risen since step {lowest} and is far above" in finding.text
    assert finding.evidence["at step"] == lowest
    late = losses[losses.index(min(losses)) + 1 :][-2:]
    assert finding.evidence["dev loss"] == pytest.approx(sum(late) / len(late))


@pytest.mark.parametrize(
    "dev",
    [
        lambda share: 4.0 + 4.4 * math.exp(-2.5 * share),  # it still falls, more slowly
        lambda share: 3.4 + 5.0 * math.exp(-10 * share),  # close
        lambda share: 2.2 + 6.2 * math.exp(-6 * share),  # closer
    ],
)
def test_a_dev_loss_that_falls_or_stays_near_is_no_overfitting(dev: Callable[[float], float]) -> None:
    assert "dev.gap" not in found(translated(dev))


def test_a_low_dev_loss_that_stands_is_no_overfitting() -> None:
    """A classifier of the last percents: its dev loss stands, and nearly all its predictions are right."""
    memorizes = steps(lambda share: 0.7 * math.exp(-5 * share) + 0.005)
    low, high = ([0.4, *[level] * 7] for level in (0.17, 0.25))
    assert "dev.gap" not in found(memorizes + looks(low)) and "dev.gap" in found(memorizes + looks(high))


def test_norms_far_above_the_clip_ask_for_a_lower_rate() -> None:
    assert advised(found(steps(falling, grad_norm=30.0))["gradient.exploding"]) == ["--lr 0.0001"]
    assert found(steps(falling, grad_norm=4.0, clipped=1.0)) == {}


def test_spikes_without_a_clip_ask_for_one() -> None:
    open_ = TrainingConfig(lr=1e-3, clip_norm=0.0)
    spiky = steps(falling, max_grad_norm=lambda share: 900.0 if share > 0.9 else 1.0)
    assert advised(found(spiky, open_)["gradient.exploding"]) == ["--clip-norm 1", "--lr 0.0001"]
    assert found(steps(falling, max_grad_norm=3.0), open_) == {}


def test_skipped_steps_are_an_explosion_unless_fp16_looks_for_its_scale() -> None:
    half = TrainingConfig(lr=1e-3, precision="fp16")
    assert "gradient.exploding" in found(steps(falling, skipped=lambda share: int(share == 0.5)))
    assert found(steps(falling, skipped=lambda share: 16 * int(share < 0.03)), half) == {}
    assert "gradient.exploding" in found(steps(falling, skipped=1), half)


@pytest.mark.parametrize("count", [1, 2])
def test_an_explosion_is_told_of_the_shortest_run(count: int) -> None:
    """Fewer steps than a block has, too: what is left over after the last block was seen as well."""
    short = steps(falling, every=5)[:count]
    assert found(short) == {}
    end = {"kind": "end", "step": 5, "reason": "not-finite", "best_step": 0, "metrics": {}}
    assert set(found([*short, end])) == set(found([end])) == {"gradient.exploding"}
    assert set(found([*short[:-1], short[-1] | {"skipped": 1}])) == {"gradient.exploding"}
    for loss in (1.3e28, None, 21 * short[0]["loss"]):
        assert set(found([*short, looks([1.0])[0] | {"metrics": {"loss": loss}}])) == {"gradient.exploding"}
    assert found([*short, *looks([5 * short[0]["loss"]])]) == {}  # learned by heart, perhaps


def test_without_its_limit_an_exploded_dev_loss_would_go_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [*steps(falling)[:2], *looks([1.3e28])]
    assert set(found(records)) == {"gradient.exploding"}
    monkeypatch.setattr(curves, "DEV_EXPLODED", math.inf)
    assert found(records) == {}


def test_the_evidence_of_an_explosion_is_numbers_that_json_can_hold() -> None:
    finding = found([{"kind": "end", "step": 5, "reason": "not-finite", "best_step": 0, "metrics": {}}])
    assert all(math.isfinite(value) for value in finding["gradient.exploding"].evidence.values())


def test_a_run_that_ended_without_finite_numbers_is_an_explosion() -> None:
    records = steps(falling)
    for record in records[-20:]:
        record |= {"loss": None, "grad_norm": None, "max_grad_norm": None}
    records.append({"kind": "end", "step": 400, "reason": "not-finite", "best_step": 0, "metrics": {}})
    finding = found(records)["gradient.exploding"]
    assert finding.figure is not None


# --- the guards ------------------------------------------------------------------------------------------------------


def test_without_blocks_a_report_of_every_step_would_look_jagged(monkeypatch: pytest.MonkeyPatch) -> None:
    records = steps(falling, noise=0.15, every=1)
    assert found(records) == {}
    monkeypatch.setattr("seqloom.experiments.doctor.curves.STEPS", 1)
    assert "loss.jagged" in found(records)


def test_without_its_error_a_descent_of_noise_would_look_like_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def codes() -> list[str]:
        return [code for seed in range(8) for code in found(steps(constant(2.0), noise=0.03, seed=seed))]

    assert set(codes()) == {"loss.flat"}
    monkeypatch.setattr("seqloom.experiments.doctor.curves.SEEN", 0.0)
    assert set(codes()) - {"loss.flat"}


@settings(max_examples=40)
@given(st.lists(st.floats(0, 10), min_size=3, max_size=20), st.floats(0.1, 10), st.floats(-5, 5), st.floats(-1, 1))
def test_roughness_does_not_see_a_line_and_scales_with_the_loss(
    losses: list[float], scale: float, level: float, slope: float
) -> None:
    other = [scale * loss + level + slope * at for at, loss in enumerate(losses)]
    assert roughness(other) == pytest.approx(scale * roughness(losses), abs=1e-9)


# --- what is wasted --------------------------------------------------------------------------------------------------


def paces(waited: float) -> list[dict[str, Any]]:
    return [{"kind": "speed", "step": 10 * at, "data_wait": waited} for at in range(5)]


def test_padding_and_waiting_are_found_where_they_are_large() -> None:
    wasteful = story_of(steps(falling, padding=0.6), paces(0.5))
    findings = {finding.code: finding for finding in cost_findings(wasteful, CONFIG)}
    assert advised(findings["cost.padding"])[0] == "--batch-tokens 1024"
    assert advised(findings["cost.waiting"]) == ["--workers 4"]
    assert cost_findings(story_of(steps(falling), paces(0.02)), CONFIG) == ()


def test_a_feed_without_a_budget_is_not_told_to_change_it() -> None:
    story, config = story_of(steps(falling, padding=0.6)), TrainingConfig(batching=StreamsConfig())
    (finding,) = cost_findings(story, config)
    assert finding.advice == ()


def test_the_length_to_cut_at_is_one_that_few_rows_of_the_data_have() -> None:
    story, rows = story_of(steps(falling, padding=0.6)), [*range(10, 110), *[900] * 3]
    (finding,) = cost_findings(story, CONFIG, rows)
    (longest,) = (advice for advice in finding.advice if advice.flag == "--max-length")
    assert sum(length > int(longest.value) for length in rows) == 6 and "up to 900" in longest.why  # one in twenty
    (finding,) = cost_findings(story, CONFIG, range(10, 110))  # no row is far longer than the others
    assert [advice.flag for advice in finding.advice] == ["--batch-tokens"]


@settings(max_examples=25)
@given(waited=st.floats(0.3, 1.0))
def test_so_many_workers_are_advised_that_nobody_would_wait(waited: float) -> None:
    (finding,) = cost_findings(story_of(steps(falling), paces(waited)), CONFIG)
    count = int(finding.advice[0].value)
    assert count == 32 or 2 <= count * (1 - waited) < 2 + 1  # two workers kept up with 1 - waited of the need


@pytest.mark.parametrize(
    ("scores", "last", "said"), [((0.1, 0.2, 0.4), 0.5, 1), ((0.1, 0.4, 0.2), 0.5, 0), ((0.1, 0.2, 0.4), 0.31, 0)]
)
def test_a_note_tells_that_the_dev_loss_rises_while_the_metric_improves(
    scores: tuple[float, ...], last: float, said: int
) -> None:
    validations = looks([0.4, 0.3, last])
    for one, score in zip(validations, scores, strict=True):
        one["metrics"]["f1"] = score
    learned = steps(lambda share: 2.0 * math.exp(-8 * share))
    found = list(risen_dev_loss(story_of(learned + validations), Metric("f1")))
    assert len(found) == said
    for text in found:
        assert "from 0.3 at step 266 to 0.5" in text and "f1 still improved, from 0.2 to 0.4" in text
    assert list(risen_dev_loss(story_of(steps(falling) + validations), Metric("f1"))) == []  # much is left to learn


def test_a_dev_loss_far_below_the_first_training_loss_can_be_read_from_its_picture() -> None:
    steep = steps(lambda share: 2.0 * math.exp(-20 * share))
    training, dev = losses_drawn(story_of(steep + looks([0.2, 0.1, 0.15])), "Loss").series
    assert max(training.known) <= max(dev.known) == 0.2 and training.name == f"training from step {training.x[0]:g}"
    complete, _ = losses_drawn(story_of(steep + looks([1.0, 0.5, 0.4])), "Loss").series
    assert complete.name == "training" and len(complete.y) == 40
