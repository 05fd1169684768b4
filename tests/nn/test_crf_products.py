"""The sum over paths by products of matrices equals the plain loop, or is not taken."""

import pytest
import torch
from torch import Tensor

from seqloom.nn.ops import crf, crf_products
from seqloom.nn.ops.crf import Transitions

ILLEGAL = -1e30


def drawn(
    lengths: list[int], size: int, legal: float, scale: float = 2.0
) -> tuple[Tensor, Tensor, Tensor, Transitions]:
    """Scores [B,T,K], tags, lengths and moves, of which a share is legal and those of the tags surely are."""
    generator = torch.Generator().manual_seed(len(lengths) + size)
    shapes = [(len(lengths), max(lengths), size), (size,), (size, size), (size,)]
    scores, *moves = (scale * torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    start, between, end = (torch.rand(*shape, generator=generator) < legal for shape in shapes[1:])
    tags = torch.randint(size, shapes[0][:2], generator=generator)
    for row, length in zip(tags.tolist(), lengths, strict=True):
        if length:
            start[row[0]] = end[row[length - 1]] = True
            between[row[: length - 1], row[1:length]] = True
    transitions = Transitions(*(one.requires_grad_() for one in moves), start, between, end)
    return scores.requires_grad_(), tags, torch.tensor(lengths), transitions


def with_gradients(likelihood: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(1.0, len(likelihood) + 1, dtype=likelihood.dtype)
    return [likelihood, *torch.autograd.grad((weights * likelihood).sum(), leaves)]


@pytest.mark.parametrize("legal", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("lengths", [[5, 1, 0, 3], [1, 1], [12, 30]])
def test_products_equal_the_plain_loop_in_value_and_all_gradients(
    lengths: list[int], legal: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn(lengths, 6, legal)
    leaves = [problem[0], *problem[3][:3]]
    plain = with_gradients(crf.log_likelihood(*problem), leaves)
    monkeypatch.setattr(crf_products, "MANY", 1)
    monkeypatch.setattr(crf, "_forward", None)  # nobody may take the other way
    fast = with_gradients(crf.fast_log_likelihood(*problem), leaves)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_scores_that_would_underflow_are_left_to_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf_products, "MANY", 1)
    for scale in (200.0, 2_000.0):
        problem = drawn([9, 4], 4, 0.6, scale)
        filled = problem[3].filled(ILLEGAL, torch.float64)
        assert crf_products.summed(problem[0].detach(), *filled, problem[2], ILLEGAL) is None
        torch.testing.assert_close(crf.fast_log_likelihood(*problem), crf.log_likelihood(*problem))


def test_a_path_that_fades_step_by_step_is_left_to_logarithms() -> None:
    scores = torch.zeros(1, 40, 2, dtype=torch.float64)
    scores[:, :, 0] = 20.0  # 40 steps of exp(-20): no single one is steep
    free, apart = torch.zeros(2, dtype=torch.float64), torch.tensor([[0.0, ILLEGAL], [ILLEGAL, 0.0]]).double()
    assert crf_products.summed(scores, free, apart, free, torch.tensor([40]), ILLEGAL) is None
    assert crf_products.summed(scores[:, :10], free, apart, free, torch.tensor([10]), ILLEGAL) is not None


def test_many_tags_on_a_processor_are_summed_by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf, "_forward", None)
    problem = drawn([4, 2], crf_products.MANY, 1.0)
    torch.testing.assert_close(crf.fast_log_likelihood(*problem), crf.log_likelihood(*problem))


def test_sizes_of_scores_cancel_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf_products, "MANY", 1)
    monkeypatch.setattr(crf, "_forward", None)
    scores, tags, lengths, moves = drawn([5, 3], 4, 0.6)
    raised = moves._replace(start=moves.start + 5e3, between=moves.between - 7e3, end=moves.end + 9e3)
    expected = crf.fast_log_likelihood(scores, tags, lengths, moves)
    torch.testing.assert_close(crf.fast_log_likelihood(scores + 1e4, tags, lengths, raised), expected)


def test_where_no_move_is_legal_single_elements_have_their_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf_products, "MANY", 1)
    problem = drawn([1, 1, 1], 3, 1.0)
    problem = (*problem[:3], problem[3]._replace(legal_between=torch.zeros(3, 3, dtype=torch.bool)))
    torch.testing.assert_close(crf.fast_log_likelihood(*problem), crf.log_likelihood(*problem))
