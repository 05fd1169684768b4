"""What is measured inside a model becomes a finding where it explains what went wrong, and nowhere else."""

from typing import Any

import pytest

from diagnosis_common import constant, falling, steps
from seqloom.experiments.doctor import inside as inside_module
from seqloom.experiments.doctor.curves import story_of
from seqloom.experiments.doctor.inside import ModelInside, inside_figures, inside_findings
from seqloom.inspect.flow import Depth, Flow, flow_drawn
from seqloom.inspect.health import UnitHealth

STUCK = story_of(steps(constant(2.0)))
LEARNED = story_of(steps(falling))
FADING = ModelInside(flows=(Flow("rnn", tuple(0.5**at for at in range(60)), 0.5),))
GROWING = ModelInside(flows=(Flow("rnn", tuple(1.5**at for at in range(60)), 1.5),))
OPEN = ModelInside(units=(UnitHealth("lstm.gates.forget", 10, 1_000, 0.0, 1.0),))


def codes(inside: ModelInside, story: Any) -> list[str]:
    return [finding.code for finding in inside_findings(inside, story)]


def test_fading_gradients_are_a_finding_only_for_a_run_that_has_not_learned() -> None:
    assert codes(FADING, STUCK) == ["gradient.vanishing"] and codes(FADING, LEARNED) == []
    assert codes(OPEN, STUCK) == ["units.saturated"] and codes(OPEN, LEARNED) == []


def test_the_radius_is_among_the_evidence_and_in_the_picture() -> None:
    (finding,) = inside_findings(FADING, STUCK)
    assert finding.evidence["spectral radius"] == 0.5
    (figure,) = inside_figures(FADING)
    assert "spectral radius 0.5" in figure.text(80)


def test_growing_gradients_are_always_a_finding() -> None:
    assert codes(GROWING, LEARNED) == codes(GROWING, STUCK) == ["gradient.grows"]


def test_a_layer_that_lets_gradients_through_is_enough() -> None:
    both = ModelInside(flows=(*FADING.flows, Flow("attention", (1.0,) * 60)))
    assert codes(both, STUCK) == []


def test_a_first_layer_that_gets_no_gradient_is_a_finding() -> None:
    starved = ModelInside(depths=(Depth("encoder", ("0", "1"), (1e-6, 1.0)),))
    assert codes(starved, STUCK) == ["gradient.shallow"]


def test_few_elements_do_not_make_a_unit_dead() -> None:
    few = UnitHealth("ffn.hidden", 10, 20, 0.9, 0.0)
    assert codes(ModelInside(units=(few,)), STUCK) == []
    assert codes(ModelInside(units=(few._replace(elements=500),)), STUCK) == ["units.dead"]


def test_healthy_layers_have_no_finding() -> None:
    fine = ModelInside(
        (Flow("lstm", tuple(0.97**at for at in range(60))),),
        (Depth("encoder", ("0", "1"), (0.5, 1.0)),),
        (UnitHealth("ffn.hidden", 10, 1_000, 0.2, 0.1),),
    )
    assert codes(fine, STUCK) == []


def test_without_the_look_at_learning_a_run_that_is_all_right_would_be_called_ill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inside_module, "LEARNED", 1.0)
    assert codes(FADING, LEARNED) == ["gradient.vanishing"]


def test_the_picture_says_where_a_window_ends_and_how_fast_the_rest_fades() -> None:
    drawn = flow_drawn([Flow("cnn", (5.0, 4.0, 2.0, 0.0, 0.0)), Flow("rnn", tuple(0.5**at for at in range(20)))])
    assert drawn.caption == (
        "The norm of the Jacobian of the output at the last token by the input at each distance from it. "
        "cnn: it reads a window: nothing farther than 2 tokens away has an influence; "
        "rnn: the gradient norm changes by a factor of 0.5 per token of distance."
    )
