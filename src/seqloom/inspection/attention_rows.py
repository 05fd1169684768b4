"""Rows of attention, recomputed from what a layer was asked while its own pass stays fused.

    attention           softmax of scores, masks and biases: the plain operator on the asked queries of one head
    linear attention    a_ij = phi(q_i) . phi(k_j) / sum: the matrix that it implies and never holds
    attention pooling   one row over the elements

Only the asked rows of the asked head are made, so memory stays flat at any length. Weights are those before dropout; a
cell that the mask forbids is NaN, and so is every cell of a query that may read nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from seqloom.layouts import Places
from seqloom.operators.attention import Request, weights
from seqloom.operators.linear_attention import Asked
from seqloom.operators.masks import dense
from seqloom.operators.relations import Alibi, Bias, Buckets
from seqloom.operators.scores import Additive, Bilinear, Score

MOST_CELLS = 2**22  # of an additive score at once: it holds a vector for each pair of a query and a key


class AttentionRows(ABC):
    """The attention of one layer to one example, of which any row can be had."""

    num_heads: int
    num_queries: int
    num_keys: int

    @abstractmethod
    def weights(self, head: int, asked: slice) -> Tensor:
        """[R,S] the weights of the asked queries in one head, NaN where the mask forbids."""

    def mean(self, heads: tuple[int, ...], asked: slice) -> Tensor:
        """The same as a mean over heads, of which one at a time is held."""
        total = self.weights(heads[0], asked)
        for head in heads[1:]:
            total = total + self.weights(head, asked)
        return total / len(heads)


class SoftmaxRows(AttentionRows):
    """Those of self-attention, cross-attention and recurrent attention."""

    def __init__(self, request: Request) -> None:
        self.request = request
        _, self.num_heads, self.num_queries, _ = request.query.shape
        self.num_keys = request.key.shape[2]

    def weights(self, head: int, asked: slice) -> Tensor:
        mine = one_head(self.request, head, asked)
        count, each = mine.query.shape[2], self._rows_at_once()
        return torch.cat([_softmax(mine.rows(at, min(at + each, count))) for at in range(0, count, each)])

    def _rows_at_once(self) -> int:
        inner = self.request.score.direction.shape[1] if isinstance(self.request.score, Additive) else 1
        return max(1, MOST_CELLS // max(1, inner * self.num_keys))


class LinearRows(AttentionRows):
    """Those that linear attention implies."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        _, self.num_heads, self.num_queries, _ = asked.query.shape
        self.num_keys = asked.key.shape[2]

    def weights(self, head: int, asked: slice) -> Tensor:
        mine = one_linear_head(self.asked, head, asked)
        allowed = dense(mine.mask, mine.query_places, mine.key_places)[0, 0]
        return mine.weights()[0, 0].masked_fill(~allowed, torch.nan)


class PooledRows(AttentionRows):
    """The one row of attention pooling."""

    num_heads = num_queries = 1

    def __init__(self, pooled: Tensor) -> None:
        self.pooled = pooled  # [B,S]
        self.num_keys = pooled.shape[1]

    def weights(self, head: int, asked: slice) -> Tensor:
        return self.pooled[:1][asked]


OFFERED: Mapping[type, Callable[[Any], AttentionRows]] = {Request: SoftmaxRows, Asked: LinearRows, Tensor: PooledRows}


def rows_of(offered: Request | Asked | Tensor) -> AttentionRows:
    """The rows of what a tap named `weights` offers, of the first example of its batch."""
    return OFFERED[type(offered)](offered)


def one_head(request: Request, head: int, asked: slice) -> Request:
    """The same request for the asked queries of one head alone; what all heads share stays as it is."""
    mine = slice(head, head + 1)
    return request._replace(
        query=request.query[:1, mine, asked],
        key=request.key[:1, mine],
        value=request.value[:1, mine],
        query_places=_first(request.query_places, asked),
        key_places=_first(request.key_places),
        score=_score_of(request.score, mine),
        bias=_bias_of(request.bias, mine),
        aligned=False,
        shared=None,
    )


def one_linear_head(request: Asked, head: int, asked: slice) -> Asked:
    """The same for linear attention."""
    mine = slice(head, head + 1)
    return request._replace(
        query=request.query[:1, mine, asked],
        key=request.key[:1, mine],
        query_places=_first(request.query_places, asked),
        key_places=_first(request.key_places),
        before=request.before[:1, mine],
    )


def _softmax(request: Request) -> Tensor:
    allowed = dense(request.mask, request.query_places, request.key_places)[0, 0]
    return weights(request)[0, 0].masked_fill(~allowed, torch.nan)


def _first(places: Places, asked: slice = slice(None)) -> Places:
    """The places of the first example."""
    return Places(*(field[:1, asked] for field in places))


def _score_of(score: Score, mine: slice) -> Score:
    if isinstance(score, Bilinear | Additive):
        return type(score)(*(part[mine] for part in score))
    return score


def _bias_of(bias: Bias, mine: slice) -> Bias:
    if isinstance(bias, Alibi):
        return Alibi(bias.slopes[mine])
    return bias._replace(table=bias.table[:, mine]) if isinstance(bias, Buckets) else bias
