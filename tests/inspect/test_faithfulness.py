"""Other weights and fewer tokens: known answers, every family, and what cannot be measured."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faithfulness_common import planted_subject
from inspection_common import subject_of, task_on
from seqloom.config.mixers import ConvolutionConfig
from seqloom.config.stacks import BlockConfig
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attention_weights import chosen_layer, layers_of
from seqloom.inspect.faithfulness import alternatives
from seqloom.inspect.faithfulness import bench as bench_module
from seqloom.inspect.faithfulness.alternatives import (
    _AdversarySearch,
    _until_flipped,
    adversary,
    erased,
    erasure,
    even,
    permuted,
    seed_distance,
    shuffled,
)
from seqloom.inspect.faithfulness.bench import ImposedRows, at_bench, imposed, probabilities
from seqloom.inspect.faithfulness.explanations import (
    SHARES,
    Agreement,
    Curves,
    Tau,
    chosen_removal,
    gradient,
    jensen_shannon,
    left_out,
    pairs,
    rationale,
    removals,
    top_count,
    without,
)
from seqloom.inspect.faithfulness.measures import Badge, Evidence, level_of, reservations, verdict
from seqloom.inspect.faithfulness.report import faithfulness, tau_histograms
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.report.figures.matrix import Matrix

GIVEN: dict[str, Any] = {
    "classify": "the cat ran to the big mat",
    "tag": ["the", "big", "dog", "sat"],
    "lm": "the cat sat on the mat",
    "translate": "a big cat",
}
ATTENDING = [
    ("classify", "transformer"),
    ("classify", "linear-attention"),
    ("lm", "transformer"),
    *(
        pytest.param(name, recipe, marks=pytest.mark.slow)
        for name, recipe in (
            ("classify", "window"),
            ("tag", "self-attention"),
            ("lm", "linear-attention"),
            ("translate", "transformer"),
            ("translate", "seq2seq-additive"),
        )
    ),
]
QUICK = {"permutations": 3, "adversaries": 1, "steps": 2}


def asked(folder: Path, name: str, recipe: str) -> tuple[Subject, Reading]:
    subject = subject_of(task_on(folder, name), recipe)
    return subject, read(subject, GIVEN[name], **({"target": "un grand chien"} if name == "translate" else {}))


def pooled(folder: Path, text: str = "w5 w0 w9 w3 w7") -> tuple[Subject, Reading]:
    subject = planted_subject(folder, (BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(1,))),))
    return subject, read(subject, text)


@pytest.mark.parametrize(("name", "recipe"), ATTENDING)
def test_imposing_a_layers_own_weights_changes_nothing(tmp_path: Path, name: str, recipe: str) -> None:
    subject, reading = asked(tmp_path, name, recipe)
    with torch.no_grad():
        expected = scores(subject, reading.inputs)
        for layer in layers_of(subject, reading):
            with imposed(subject.model, layer.path, lambda rows: rows.weights):
                torch.testing.assert_close(scores(subject, reading.inputs), expected, atol=2e-6, rtol=1e-5)
            with at_bench(subject, reading, layer) as bench:
                found = bench.under(lambda rows, _: rows.weights, 3)
                torch.testing.assert_close(found, bench.own.expand_as(found), atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(scores(subject, reading.inputs), expected, atol=0, rtol=0)


def test_what_stands_before_a_layer_is_computed_once(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path)
    calls = []
    handle = subject.model.get_submodule("encoder.input").register_forward_hook(lambda *_: calls.append(1))
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        before = len(calls)
        bench.under(lambda rows, _: rows.weights, 50)
        assert len(calls) == before
    handle.remove()
    scores(subject, reading.inputs)
    assert not any("forward" in module.__dict__ for module in subject.model.modules())


def test_a_shuffle_moves_what_is_movable_and_nothing_else() -> None:
    weights = torch.rand(50, 2, 3, 8, generator=torch.Generator().manual_seed(0))
    movable = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0], dtype=torch.bool).expand(50, 1, 3, 8)
    found = shuffled(weights, movable, torch.Generator().manual_seed(1))
    torch.testing.assert_close(found[..., [1, 4, 7]], weights[..., [1, 4, 7]])
    moving = [0, 2, 3, 5, 6]
    torch.testing.assert_close(found[..., moving].sort(dim=-1).values, weights[..., moving].sort(dim=-1).values)
    places = (found[..., moving][..., None, :] == weights[..., moving][..., None]).double().mean(dim=(0, 1, 2))
    assert ((places - 0.2).abs() < 0.1).all(), "every weight goes to every place equally often"


def test_a_shuffle_is_that_of_two_orders_of_all_weights() -> None:
    """The plain version: the movable places in order take what stands at the movable places in the order of chance."""
    weights = torch.rand(3, 2, 4, 6, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)
    for movable in (torch.ones(3, 1, 4, 6, dtype=torch.bool), torch.rand(3, 1, 4, 6) < 0.6):
        noise = torch.rand(weights.shape, generator=torch.Generator().manual_seed(2))
        expected = weights.clone()
        for at in np.ndindex(3, 2, 4):
            (places,) = movable[at[0], 0, at[2]].nonzero(as_tuple=True)
            expected[at][places] = weights[at][places[noise[at][places].argsort()]]
        torch.testing.assert_close(
            shuffled(weights, movable, torch.Generator().manual_seed(2)), expected, atol=0, rtol=0
        )


def test_what_is_erased_behind_a_flip_is_not_tried_and_the_share_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, reading = pooled(tmp_path, " ".join(f"w{at % 10}" for at in range(40)))
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        order = np.arange(40)
        counts = np.arange(1, 41)
        found = bench.under(erasure(bench, [order[:count] for count in counts]), 40)
        over = (found.argmax(dim=-1) != bench.own.argmax(dim=-1)).double().mean(dim=1) >= 0.5
        expected = float(counts[int(over.int().argmax())] / 40) if bool(over.any()) else None
        for at_once in (80, 120, 8192):  # two, three or all variants in a pass
            monkeypatch.setattr(bench_module, "MOST_ELEMENTS", at_once)
            assert _until_flipped(bench, order) == expected


def test_shuffles_move_nothing_where_weights_are_even_or_vectors_equal(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    subject, reading = pooled(tmp_path)
    subject.model.pooler.direction.data.zero_()  # a = softmax(0)
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        assert permuted(bench, draw, 20).tvd.max() < 1e-6
    subject, reading = pooled(tmp_path, "w5 w5 w5 w5")
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        assert permuted(bench, draw, 20).tvd.max() < 1e-6
    subject, reading = pooled(tmp_path)
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        assert permuted(bench, draw, 20).tvd.max() > 1e-5, "or the test could not fail"


def test_attention_that_is_ignored_is_seen_to_be(tmp_path: Path) -> None:
    """W_O = 0: whatever the weights, nothing of it goes on."""
    subject, reading = asked(tmp_path, "classify", "transformer")
    layer = layers_of(subject, reading)[-1]
    subject.model.get_submodule(f"{layer.path}.heads.output").weight.data.zero_()
    found = faithfulness(subject, reading, **QUICK)
    assert found.measure("shuffled weights: TVD").mean == pytest.approx(0, abs=1e-6)
    assert found.measure("uniform weights: TVD").mean == pytest.approx(0, abs=1e-6)
    assert found.level == "not faithful"


def test_erasing_a_zero_weight_changes_nothing_and_the_rest_is_scaled(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path)
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        seen: list[torch.Tensor] = []
        trial = erasure(bench, [np.array([1]), np.arange(5)])

        def watched(rows: Any, part: slice) -> torch.Tensor:
            seen.append(trial(rows, part))
            return seen[-1]

        bench.under(watched, 2)
        assert float(seen[0][0, 0, 0, 1]) == 0 and float(seen[0][0].sum()) == pytest.approx(1)
        assert float(seen[0][1].sum()) == 0, "where nothing is left the vector is zero"
        none = bench.under(lambda rows, part: trial(rows._replace(weights=rows.weights * (rows.weights > 9)), part), 1)
        assert torch.isfinite(none).all()


def test_a_linear_bag_has_its_erasure_and_its_gradient_in_closed_form(tmp_path: Path) -> None:
    """logit = sum_t a_t v_t: without i it is (sum - a_i v_i) / (1 - a_i)."""
    subject, reading = pooled(tmp_path)
    layer, model = layers_of(subject, reading)[0], subject.model
    with at_bench(subject, reading, layer) as bench:
        vectors = model.encoder(reading.inputs).values[0]
        scored = model.head.linear(vectors) - model.head.linear.bias
        weights = torch.from_numpy(bench.weights).float()
        for at in range(5):
            left = (weights[:, None] * scored).sum(dim=0) - weights[at] * scored[at]
            expected = (left / (1 - weights[at]) + model.head.linear.bias).softmax(dim=0)
            found = bench.under(erasure(bench, [np.array([at])]), 1)[0, 0]
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "recipe"), [("classify", "cnn"), ("classify", "bilstm"), ("tag", "bilstm"), ("lm", "gru")]
)
def test_removing_nothing_changes_nothing_and_all_can_be_removed(tmp_path: Path, name: str, recipe: str) -> None:
    subject, reading = asked(tmp_path, name, recipe)
    count = len(reading.sides[0].tokens)
    special = np.array([token.is_special for token in reading.sides[0].tokens])
    gone = np.stack([np.zeros(count, dtype=bool), ~special])
    found = without(subject, reading, gone, chosen_removal(subject, reading, None))
    with torch.no_grad():
        torch.testing.assert_close(found[0], probabilities(subject, reading, reading.inputs)[0])
    assert torch.isfinite(found).all()


def test_deleted_tokens_are_as_if_never_written(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "classify", "bilstm")
    gone = np.array([[False, True, False, False, False, True, False]])
    with torch.no_grad():
        expected = probabilities(subject, reading, subject.encode("the ran to the mat"))
    torch.testing.assert_close(without(subject, reading, gone, "delete"), expected)


def test_the_empty_rationale_costs_nothing_and_the_whole_one_is_enough(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "classify", "transformer")
    found = rationale(subject, reading, np.arange(7.0), "delete", np.random.default_rng(0))
    for curves in (found.marked, found.random):
        assert curves.deletion[0] == pytest.approx(curves.insertion[-1], abs=1e-6)
        assert curves.deletion[-1] == pytest.approx(curves.insertion[0], abs=1e-6)


def test_the_measure_over_shares_is_divided_by_five_as_in_the_code_of_eraser() -> None:
    curves = Curves(np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]), np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9]))
    assert curves.comprehensiveness == pytest.approx(np.mean([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert curves.sufficiency == pytest.approx(np.mean([0.4, 0.3, 0.2, 0.1, 0.0]))
    assert curves.normalized == pytest.approx((0.5, (0.8 - 0.4) / 0.6))


def test_rationales_are_the_top_tokens_ties_by_position_and_special_ones_stay() -> None:
    scores_of = np.array([np.nan, 1.0, 3.0, 3.0, 0.0])
    tokens = np.flatnonzero(~np.isnan(scores_of))
    gone = removals(tokens[np.argsort(-scores_of[tokens], kind="stable")], 5)
    assert [np.flatnonzero(row).tolist() for row in gone[:7]] == [[], [2], [2], [2], [2], [2, 3], [1, 2, 3, 4]]
    assert not gone[:, 0].any()
    assert [top_count(share, 20) for share in SHARES] == [1, 1, 2, 4, 10]


def test_the_adversary_stays_where_the_answers_are_the_same(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path)
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        found = adversary(bench, torch.Generator().manual_seed(0), steps=20)
    assert found is not None and found.feasible
    assert found.tvd <= 0.01 and 0 < found.distance <= np.log(2)
    assert found.weights.sum() == pytest.approx(1, abs=1e-5)
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    for name, value in subject.model.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=0, rtol=0)


def test_without_steps_that_fit_the_own_weights_are_the_adversary(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path)
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        found = adversary(bench, torch.Generator().manual_seed(0), steps=1, tolerance=1e-12)
        assert found is not None and not found.feasible and found.distance == 0
        np.testing.assert_allclose(found.weights, bench.weights, atol=1e-6)


def test_the_gradient_does_not_go_through_the_weights(tmp_path: Path) -> None:
    """y = p(sum_t a_t h_t) with a held: its slope at a word that stands alone is a_t dp/dh_t . dh_t/de_t."""
    subject, reading = pooled(tmp_path)
    layer = layers_of(subject, reading)[0]
    held = gradient(subject, reading, layer)
    through = gradient(subject, reading, None)
    assert np.abs(held - through).max() > 1e-6
    subject.model.pooler.direction.data.zero_()  # weights that do not depend on words
    np.testing.assert_allclose(
        gradient(subject, reading, layer), gradient(subject, reading, None), rtol=1e-4, atol=1e-8
    )


@pytest.mark.slow
def test_leaving_out_a_long_input_keeps_to_its_budget(tmp_path: Path) -> None:
    subject, _ = pooled(tmp_path)
    reading = read(subject, " ".join(["w5", "w6", "w7"] * 200))
    found = left_out(subject, reading, "delete", np.random.default_rng(0))
    assert (~np.isnan(found)).sum() == 128


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recipe"), [("classify", "transformer"), ("tag", "self-attention"), ("translate", "seq2seq-additive")]
)
def test_a_report_is_the_same_twice_and_saves_itself(tmp_path: Path, name: str, recipe: str) -> None:
    subject, reading = asked(tmp_path, name, recipe)
    found = faithfulness(subject, reading, **QUICK)
    assert found.to_json() == faithfulness(subject, reading, **QUICK).to_json()
    assert found.to_json()["kind"] == "faithfulness"
    assert found.verdict in " ".join(found.text(80).split())
    assert found.badge().inputs == 1
    for ending in ("html", "json", "svg"):
        assert found.save(tmp_path / f"view.{ending}").stat().st_size > 500


def test_a_family_without_attention_is_measured_by_what_explains_it(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "classify", "cnn")
    found = faithfulness(subject, [reading, reading], explain=lambda _: np.arange(7.0), **QUICK)
    assert found.layer is None and found.bins == () and found.evidence.permutation_tvd is None
    assert "This explanation" in found.verdict
    usual = faithfulness(subject, reading, **QUICK)
    assert usual.explanation == "Attribution by integrated gradients"
    assert usual.verdict == faithfulness(subject, reading, method="integrated_gradients", **QUICK).verdict
    with pytest.raises(ConfigError, match=r"no attention.*method="):
        faithfulness(subject, reading, layer=0)
    with pytest.raises(ConfigError, match="method and explain are both given"):
        faithfulness(subject, reading, method="occlusion", explain=lambda _: np.arange(7.0))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"layer": 9}, "no layer 9"),
    ({"layer": "encoder.nowhere"}, "no layer 'encoder.nowhere'"),
    ({"removal": "delte"}, "no removal 'delte'"),
    ({"permutations": 0}, "permutations is 0"),
    ({"steps": 0}, "steps is 0"),
    ({"tolerance": 0.0}, "tolerance is 0"),
    ({"labels": ["yes", "no"]}, "2 labels for 1 inputs"),
    ({"labels": ["maybe"]}, "no answer 'maybe'"),
    ({"labels": [7]}, "no answer 7.*0 to 1"),
    ({"explain": lambda _: np.zeros(3)}, r"shape \[3\] for 7 tokens"),
    ({"explain": lambda _: np.full(7, np.nan)}, "not finite"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_cannot_be_measured_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    subject, reading = asked(tmp_path, "classify", "transformer")
    with pytest.raises((ConfigError, DataError), match=words):
        faithfulness(subject, reading, **(QUICK | options))


def test_models_that_answer_with_numbers_and_no_inputs_are_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "transformer")
    with pytest.raises(ConfigError, match="probabilities"):
        faithfulness(subject, read(subject, ("the cat", "a dog")))
    subject, _ = asked(tmp_path, "classify", "transformer")
    with pytest.raises(DataError, match="no input"):
        faithfulness(subject, [])
    tagger, reading = asked(tmp_path, "tag", "self-attention")
    with pytest.raises(ConfigError, match="tokens cannot be deleted"):
        faithfulness(tagger, reading, removal="delete")


@pytest.mark.slow
def test_weights_of_a_target_are_no_picture_of_the_source(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "translate", "transformer")
    own = next(layer.path for layer in layers_of(subject, reading) if layer.side == "target" and layer.same)
    with pytest.raises(ConfigError, match="does not attend to the tokens of the source"):
        faithfulness(subject, reading, layer=own)


def test_of_a_running_text_only_the_last_row_is_tried(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "lm", "transformer")
    with at_bench(subject, reading, chosen_layer(layers_of(subject, reading), None)) as bench:
        assert bench.asked.tolist() == [False] * 6 + [True]
        assert not bool(bench.free[0]), "BEGIN keeps its weight"
        assert np.isnan(bench.weights[0])
        assert np.nansum(bench.weights) < 1


def test_equal_weights_move_nothing_where_they_are_equal_already(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path)
    subject.model.pooler.direction.data.zero_()
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        found = even(bench)
    assert found.tvd < 1e-6 and found.kept == 1.0


def test_an_input_of_one_token_has_no_other_weight_to_erase(tmp_path: Path) -> None:
    subject, reading = pooled(tmp_path, "w5")
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        assert erased(bench, np.random.default_rng(0)) is None
    found = faithfulness(subject, reading, **QUICK)
    assert found.agreements[0].undefined == 1
    assert found.text(80)


LEVELS: list[tuple[Evidence, str, str]] = [
    (Evidence(50, 0.5, 0.1, permutation_tvd=0.4), "faithful", "It is faithful"),
    (Evidence(50, 0.1, 0.1, permutation_tvd=0.4), "partly faithful", "It is partly faithful.*, but"),
    (Evidence(50, 0.5, 0.1, permutation_tvd=0.0), "partly faithful", "It is partly faithful.*, but"),
    (Evidence(50, 0.1, 0.1, permutation_tvd=0.0), "not faithful", "It is not faithful"),
    (Evidence(50, 0.5, 0.1), "faithful", "It is faithful"),
    (Evidence(50, 0.1, 0.1), "not faithful", "It is not faithful"),
]


@pytest.mark.parametrize(("evidence", "level", "words"), LEVELS, ids=range(len(LEVELS)))
def test_the_verdict_follows_from_its_thresholds(evidence: Evidence, level: str, words: str) -> None:
    assert level_of(evidence) == level
    assert re.search(words, verdict(evidence, "It"))
    assert reservations(evidence) == ()


def test_reservations_are_said_and_do_not_change_the_level() -> None:
    evidence = Evidence(3, 0.5, 0.1, 0.4, adversarial_jsd=0.45, seed_jsd=0.2, score=0.99, uniform_score=0.985)
    far, needless, few = reservations(evidence)
    assert "farther than models trained with other seeds" in far
    assert "needs no attention" in needless
    assert "only 3 inputs" in few
    assert level_of(evidence) == "faithful"
    assert Badge().text == "faithfulness: not measured"


def _rows_of(subject: Subject, reading: Reading, number: int = 0) -> torch.Tensor:
    """[H,R,S] the weights of a layer, by plain means."""
    kept: list[torch.Tensor] = []

    def keep(rows: ImposedRows) -> torch.Tensor:
        kept.append(rows.weights[0].double())
        return rows.weights

    with torch.no_grad(), imposed(subject.model, layers_of(subject, reading)[number].path, keep):
        scores(subject, reading.inputs)
    return torch.cat(kept, dim=1)


def _between(subject: Subject, reading: Reading, *others: Subject) -> float | None:
    with at_bench(subject, reading, layers_of(subject, reading)[0]) as bench:
        return seed_distance(bench, others, 0)


def test_other_seeds_are_as_far_off_as_an_adversary_with_their_weights_would_be(tmp_path: Path) -> None:
    """Row by row and head by head; columns summed over rows would hide most of it."""
    subject, reading = asked(tmp_path, "classify", "transformer")
    other = subject_of(subject.task, "transformer", seed=2)
    for each in (subject, other):  # weights of other seeds are much alike before they learn
        for name, weight in each.model.named_parameters():
            if "heads.query" in name or "heads.key" in name:
                weight.data *= 4
    own, theirs = _rows_of(subject, reading), _rows_of(other, reading)
    orders = [list(order) for order in itertools.permutations(range(len(own)))]
    expected = min(float(jensen_shannon(own, theirs[order]).mean()) for order in orders)
    assert expected > 3 * float(jensen_shannon(own.mean(dim=(0, 1)), theirs.mean(dim=(0, 1))))
    assert _between(subject, reading, other) == pytest.approx(expected, rel=0.05)


def test_heads_in_another_order_are_the_same_heads(tmp_path: Path) -> None:
    subject, reading = asked(tmp_path, "classify", "transformer")
    other = subject_of(subject.task, "transformer")
    heads: Any = other.model.get_submodule(layers_of(other, reading)[0].path).heads
    for linear in (heads.query, heads.key):
        for values in (linear.weight, linear.bias):
            values.data = values.data.unflatten(0, (heads.num_heads, -1)).flip(0).flatten(0, 1)
    assert not torch.allclose(_rows_of(subject, reading), _rows_of(other, reading), atol=1e-4)
    assert _between(subject, reading, other) == pytest.approx(0, abs=1e-6)


def test_other_seeds_read_the_same_translation_and_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, reading = asked(tmp_path, "translate", "seq2seq-dot")
    other = subject_of(subject.task, "seq2seq-dot")
    assert _between(subject, reading, other) == pytest.approx(0, abs=1e-6)
    monkeypatch.setattr(alternatives, "MOST_CELLS", 4)  # one row in several is enough to see it
    assert _between(subject, reading, other) == pytest.approx(0, abs=1e-6)
    words = subject_of(task_on(tmp_path, "translate", rows=["the dog\tle chien"]), "seq2seq-dot")
    with pytest.raises(DataError, match="tokenizes this input differently"):
        _between(subject, reading, words)


@pytest.mark.slow
def test_rows_that_have_to_stay_count_for_no_distance(tmp_path: Path) -> None:
    """A decoder that has read BEGIN, un, grand, chien has fewer than two words to choose from in its first two rows."""
    subject, reading = asked(tmp_path, "translate", "transformer")
    other = subject_of(subject.task, "transformer", seed=2)
    number = next(at for at, layer in enumerate(layers_of(subject, reading)) if layer.same and layer.side == "target")
    with at_bench(subject, reading, layers_of(subject, reading)[number]) as bench:
        search = _AdversarySearch(bench, torch.Generator().manual_seed(0))
        far, apart = search.measured()[0], seed_distance(bench, [other], number)
    own, theirs = _rows_of(subject, reading, number), _rows_of(other, reading, number)
    moved = jensen_shannon(search.weights().double(), own)  # [K,H,R]
    assert moved[..., :2].abs().max() < 1e-6
    torch.testing.assert_close(far.double(), moved[..., 2:].mean(dim=(-1, -2)), atol=1e-5, rtol=0)
    orders = [list(order) for order in itertools.permutations(range(len(own)))]
    expected = min(float(jensen_shannon(own, theirs[order])[:, 2:].mean()) for order in orders)
    assert apart == pytest.approx(expected, rel=0.05)


def test_a_histogram_counts_every_tau_once_and_by_the_answer() -> None:
    """Three inputs said yes, with taus 1, 0.95 and -1; one said no, with 0; one, of two tokens, has none."""
    taus = [Tau(1.0, 0.01), Tau(0.95, 0.04), Tau(-1.0, 0.2), Tau(0.0, 1.0), None]
    found = pairs([[Agreement("attention", "gradient", tau, 0.5)] for tau in taus], ["yes", "yes", "yes", "no", "no"])
    every, yes, no = found
    assert every.histogram == (1, 0, 0, 0, 0, 1, 0, 0, 0, 2)
    assert yes.histogram == (1, 0, 0, 0, 0, 0, 0, 0, 0, 2) and no.histogram == (0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
    assert (every.significant, every.undefined, sum(every.histogram)) == (0.5, 1, 4)
    (drawn,) = tau_histograms(found)
    assert isinstance(drawn, Matrix) and list(drawn.rows) == ["all answers", "yes", "no"]
    assert [sum(row) for row in drawn.values] == [4, 3, 1]  # type: ignore[arg-type]
    assert "p ≤ 0.05 for 50 % of them; undefined for 1 more" in drawn.caption


def test_histograms_stand_in_the_report_of_several_inputs_alone(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "self-attention")
    readings = [read(subject, text) for text in ("the cat sat on", "a big dog ran")]
    quick: dict[str, Any] = {"permutations": 3, "adversaries": 0}
    several = faithfulness(subject, readings, **quick)
    titles = [figure.title for figure in several.figures()]
    assert "Kendall's tau of attention and gradient" in titles
    assert not any("Kendall" in figure.title for figure in faithfulness(subject, readings[:1], **quick).figures())
