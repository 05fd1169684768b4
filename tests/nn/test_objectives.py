"""Losses of vectors that stand together against loops over rows, and the laws that they keep."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.config.models import ContrastConfig, RankConfig, ScoredCosineConfig, TripletConfig, ViewsConfig
from seqloom.nn.objectives import Contrast, Rank, ScoredCosine, Triplet, equal_texts, related, thinned
from seqloom.nn.ops import objectives
from seqloom.nn.types import Both, Padded, Triple

ROWS, WIDTH = 5, 4
NO_SCORES = torch.empty(ROWS, 0)


def drawn(seed: int, rows: int = ROWS) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def texts(*rows: list[int]) -> Padded:
    return Padded.stack([torch.tensor(row, dtype=torch.int64) for row in rows])


def apart(first: int) -> Padded:
    """Rows of one token each, no two alike."""
    return texts(*([first + row] for row in range(ROWS)))


def reading(*pairs: tuple[Padded, Tensor]) -> Any:
    """A reader that knows the vectors of these texts."""
    known = {text.values.data_ptr(): vectors for text, vectors in pairs}
    return lambda text: known[text.values.data_ptr()]


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def test_contrast_is_the_cross_entropy_of_torch_where_all_texts_differ() -> None:
    first, second = drawn(0), drawn(1)
    scores = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / 0.05
    expected = (F.cross_entropy(scores, torch.arange(ROWS)) + F.cross_entropy(scores.T, torch.arange(ROWS))) / 2
    one, other = apart(10), apart(20)
    found = Contrast(ContrastConfig())(reading((one, first), (other, second)), Both(one, other), NO_SCORES)
    torch.testing.assert_close(found.loss.mean, expected)
    assert found.correct.tolist() == (scores.argmax(dim=1) == torch.arange(ROWS)).tolist()


@pytest.mark.parametrize("config", [ContrastConfig(), RankConfig(), ScoredCosineConfig()], ids=lambda one: one.kind())
def test_the_loss_of_pairs_is_symmetric(config: Any) -> None:
    one, other, scores = apart(10), texts([7], [8], [7], [9], [9]), torch.arange(ROWS) / ROWS
    read = reading((one, drawn(0)), (other, drawn(1)))
    there, back = (config.build()(read, Both(*sides), scores).loss for sides in ((one, other), (other, one)))
    torch.testing.assert_close(there, back)


def test_equal_texts_are_no_negatives_of_each_other() -> None:
    """Rows 0 and 1 share a question: what the vector of the one's answer is, is nothing to the other's loss."""
    questions, answers = texts([7], [7], [8], [9], [10]), apart(20)
    vectors = drawn(0)
    vectors[1] = vectors[0]
    moved = drawn(1)
    moved[1] = vectors[0]  # as near to question 0 as can be
    losses = []
    for said in (drawn(1), moved):
        found = Contrast(ContrastConfig())(
            reading((questions, vectors), (answers, said)), Both(questions, answers), NO_SCORES
        )
        losses.append(found.losses[0])
        assert found.losses.isfinite().all()
    torch.testing.assert_close(*losses)


def test_what_belongs_to_a_text_in_another_row_is_no_negative_of_it() -> None:
    """Rows 0 and 1 share an anchor: the positive of row 1 is no negative of row 0, wherever it stands."""
    anchors, positives = texts([7], [7], [8], [9], [10]), texts([20], [21], [21], [23], [24])
    negatives = texts([30], [31], [32], [21], [34])
    assert related(anchors, positives, positives)[0].tolist() == [True, True, True, False, False]
    assert related(anchors, positives, negatives)[0].tolist() == [False, False, False, True, False]


def test_a_text_that_differs_is_a_negative() -> None:
    questions, answers, vectors = apart(10), apart(20), drawn(0)
    moved = drawn(1)
    moved[1] = vectors[0]
    far, near = (
        Contrast(ContrastConfig())(reading((questions, vectors), (answers, said)), Both(questions, answers), NO_SCORES)
        for said in (drawn(1), moved)
    )
    assert near.losses[0] > far.losses[0] + 1
    assert not near.correct[0]


def test_the_negative_of_a_triple_is_one_more_candidate() -> None:
    anchor, positive, negative = drawn(0), drawn(1), drawn(2)
    marks = apart(10), apart(20), apart(30)
    read = reading(*zip(marks, (anchor, positive, negative), strict=True))
    found = Contrast(ContrastConfig())(read, Triple(*marks), NO_SCORES)
    for row in range(ROWS):
        others = [math.exp(cosine(anchor[row], one) / 0.05) for one in (*positive, *negative)]
        back = [math.exp(cosine(positive[row], one) / 0.05) for one in anchor]
        expected = -(math.log(others[row] / sum(others)) + math.log(back[row] / sum(back))) / 2
        assert float(found.losses[row]) == pytest.approx(expected)
        right = cosine(anchor[row], positive[row]) > cosine(anchor[row], negative[row])
        assert bool(found.correct[row]) == right


@given(st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_rank_is_the_sum_over_all_pairs_of_pairs(scores: list[int], seed: int) -> None:
    first, second = drawn(seed), drawn(seed + 1)
    near = [cosine(*pair) for pair in zip(first, second, strict=True)]
    wrong = [
        math.exp(20 * (near[low] - near[high]))
        for high in range(ROWS)
        for low in range(ROWS)
        if scores[high] > scores[low]
    ]
    one, other = apart(10), apart(20)
    found = Rank(RankConfig())(reading((one, first), (other, second)), Both(one, other), torch.tensor(scores))
    assert float(found.loss.mean) == pytest.approx(math.log1p(sum(wrong)), abs=1e-9)
    torch.testing.assert_close(found.cosines, torch.tensor(near, dtype=torch.float64))


def test_a_row_has_the_share_of_rank_that_it_is_the_reason_of_and_the_gradient_is_that_of_the_whole() -> None:
    """Rows 3 and 4 stand in the wrong order, all others in the right one."""
    near = torch.tensor([0.9, 0.5, 0.2, -0.8, -0.6], dtype=torch.float64, requires_grad=True)
    scores = torch.arange(ROWS).flip(0)
    shares = objectives.rank(near, scores, scale=20.0)
    assert bool((shares[:3] < 0.1 * shares[3:].min()).all())
    higher, lower = (scores[:, None] > scores[None, :]).nonzero(as_tuple=True)
    whole = (20 * (near[lower] - near[higher])).exp().sum().log1p()
    (found,), (expected,) = (torch.autograd.grad(one, near) for one in (shares.mean(), whole))
    torch.testing.assert_close(found, expected)


def test_cosine_regression_is_the_squared_error_of_torch() -> None:
    one, other, scores = apart(10), apart(20), torch.rand(ROWS, dtype=torch.float64)
    found = ScoredCosine()(reading((one, drawn(0)), (other, drawn(1))), Both(one, other), scores)
    torch.testing.assert_close(found.loss.mean, F.mse_loss(F.cosine_similarity(drawn(0), drawn(1)), scores))


def test_a_triplet_is_two_hinges_by_the_book() -> None:
    anchor, positive, negative = drawn(3), drawn(4), drawn(5)
    marks = apart(10), apart(20), apart(30)
    read = reading(*zip(marks, (anchor, positive, negative), strict=True))
    found = Triplet(TripletConfig(margin=0.3))(read, Triple(*marks), NO_SCORES)
    for row in range(ROWS):
        near, far = cosine(anchor[row], positive[row]), cosine(anchor[row], negative[row])
        others = [cosine(anchor[row], one[at]) for one in (positive, negative) for at in range(ROWS) if at != row]
        expected = max(0.0, 0.3 - near + far) + max(0.0, 0.3 - near + max(others))
        assert float(found.losses[row]) == pytest.approx(expected)


def test_a_batch_of_one_pair_has_nothing_to_learn() -> None:
    one, other = texts([7]), texts([8])
    read = reading((one, drawn(0, 1)), (other, drawn(1, 1)))
    for config in (ContrastConfig(), RankConfig()):
        assert float(config.build()(read, Both(one, other), torch.ones(1)).loss.total) == pytest.approx(0, abs=1e-12)


def test_a_vector_of_zeros_has_a_cosine_of_zero_and_a_finite_gradient() -> None:
    vectors = torch.zeros(2, WIDTH, requires_grad=True)
    similarities = objectives.cosines(vectors, drawn(0, 2).float())
    assert similarities.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    similarities.sum().backward()
    assert vectors.grad is not None and vectors.grad.isfinite().all()


@given(st.lists(st.lists(st.integers(6, 7), max_size=3), min_size=1, max_size=5), st.data())
@settings(max_examples=20, deadline=None)
def test_equal_texts_are_those_with_equal_tokens(rows: list[list[int]], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.lists(st.integers(6, 7), max_size=3), min_size=1, max_size=5))
    assert equal_texts(texts(*rows), texts(*others)).tolist() == [[one == other for other in others] for one in rows]


def test_what_is_related_is_the_same_seen_from_both_sides() -> None:
    one, other = texts([7], [8], [7], [9]), texts([8], [6], [9], [6])
    assert related(one, other, other).tolist() == related(other, one, one).T.tolist()


@given(st.lists(st.integers(6, 20), max_size=8), st.integers(0, 99), st.floats(0, 0.99))
@settings(max_examples=20, deadline=None)
def test_tokens_are_left_out_in_order_and_one_stays(tokens: list[int], seed: int, left_out: float) -> None:
    whole = texts(tokens, [2, 9, 3])
    draws = torch.rand(whole.values.shape, generator=torch.Generator().manual_seed(seed))
    thin = thinned(whole, draws, left_out)
    kept = thin.values[0, : int(thin.lengths[0])].tolist()
    expected = [token for token, draw in zip(tokens, draws[0].tolist(), strict=False) if draw >= left_out]
    likeliest = [tokens[int(draws[0, : len(tokens)].argmax())]] if tokens else []
    assert kept == (expected or likeliest)
    assert thin.values[1].tolist()[:3] == [2, 9, 3]  # special tokens stay, and one ordinary one
    assert not thin.values.masked_select(~thin.valid).any()


def test_views_of_nothing_left_out_are_contrast_with_itself() -> None:
    whole = texts([7, 8], [9], [10, 11])
    read = reading((whole, drawn(0, 3)))
    one, other = (config.build()(read, whole, NO_SCORES).loss for config in (ViewsConfig(), ContrastConfig()))
    torch.testing.assert_close(one, other)
