"""Rows 7 and 14 of the table of concepts: what curves say, and how far gradients reach.

That following the advice makes real runs better is shown in tests/experiments/doctor/test_runs.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from diagnosis_common import BareTask, falling, looks, steps
from fitting_common import Pieces, classes, text_of
from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import RnnConfig
from seqloom.config.training import TrainingConfig
from seqloom.data.synthetic.registry import NAMES
from seqloom.experiments.doctor.curves import curve_findings, story_of
from seqloom.experiments.doctor.inside import ModelInside, inside_findings
from seqloom.inspect.flow import Flow, flow, flow_drawn, flows
from seqloom.nn.types import Padded

# --- 7: what a curve says --------------------------------------------------------------------------------------------

JAGGED: Callable[[float], float] = lambda share: falling(share) + 1.5 * (round(share * 40) % 2)  # noqa: E731


@pytest.mark.parametrize(
    ("code", "flag", "records"),
    [
        ("loss.jagged", "--lr 0.0001", steps(JAGGED)),
        ("loss.linear", "--lr 0.01", steps(lambda share: 2.0 - 0.3 * share)),
        ("dev.gap", "--dropout 0.3", steps(falling) + looks([1.5, 1.2, 1.0, 1.1, 1.3, 1.5])),
    ],
)
def test_row_07_jagged_lowers_the_rate_linear_raises_it_and_a_gap_regularizes(
    code: str, flag: str, records: list[dict[str, Any]]
) -> None:
    (finding,) = curve_findings(story_of(records), TrainingConfig(lr=1e-3))
    assert finding.code == code and finding.advice[0].typed == flag
    assert finding.evidence and finding.figure is not None


def test_row_07_a_healthy_curve_gets_no_advice() -> None:
    records = steps(falling) + looks([1.5, 1.0, 0.6, 0.4, 0.3, 0.3])
    assert curve_findings(story_of(records), TrainingConfig()) == ()


# --- 14: vanishing and exploding gradients ---------------------------------------------------------------------------

DISTANCE = 40


def reach(family: str) -> list[Flow]:
    """The flow through the mixers of a fresh model that reads the copy task."""
    rows = list(NAMES["copy"].examples("train", count=8, distance=DISTANCE))
    pieces = Pieces([text_of(row) for row in rows])
    inputs = TokensConfig(vocab_size=pieces.size)
    model = recipes.classifier(family, inputs=inputs, num_classes=8, size="nano").build()
    task: Any = BareTask()
    return list(flows(task, model, [classes(pieces, NAMES["copy"].schema.labels)(rows)]))


@pytest.mark.slow
def test_row_14_on_copy_gradients_of_elman_fade_those_of_lstm_less_and_of_attention_not() -> None:
    elman, lstm, attention = reach("rnn"), reach("lstm"), reach("transformer")
    assert {len(one.norms) for one in elman} == {DISTANCE + 1}
    assert all(one.factor < 0.72 and one.left < 1e-4 for one in elman)
    assert min(one.left for one in lstm) > 100 * max(one.left for one in elman)
    assert all(one.factor == pytest.approx(1.0, abs=0.03) and one.left > 0.2 for one in attention)


def elman(radius: float) -> nn.Module:
    """A drawn Elman layer whose matrix from state to state was scaled to a spectral radius."""
    layer = RnnConfig().build(12)
    layer.hidden_weight.data *= radius / torch.linalg.eigvals(layer.hidden_weight.data).abs().max()
    layer.input_bias.data.zero_(), layer.hidden_bias.data.zero_()
    return layer


@pytest.mark.parametrize(("radius", "code"), [(0.5, "gradient.vanishing"), (1.5, "gradient.grows")])
def test_row_14_a_radius_of_a_half_vanishes_one_and_a_half_explodes_and_the_view_says_so(
    radius: float, code: str
) -> None:
    x = Padded.of(1e-9 * torch.randn(4, 30, 12))  # so small that tanh is its own tangent
    measured = flow(elman(radius), x, layer="rnn")
    assert measured.radius == pytest.approx(radius)
    assert measured.factor == pytest.approx(radius, rel=0.1)
    assert f"spectral radius {radius:g}" in " ".join(flow_drawn([measured]).text(80).split())
    (finding,) = inside_findings(ModelInside(flows=(measured,)), story_of(steps(lambda _: 2.0)))
    assert finding.code == code and finding.evidence["spectral radius"] == pytest.approx(radius)


def test_row_14_the_norm_is_that_of_a_product_of_jacobians() -> None:
    layer, x = elman(0.9).requires_grad_(False), torch.randn(1, 6, 12)
    slopes = [torch.diag(1 - state**2) for state in layer(Padded.of(x)).values[0]]
    product = slopes[-1]
    expected = [float((product @ layer.input_weight).norm())]
    for slope in reversed(slopes[:-1]):
        product = product @ layer.hidden_weight @ slope  # dh_t/dx_k = diag W_hh diag W_hh ... diag W_x
        expected.append(float((product @ layer.input_weight).norm()))
    assert flow(layer, Padded.of(x)).norms == pytest.approx(expected, rel=1e-4)
