from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from seqloom.config.heads import Scheme
from seqloom.errors import ConfigError, KernelError
from seqloom.nn.ops.crf import (
    Transitions,
    fast_log_likelihood,
    fast_log_partition,
    legal_transitions,
    log_likelihood,
    log_partition,
    marginals,
    path_score,
    viterbi,
)

FLOAT64 = {"rtol": 1e-10, "atol": 1e-11}
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
Function = Callable[..., Tensor]
LIKELIHOODS: list[Function] = [log_likelihood, fast_log_likelihood]
PARTITIONS: list[Function] = [log_partition, fast_log_partition]


class Problem(NamedTuple):
    scores: Tensor
    tags: Tensor  # legal
    lengths: Tensor
    transitions: Transitions

    @property
    def leaves(self) -> list[Tensor]:
        return [self.scores, *self.transitions[:3]]

    def to(self, dtype: torch.dtype) -> "Problem":
        scores, *moves = (leaf.detach().to(dtype).requires_grad_() for leaf in self.leaves)
        return self._replace(scores=scores, transitions=Transitions(*moves, *self.transitions[3:]))


def draw_problem(rows: int, time: int, size: int, lengths: Sequence[int], legal: float, seed: int) -> Problem:
    """Random scores and legality; each row's tags are made legal, so that a path is left for its length."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, time, size), (size,), (size, size), (size,)]
    scores, *moves = (2 * torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    start, between, end = (torch.rand(*shape, generator=generator) < legal for shape in shapes[1:])
    tags = torch.randint(size, (rows, time), generator=generator)
    for row, length in zip(tags.tolist(), lengths, strict=True):
        if length:
            start[row[0]] = end[row[length - 1]] = True
            between[row[: length - 1], row[1:length]] = True
    transitions = Transitions(*(move.requires_grad_() for move in moves), start, between, end)
    return Problem(scores.requires_grad_(), tags, torch.tensor(lengths), transitions)


@st.composite
def problems(draw: st.DrawFn, max_time: int = 5, max_size: int = 4) -> Problem:
    rows, time, size = draw(st.integers(1, 3)), draw(st.integers(0, max_time)), draw(st.integers(1, max_size))
    lengths = draw(st.lists(st.integers(0, time), min_size=rows, max_size=rows))
    return draw_problem(rows, time, size, lengths, draw(st.sampled_from([0.3, 0.7, 1.0])), draw(st.integers(0, 10**6)))


class Paths(NamedTuple):
    """All legal paths of one row, by enumeration."""

    tags: Tensor  # [P,length]
    scores: Tensor  # [P]


def enumerate_paths(problem: Problem, row: int) -> Paths:
    start, between, end, legal_start, legal_between, legal_end = problem.transitions
    length, size = int(problem.lengths[row]), len(start)
    legal, totals = [], []
    for path in product(range(size), repeat=length):
        moves = list(pairwise(path))
        total = sum((problem.scores[row, t, tag] for t, tag in enumerate(path)), torch.zeros((), dtype=torch.float64))
        if length:
            if not (legal_start[path[0]] and legal_end[path[-1]] and all(legal_between[i, j] for i, j in moves)):
                continue
            total = total + start[path[0]] + end[path[-1]] + sum(between[i, j] for i, j in moves)
        legal.append(path)
        totals.append(total)
    return Paths(torch.tensor(legal).reshape(len(legal), length), torch.stack(totals))


def enumerated_log_likelihood(problem: Problem) -> Tensor:
    rows = []
    for row, length in enumerate(problem.lengths.tolist()):
        paths = enumerate_paths(problem, row)
        observed = (paths.tags == problem.tags[row, :length]).all(dim=1)
        rows.append(paths.scores[observed].sum() - paths.scores.logsumexp(0))
    return torch.stack(rows)


def slopes(value: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Gradients of a differently weighted sum of the rows, so that no row can stand in for another."""
    total = (value * torch.arange(1, len(value) + 1)).sum() + sum(0 * leaf.sum() for leaf in leaves)
    return list(torch.autograd.grad(total, leaves, retain_graph=True))


# Against enumeration of all K^T paths.


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(problem=problems(max_time=4, max_size=3))
def test_log_likelihood_and_gradients_equal_enumeration(problem: Problem) -> None:
    expected = enumerated_log_likelihood(problem)
    expected_slopes = slopes(expected, problem.leaves)
    for likelihood in LIKELIHOODS:
        found = likelihood(*problem)
        assert_close(found, expected, **FLOAT64)
        assert_close(slopes(found, problem.leaves), expected_slopes, **FLOAT64)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(problem=problems(max_time=5, max_size=4))
def test_partition_marginals_and_best_path_equal_enumeration(problem: Problem) -> None:
    scores, _, lengths, transitions = problem
    with torch.no_grad():
        probabilities = marginals(scores, lengths, transitions)
        tags, best = viterbi(scores, lengths, transitions)
        for row, length in enumerate(lengths.tolist()):
            paths = enumerate_paths(problem, row)
            for partition in PARTITIONS:
                assert_close(partition(scores, lengths, transitions)[row], paths.scores.logsumexp(0), **FLOAT64)
            expected = torch.zeros_like(scores[row])
            for t in range(length):
                expected[t].index_add_(0, paths.tags[:, t], paths.scores.softmax(0))
            assert_close(probabilities[row], expected, **FLOAT64)
            assert_close(best[row], paths.scores.max(), **FLOAT64)
            assert tags[row, :length].tolist() in paths.tags.tolist()
            assert not tags[row, length:].any()
    assert_close(path_score(scores, tags, lengths, transitions), best, **FLOAT64)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_gradients_equal_finite_differences(likelihood: Function) -> None:
    problem = draw_problem(3, 4, 3, [4, 0, 2], legal=0.6, seed=3)

    def function(scores: Tensor, *moves: Tensor) -> Tensor:
        return likelihood(scores, problem.tags, problem.lengths, Transitions(*moves, *problem.transitions[3:]))

    assert torch.autograd.gradcheck(function, problem.leaves)


# The fast operator equals the plain one.


@pytest.mark.parametrize("legal", [0.3, 1.0])
@pytest.mark.parametrize("lengths", [[1, 1, 1], [12, 0, 7], [0, 0, 0], [12, 12, 12]])
def test_fast_equals_plain_in_value_and_all_gradients(lengths: list[int], legal: float) -> None:
    problem = draw_problem(3, 12, 5, lengths, legal, seed=11)
    plain, fast = log_likelihood(*problem), fast_log_likelihood(*problem)
    assert_close(fast, plain, **FLOAT64)
    assert_close(slopes(fast, problem.leaves), slopes(plain, problem.leaves), **FLOAT64)
    narrow = problem.to(torch.float32)
    for likelihood in LIKELIHOODS:
        found = likelihood(*narrow)
        assert found.dtype == torch.float32
        assert_close(found.double(), plain, **FLOAT32)
        for slope, expected in zip(slopes(found, narrow.leaves), slopes(plain, problem.leaves), strict=True):
            assert_close(slope.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_two_thousand_elements_neither_underflow_nor_lose_their_digits() -> None:
    problem = draw_problem(2, 2000, 4, [2000, 1500], legal=0.7, seed=5)
    narrow = problem.to(torch.float32)
    plain, fast = log_likelihood(*problem), fast_log_likelihood(*narrow)
    assert_close(fast.double(), plain, rtol=1e-6, atol=1e-2)
    expected = torch.autograd.grad(plain.sum(), problem.scores)[0]
    found = torch.autograd.grad(fast.sum(), narrow.scores)[0]
    assert_close(found.double(), expected, rtol=0, atol=1e-5)
    sums = marginals(narrow.scores, narrow.lengths, narrow.transitions).sum(dim=2)
    assert_close(sums, (torch.arange(2000) < narrow.lengths[:, None]).float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_only_legal_path_has_probability_one_however_unlikely_it_looks(likelihood: Function) -> None:
    # Tag 0 scores 1,000 more than tag 1 at every element and may start, but neither end nor change: 1,1,1,... is left.
    never = torch.tensor([False, True])
    stay, zeros = torch.eye(2, dtype=torch.bool), torch.zeros(2)
    transitions = Transitions(zeros, torch.zeros(2, 2), zeros, ~zeros.bool(), stay, never)
    scores = torch.tensor([1000.0, 0.0]).repeat(1, 60, 1).requires_grad_()
    found = likelihood(scores, torch.ones(1, 60, dtype=torch.int64), torch.tensor([60]), transitions)
    assert found.item() == 0
    assert not torch.autograd.grad(found, scores)[0].any()
    assert torch.equal(marginals(scores, torch.tensor([60]), transitions)[0, :, 1], torch.ones(60))
    assert viterbi(scores, torch.tensor([60]), transitions)[0].all()


def test_fast_refuses_a_second_derivative() -> None:
    problem = draw_problem(1, 3, 2, [3], legal=1.0, seed=0)
    with pytest.raises(KernelError, match="use log_likelihood"):
        torch.autograd.grad(fast_log_likelihood(*problem), problem.scores, create_graph=True)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_bfloat16_scores_are_computed_in_float32(likelihood: Function) -> None:
    problem = draw_problem(2, 6, 3, [6, 4], legal=1.0, seed=1).to(torch.bfloat16)
    found, expected = likelihood(*problem), likelihood(*problem.to(torch.float32))
    assert found.dtype == torch.float32
    assert_close(found, expected, **FLOAT32)
    assert slopes(found, problem.leaves)[0].dtype == torch.bfloat16


# Illegal moves.


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_an_illegal_path_has_probability_zero_and_a_finite_gradient(likelihood: Function) -> None:
    scores, _, lengths, transitions = problem = draw_problem(2, 5, 3, [5, 3], legal=1.0, seed=2)
    for field in ("legal_start", "legal_between", "legal_end"):
        table = getattr(transitions, field).clone()
        table[..., 2] = False
        limited = transitions._replace(**{field: table})
        found = likelihood(scores, torch.full_like(problem.tags, 2), lengths, limited)
        assert torch.equal(found.exp(), torch.zeros(2, dtype=torch.float64))
        assert all(slope.isfinite().all() for slope in slopes(found, problem.leaves))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_illegal_moves_take_no_probability_and_no_gradient(likelihood: Function) -> None:
    problem = draw_problem(3, 6, 4, [6, 5, 2], legal=0.4, seed=8)
    start, between, end = slopes(likelihood(*problem), problem.leaves)[1:]
    legal = problem.transitions
    assert not start[~legal.legal_start].any() and start[legal.legal_start].any()
    assert not between[~legal.legal_between].any() and between[legal.legal_between].any()
    assert not end[~legal.legal_end].any() and end[legal.legal_end].any()
    probabilities = marginals(problem.scores, problem.lengths, legal)
    assert not probabilities[:, 0, ~legal.legal_start].any()


@settings(max_examples=60, deadline=None)
@given(
    scheme=st.sampled_from(["bio", "bioes"]),
    exponent=st.integers(-30, 30),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_best_path_is_legal_for_scores_of_any_size(
    scheme: Scheme, exponent: int, seed: int, dtype: torch.dtype
) -> None:
    labels = LABELS[scheme]
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 7, len(labels), generator=generator, dtype=dtype) * 10.0**exponent
    moves = (torch.randn(*s, generator=generator) for s in ((len(labels),), (len(labels),) * 2, (len(labels),)))
    lengths = torch.tensor([7, 4, 1, 0])
    tags, best = viterbi(scores, lengths, Transitions(*moves, *legal_transitions(labels, scheme)))
    assert best.isfinite().all()
    for row, length in zip(tags.tolist(), lengths.tolist(), strict=True):
        assert VALIDATORS[scheme]([labels[tag] for tag in row[:length]])


# Padding and neighbors.


@pytest.mark.parametrize("garbage", [1e30, -1e30, torch.inf, torch.nan])
def test_padding_garbage_never_changes_anything(garbage: float) -> None:
    clean = draw_problem(3, 6, 4, [6, 3, 0], legal=0.6, seed=4)
    beyond = torch.arange(6) >= clean.lengths[:, None]
    scores = clean.scores.detach().masked_fill(beyond[:, :, None], garbage).requires_grad_()
    for tag in (-100, 10**9):
        dirty = clean._replace(scores=scores, tags=clean.tags.masked_fill(beyond, tag))
        for likelihood in LIKELIHOODS:
            expected, found = likelihood(*clean), likelihood(*dirty)
            assert torch.equal(found, expected)
            found_slopes = torch.autograd.grad(found.sum(), dirty.leaves)
            assert not found_slopes[0][beyond].any()
            assert_close(found_slopes, torch.autograd.grad(expected.sum(), clean.leaves), rtol=0, atol=0)
    for function in (marginals, viterbi):
        assert_close(function(*dirty[::2], dirty[3]), function(*clean[::2], clean[3]), rtol=0, atol=0)


def test_a_row_of_a_batch_equals_the_row_alone_in_its_own_length() -> None:
    problem = draw_problem(4, 9, 3, [5, 7, 1, 0], legal=0.6, seed=6)  # two columns more than any row needs
    scores, _, lengths, transitions = problem
    together = {f: f(*problem) for f in LIKELIHOODS}
    tags, best = viterbi(scores, lengths, transitions)
    probabilities = marginals(scores, lengths, transitions)
    for row, length in enumerate(lengths.tolist()):
        own = scores[row : row + 1, :length], lengths[row : row + 1], transitions
        alone = problem._replace(scores=own[0], tags=problem.tags[row : row + 1, :length], lengths=own[1])
        for likelihood, found in together.items():
            assert_close(likelihood(*alone), found[row : row + 1], **FLOAT64)
        assert torch.equal(viterbi(*own)[0][0], tags[row, :length])
        assert_close(viterbi(*own)[1][0], best[row], **FLOAT64)
        assert_close(marginals(*own)[0], probabilities[row, :length], **FLOAT64)


def test_an_empty_row_has_likelihood_one_and_no_gradient() -> None:
    problem = draw_problem(2, 3, 2, [0, 0], legal=0.5, seed=9)
    for likelihood in LIKELIHOODS:
        found = likelihood(*problem)
        assert not found.any()
        assert not any(slope.any() for slope in slopes(found, problem.leaves))
    assert not any(x.any() for x in viterbi(problem.scores, problem.lengths, problem.transitions))


# Which labels may follow which.

LABELS: dict[Scheme, list[str]] = {
    "bio": ["O", "B-A", "I-A", "B-B-C", "I-B-C"],
    "bioes": ["O", "B-A", "I-A", "E-A", "S-A", "B-B-C", "I-B-C", "E-B-C", "S-B-C"],
}


def is_bio(path: Sequence[str]) -> bool:
    """Read from left to right: every I- must agree in type with the label just before it."""
    return all(label[0] != "I" or (t > 0 and path[t - 1] in (label, "B" + label[1:])) for t, label in enumerate(path))


def is_bioes(path: Sequence[str]) -> bool:
    """Read span by span: O, S-X, or B-X I-X ... I-X E-X."""
    rest = list(path)
    while rest:
        head = rest.pop(0)
        if head[0] in "IE":
            return False
        if head[0] == "B":
            while rest and rest[0] == "I" + head[1:]:
                rest.pop(0)
            if not rest or rest.pop(0) != "E" + head[1:]:
                return False
    return True


VALIDATORS = {"none": lambda _: True, "bio": is_bio, "bioes": is_bioes}


@pytest.mark.parametrize("scheme", ["none", "bio", "bioes"])
def test_the_tables_allow_exactly_the_valid_sequences(scheme: Scheme) -> None:
    labels = LABELS.get(scheme, ["O", "B-A", "I-A", "whatever"])
    start, between, end = (table.tolist() for table in legal_transitions(labels, scheme))
    for path in (path for length in (1, 2, 3, 4) for path in product(range(len(labels)), repeat=length)):
        allowed = start[path[0]] and end[path[-1]] and all(between[i][j] for i, j in pairwise(path))
        assert allowed == VALIDATORS[scheme]([labels[tag] for tag in path]), [labels[tag] for tag in path]


@pytest.mark.parametrize("scheme", ["none", "bio", "bioes"])
def test_the_tables_share_no_memory(scheme: Scheme) -> None:
    tables = legal_transitions(["O", "B-A", "I-A"], scheme)
    assert len({table.untyped_storage().data_ptr() for table in tables}) == 3


def test_bio_and_bioes_are_the_tables_in_the_books() -> None:
    start, between, end = legal_transitions(["O", "B-X", "I-X", "I-Y"], "bio")
    assert start.tolist() == [True, True, False, False] and end.all()
    assert between[:, 2].tolist() == [False, True, True, False]
    start, between, end = legal_transitions(["O", "B-X", "I-X", "E-X", "S-X"], "bioes")
    assert start.tolist() == [True, True, False, False, True]
    assert end.tolist() == [True, False, False, True, True]
    assert between.long().tolist() == [
        [1, 1, 0, 0, 1],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize("label", ["PER", "B", "B-", "-PER", "BI-PER", "b-PER", "o", "", "E-PER", "O-PER"])
def test_a_label_outside_the_scheme_is_named_with_what_is_expected(label: str) -> None:
    with pytest.raises(ConfigError, match=rf"label '{label}' .* 'bio', which expects O, B-TYPE, I-TYPE\. Fix: "):
        legal_transitions(["O", label], "bio")
    assert all(table.all() for table in legal_transitions(["O", label], "none"))


@pytest.mark.parametrize(("labels", "scheme"), [(["I-A", "I-B"], "bio"), (["B-A", "I-A", "E-A"], "bioes")])
def test_labels_of_which_none_may_stand_alone_are_refused(labels: list[str], scheme: Scheme) -> None:
    with pytest.raises(ConfigError, match=r"is allowed in a sequence of one element.* add the label 'O'"):
        legal_transitions(labels, scheme)
