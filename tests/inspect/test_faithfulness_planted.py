"""On a planted task, where one word of twenty decides: necessary attention is told from attention that misleads.

per-token    attention must find the word, there is no other way          believed
residual     a BiLSTM whose states keep their own words, attention too    believed
plain        a BiLSTM carries the word to the ends and looks there:       in part: the weights are used,
             the weights matter, the words under them do not              and the tokens under them are not
shuffled     labels without a rule: there is nothing to look at           not believed
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faithfulness_common import planted_subject, readings_of, trained
from seqloom.config.mixers import BidirectionalConfig, ConvolutionConfig
from seqloom.config.stacks import BlockConfig
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.faithfulness.report import FaithfulnessView, faithfulness
from seqloom.inspect.subject import Reading, Subject

pytestmark = pytest.mark.slow

PER_TOKEN = (BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(1,))),)
RESIDUAL = (BlockConfig(mixer=BidirectionalConfig(), arrangement="residual"),)
PLAIN = (BlockConfig(mixer=BidirectionalConfig()),)
INPUTS = 30


def measured(subject: Subject, *, adversaries: int = 0, **options: Any) -> FaithfulnessView:
    readings, truths = readings_of(subject, INPUTS)
    return faithfulness(subject, readings, labels=truths, adversaries=adversaries, **options)


def on_the_key(view: FaithfulnessView) -> float:
    """How often the largest weight is that of the word which decides."""
    return float(np.mean([each.tokens[int(np.nanargmax(each.explanation))] in ("w0", "w1") for each in view.examples]))


def tau(view: FaithfulnessView, one: str, other: str) -> float:
    (found,) = [each for each in view.agreements if (each.one, each.other, each.answer) == (one, other, None)]
    assert found.tau is not None
    return found.tau


@pytest.fixture(scope="module")
def per_token(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return trained(planted_subject(tmp_path_factory.mktemp("per_token"), PER_TOKEN))


@pytest.fixture(scope="module")
def per_token_view(per_token: Subject, tmp_path_factory: pytest.TempPathFactory) -> FaithfulnessView:
    folder = tmp_path_factory.mktemp("others")
    other = trained(planted_subject(folder, PER_TOKEN, seed=2))
    even = trained(planted_subject(folder, PER_TOKEN, pooling="mean"))
    return measured(per_token, other_seeds=[other], uniform_model=even)


@pytest.fixture(scope="module")
def residual_view(tmp_path_factory: pytest.TempPathFactory) -> FaithfulnessView:
    return measured(trained(planted_subject(tmp_path_factory.mktemp("residual"), RESIDUAL, seed=2)), adversaries=2)


def test_planted_attention_is_believed(per_token_view: FaithfulnessView, residual_view: FaithfulnessView) -> None:
    for view in (per_token_view, residual_view):
        assert view.uniform_weights is not None and view.uniform_weights.score == 1.0
        assert on_the_key(view) == 1.0
        assert view.measure("shuffled weights: TVD").mean > 0.3
        assert view.measure("comprehensiveness").mean > 0.35
        assert abs(view.measure("sufficiency").mean) < 0.05
        top, random = (view.measure(f"{which} weight erased: JS").mean for which in ("largest", "random"))
        assert top > 0.1 and top > 20 * random
        assert view.level == "faithful", view.verdict


def test_weights_agree_with_leaving_out_where_words_stand_alone(per_token_view: FaithfulnessView) -> None:
    assert tau(per_token_view, "attention", "leave-one-out") > 0.6


def test_tau_is_low_for_a_bilstm_that_is_right_and_the_overlap_tells(
    per_token_view: FaithfulnessView, residual_view: FaithfulnessView
) -> None:
    """Nineteen irrelevant weights stand in any order."""
    assert tau(residual_view, "attention", "leave-one-out") < tau(per_token_view, "attention", "leave-one-out") - 0.2
    assert all(each.overlap >= 0.5 for each in residual_view.agreements if each.other == "leave-one-out")


def test_equal_weights_solve_the_task_and_seeds_agree(per_token_view: FaithfulnessView) -> None:
    """Wiegreffe and Pinter's first test says "not needed" while shuffling and erasing say "used": all are shown."""
    needed = per_token_view.uniform_weights
    assert needed is not None and needed.retrained_score is not None and needed.frozen_score is not None
    assert needed.retrained_score > 0.95 > needed.frozen_score
    assert per_token_view.measure("other seeds: JSD").mean < 0.1
    assert any("needs no attention" in sentence for sentence in per_token_view.sentences())


def test_an_adversary_moves_mass_and_keeps_the_answer(residual_view: FaithfulnessView) -> None:
    assert residual_view.measure("adversarial weights found").mean == 1.0
    assert 0.1 < residual_view.measure("adversarial weights: JSD").mean <= np.log(2)
    found = [each.attention.adversary for each in residual_view.examples if each.attention]
    assert [each.tvd <= 0.01 for each in found if each] == [True, True]


def test_attention_that_looks_elsewhere_is_believed_in_part(tmp_path: Path) -> None:
    view = measured(trained(planted_subject(tmp_path, PLAIN)))
    assert view.uniform_weights is not None and view.uniform_weights.score == 1.0
    assert on_the_key(view) < 0.3
    assert view.measure("shuffled weights: TVD").mean > 0.1
    assert view.level == "partly faithful", view.verdict


def test_attention_to_nothing_is_not_believed(tmp_path: Path) -> None:
    view = measured(trained(planted_subject(tmp_path, PLAIN), shuffled=True))
    for name in ("shuffled weights: TVD", "uniform weights: TVD", "largest weight erased: JS", "comprehensiveness"):
        assert abs(view.measure(name).mean) < 0.05
    assert view.level == "not faithful", view.verdict


def test_an_attribution_is_believed_where_a_random_one_is_not(tmp_path: Path) -> None:
    """The plain BiLSTM whose attention misleads: gradients find the word all the same."""
    subject = trained(planted_subject(tmp_path, PLAIN))
    readings, _ = readings_of(subject, 10)
    draw = np.random.default_rng(0)

    def occluded(reading: Reading) -> np.ndarray:
        return attribution(subject, reading, method="occlusion").parts[0].values

    told = faithfulness(subject, readings, explain=occluded, permutations=1, adversaries=0)
    random = faithfulness(subject, readings, explain=lambda _: draw.random(20), permutations=1, adversaries=0)
    assert told.level == "faithful", told.verdict
    assert random.level == "not faithful", random.verdict
