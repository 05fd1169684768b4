"""Words are merged so that rows still add up to 1, and what is pooled says no more than what it was pooled from."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.inspect.attention_weights import (
    AskedWeights,
    AttentionRows,
    blocks,
    coarser,
    entropy_of,
    pooled,
    table,
    units,
)
from seqloom.inspect.subject import NO_WORD, Token
from seqloom.text.special_tokens import BEGIN


class Given(AttentionRows):
    """Rows of matrices that are there already, [H,T,S]."""

    def __init__(self, matrices: np.ndarray) -> None:
        self.matrices = matrices
        self.num_heads, self.num_queries, self.num_keys = matrices.shape

    def weights(self, head: int, asked: slice) -> Tensor:
        return torch.tensor(self.matrices[head, asked])


def _drawn(seed: int, heads: int, time: int, *, causal: bool) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(heads, time, time)) * 3
    if causal:
        logits = np.where(np.tril(np.ones((time, time), dtype=bool)), logits, -np.inf)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found = odds / odds.sum(axis=-1, keepdims=True)
    return np.where(np.isinf(logits), np.nan, found)


def _tokens(words: list[int]) -> list[Token]:
    """Tokens of words; 0 is a special token, which is no word."""
    return [Token("<begin>", word=NO_WORD, id=BEGIN) if word == 0 else Token("x", word=word, id=99) for word in words]


def _asked(tokens: list[Token], heads: int, *, words: bool, without_special: bool = False) -> AskedWeights:
    left_out = np.array([without_special and token.is_special for token in tokens])
    each = units(tokens, words=words)
    return AskedWeights(tuple(range(heads)), each, each, left_out)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
)
def test_rows_add_up_to_one_however_words_are_merged(
    words: list[int], causal: bool, without_special: bool, at_once: int
) -> None:
    tokens = _tokens(words)
    given_ = Given(_drawn(len(words), 2, len(words), causal=causal))
    asked = _asked(tokens, 2, words=True, without_special=without_special)
    found = np.concatenate([block.values for block in blocks(given_, asked, at_once)])
    sums = np.nansum(found, axis=1)
    empty = np.isnan(found).all(axis=1)
    np.testing.assert_allclose(sums[~empty], 1.0, atol=1e-9)
    assert not empty[np.array(asked.rows.special) == 0].any(), "a token always reads itself"


def test_keys_of_a_word_are_added_up_and_queries_averaged() -> None:
    weights = np.array([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]]])
    asked = _asked([Token("un", word=0, id=9), Token("do", word=0, id=9), Token("it", word=1, id=9)], 1, words=True)
    (block,) = blocks(Given(weights), asked)
    assert asked.rows.names == ("undo", "it")
    np.testing.assert_allclose(block.values, [[0.45, 0.55], [0.75, 0.25]])


def test_the_weight_of_special_tokens_is_given_to_the_others_and_told() -> None:
    weights = np.array([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.2, 0.0, 0.8]]])
    found = table(
        Given(weights),
        _asked(_tokens([0, 1, 2]), 1, words=False, without_special=True),
        exact=True,
        same=True,
        shown=slice(0, 3),
    )
    assert found.values is not None
    np.testing.assert_allclose(found.values, [[np.nan, 0.5, 0.5], [np.nan] * 3, [np.nan, 0.0, 1.0]])
    assert found.left_out == pytest.approx((0.5 + 1.0 + 0.2) / 3)
    np.testing.assert_array_equal(np.isnan(found.entropy), [False, True, False])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 7), st.integers(1, 7), st.integers(1, 5))
def test_a_pooled_map_has_the_maximum_and_the_total_of_the_matrix(
    rows: int, columns: int, down: int, across: int, largest: int
) -> None:
    """INSPECT trap: the overview's maximum is the matrix's, the mean map's total is the number of rows."""
    draws = np.random.default_rng(rows * 31 + columns)
    values = np.where(draws.random((rows, columns)) < 0.3, np.nan, draws.random((rows, columns)))
    found = pooled(values, down, across)
    smaller = coarser(found, largest)
    assert max(smaller.maximum.shape) <= largest
    for map_ in (found, smaller, pooled(values, smaller.down, smaller.across)):
        assert np.nanmax(map_.maximum, initial=0.0) == np.nanmax(values, initial=0.0)
        assert np.nansum(map_.mean * map_.areas) == pytest.approx(np.nansum(values))
        assert map_.areas.sum() == values.size
    once = pooled(values, smaller.down, smaller.across)
    np.testing.assert_array_equal(smaller.maximum, once.maximum)
    np.testing.assert_allclose(smaller.mean, once.mean, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_a_table_read_in_blocks_is_the_table(causal: bool) -> None:
    time = 300
    matrices = _drawn(1, 2, time, causal=causal)
    mean = matrices.mean(axis=0)
    found = table(
        Given(matrices), _asked(_tokens([9] * time), 2, words=False), exact=True, same=True, shown=slice(0, time)
    )
    assert found.values is not None
    np.testing.assert_allclose(found.values, mean)
    np.testing.assert_allclose(found.entropy, -np.nansum(mean * np.log(np.where(mean > 0, mean, 1.0)), axis=1))
    np.testing.assert_allclose(found.received, np.nansum(mean, axis=0))
    away = np.abs(np.subtract.outer(np.arange(time), np.arange(time))) > 1
    best = found.links[0]
    assert best.weight == pytest.approx(np.nanmax(np.where(away, mean, 0.0)))
    assert mean[best.row, best.column] == best.weight


def test_entropy_is_zero_for_one_key_and_the_logarithm_for_an_even_look() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [np.nan, np.nan, np.nan]])
    np.testing.assert_allclose(entropy_of(rows), [0.0, np.log(3), np.nan], atol=1e-12)
