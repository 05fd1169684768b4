"""Variants of the learning rate: each rate is tried once, and the leaderboard gives the rate that was used."""

import pytest

from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.plan import Entry, RaceCandidate
from seqloom.experiments.auto.variants import Parent, described, variants_of

CNN = RaceCandidate(name="cnn", recipe="cnn", size="big")
TUNED = RaceCandidate(name="init")  # the model of --init


def rates_of(parent: Parent, better: str = "") -> dict[str, float]:
    """The names of the learning rate variants, with their learning rates."""
    found = variants_of(parent, lambda name: name == better, lambda _: None, 100.0)
    assert parent.probe.lr is not None
    return {
        one.candidate.name: one.effective_lr_factor(parent.probe.lr) * parent.probe.lr
        for one in found
        if "-lr-" in one.candidate.name
    }


def parent_of(lr_factor: float, lr: float, *rates: float, candidate: RaceCandidate = CNN) -> Parent:
    probe = Probe(step_seconds=1, validation_seconds=0, overhead_seconds=0, steps=900, validations=9, lr=lr)
    entry = Entry(candidate=candidate, rung=1, steps=100, lr_factor=lr_factor)
    return Parent(entry, 100, 100.0, probe, 0.0, (entry.effective_lr_factor(lr), *rates))


def test_a_rate_that_was_tried_before_is_not_tried_again() -> None:
    assert rates_of(parent_of(3.0, 0.001)) == pytest.approx({"cnn-lr-3x": 0.009, "cnn-lr-0.33x": 0.001})
    assert rates_of(parent_of(3.0, 0.001, 1.0)) == pytest.approx({"cnn-lr-3x": 0.009})
    # The limit of 0.01 counts: the shortened run has twice the default rate, not three times.
    assert rates_of(parent_of(3.0, 0.005, 1.0)) == pytest.approx({"cnn-lr-3x": 0.03, "cnn-lr-0.33x": 0.01 / 3})
    assert rates_of(parent_of(3.0, 0.005, 6.0)) == pytest.approx({"cnn-lr-0.33x": 0.01 / 3})


def test_no_run_of_a_trained_model_has_more_than_its_default_rate() -> None:
    parent = parent_of(3.0, 5e-5, candidate=TUNED)
    assert parent.entry.lr(5e-5) == 5e-5
    assert rates_of(parent) == pytest.approx({"init-lr-0.33x": 5e-5 / 3})


def test_a_better_rate_is_not_changed_once_more() -> None:
    assert list(rates_of(parent_of(1.0, 0.001), better="cnn-lr-3x")) == ["cnn-lr-3x"]
    assert list(rates_of(parent_of(1.0, 0.001), better="cnn-lr-0.33x")) == ["cnn-lr-3x", "cnn-lr-0.33x"]


def test_the_leaderboard_gives_the_rate_as_a_factor_of_that_before_and_of_the_default() -> None:
    faster = RaceCandidate(name="cnn-lr-3x", recipe="cnn", size="big", lr_factor=3.0, variant_of="cnn")
    short = Entry(candidate=faster, steps=100, lr_factor=3.0)
    assert described(short, {"cnn": CNN}, 0.001) == "cnn with 3 x its learning rate (9 x the default)"
    assert described(short, {"cnn": CNN}, 0.005) == "cnn with 3 x its learning rate (6 x the default)"
