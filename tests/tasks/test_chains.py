"""Tags that mark spans are a lawful sequence of their scheme, whatever the scores are and whatever the head is."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.tags import Scheme, TagChecker, fault
from seqloom.errors import ConfigError
from seqloom.nn.heads import Head
from seqloom.nn.types import Padded
from seqloom.tasks.tag import Chain, scheme_of

SETS: dict[Scheme, tuple[str, ...]] = {
    "bio": ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"),
    "bioes": ("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC", "B-PER", "E-PER", "S-PER"),
    "plain": ("NOUN", "VERB", "X"),
}
WIDTH = 4


def head_of(labels: tuple[str, ...], kind: str, seed: int) -> Head:
    """A head with random weights; that of kind crf was not told of any scheme."""
    config = ClassHeadConfig(num_classes=len(labels)) if kind == "class" else CrfHeadConfig(labels=labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = config.build(WIDTH)
        with torch.no_grad():
            for weight in head.parameters():
                weight.copy_(3 * torch.randn(weight.shape))
    return head


def vectors(lengths: list[int], seed: int) -> Padded:
    values = torch.randn(len(lengths), max(lengths), WIDTH, generator=torch.Generator().manual_seed(seed))
    return Padded.of(values, torch.tensor(lengths))


def require_lawful(tags: list[str], scheme: Scheme) -> None:
    """No neighbors are at fault, and the checker of files finds nothing to refuse."""
    assert [fault(pair, scheme) for pair in itertools.pairwise((None, *tags, None))] == [None] * (len(tags) + 1)
    checker = TagChecker()
    checker.feed(tags, Place("a.conll", 1))
    checker.finish(Ledger(), Place("a.conll"))


@pytest.mark.parametrize("kind", ["class", "crf"])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@settings(max_examples=12)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_every_answer_keeps_to_its_scheme(scheme: Scheme, kind: str, lengths: list[int], seed: int) -> None:
    labels = SETS[scheme]
    with torch.no_grad():
        said = Chain.of(labels).best(head_of(labels, kind, seed), vectors(lengths, seed))
    for row, length in zip(said.tolist(), lengths, strict=True):
        require_lawful([labels[tag] for tag in row[:length]], scheme)
        assert not any(row[length:])


def best_by_enumeration(scores: Tensor, labels: tuple[str, ...], scheme: Scheme) -> float:
    """The highest score of any lawful path [T,K], by trying all."""
    paths = itertools.product(range(len(labels)), repeat=len(scores))
    lawful = (
        path
        for path in paths
        if not any(fault(pair, scheme) for pair in itertools.pairwise((None, *(labels[tag] for tag in path), None)))
    )
    return max(sum(float(scores[place, tag]) for place, tag in enumerate(path)) for path in lawful)


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@pytest.mark.parametrize("seed", range(4))
def test_a_linear_head_says_the_best_of_all_lawful_sequences(scheme: Scheme, seed: int) -> None:
    labels, x = SETS[scheme], vectors([4], seed)
    head = head_of(labels, "class", seed)
    with torch.no_grad():
        scores, (said,) = head(x).values[0], Chain.of(labels).best(head, x).tolist()
    total = sum(float(scores[place, tag]) for place, tag in enumerate(said))
    assert total == pytest.approx(best_by_enumeration(scores, labels, scheme), rel=1e-5)


@pytest.mark.parametrize("kind", ["class", "crf"])
def test_nothing_is_restricted_where_tags_mark_no_spans(kind: str) -> None:
    labels, x = SETS["plain"], vectors([6, 3], 0)
    head = head_of(labels, kind, 0)
    with torch.no_grad():
        assert torch.equal(Chain.of(labels).best(head, x), head.predict(x))
    assert Chain.of(labels).scheme == "none"


def test_where_the_likeliest_tags_are_lawful_they_are_the_answer() -> None:
    labels, lengths = SETS["bio"], [5] * 200
    head, x = head_of(labels, "class", 3), vectors(lengths, 3)
    with torch.no_grad():
        likeliest, said = head.predict(x).tolist(), Chain.of(labels).best(head, x).tolist()
    names = [[labels[tag] for tag in row] for row in likeliest]
    lawful = [not any(fault(pair, "bio") for pair in itertools.pairwise((None, *row, None))) for row in names]
    assert 0 < sum(lawful) < len(lawful)
    assert [one == other for one, other in zip(likeliest, said, strict=True)] == lawful


def test_the_scheme_is_read_off_the_tags() -> None:
    assert [scheme_of(labels) for labels in SETS.values()] == ["bio", "bioes", "none"]
    assert scheme_of(("O", "B-PER", "X")) == "none"


def test_tags_of_which_none_may_stand_alone_are_refused() -> None:
    with pytest.raises(ConfigError, match="is allowed in a sequence of one element"):
        Chain.of(("B-PER", "E-PER"))
