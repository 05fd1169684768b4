"""Attention scores: how well a query matches a key.

    dot         e = q . k                      Luong et al. 2015; deck E, "Attention in a Seq2Seq NMT model"
    scaled dot  e = q . k / sqrt(d)            Vaswani et al. 2017; the variance of q . k is d, so this one's is 1
    bilinear    e = q W k                      Luong et al. 2015 ("general")
    additive    e = u . tanh(W [q; k])         Bahdanau et al. 2015; W [q; k] is W_q q + W_k k

The first three are dot products of the keys with a prepared query, so one fused kernel computes all three.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Dot(NamedTuple):
    """e = q . k."""

    def prepare(self, query: Tensor) -> Tensor:
        """The query whose dot product with a key is the score."""
        return query


class ScaledDot(NamedTuple):
    """e = q . k / sqrt(d), with d the width of a head."""

    def prepare(self, query: Tensor) -> Tensor:
        """The query whose dot product with a key is the score."""
        scaled: Tensor = query * query.shape[-1] ** -0.5
        return scaled


class Bilinear(NamedTuple):
    """e = q W k, one W per head."""

    weight: Tensor  # [H,D,D]

    def prepare(self, query: Tensor) -> Tensor:
        """The query whose dot product with a key is the score."""
        return query @ self.weight


class Additive(NamedTuple):
    """e = u . tanh(W_q q + W_k k), one triple per head."""

    query_weight: Tensor  # [H,D,A]
    key_weight: Tensor  # [H,D,A]
    direction: Tensor  # [H,A], the u of the formula

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """[B,H,T,S]; it holds a vector of width A for every pair, so its memory is T x S x A."""
        left = (query @ self.query_weight)[:, :, :, None, :]  # [B,H,T,1,A]
        right = (key @ self.key_weight)[:, :, None, :, :]  # [B,H,1,S,A]
        return torch.einsum("bhtsa,ha->bhts", torch.tanh(left + right), self.direction)


DotLike = Dot | ScaledDot | Bilinear
Score = DotLike | Additive


def scaled(scoring: DotLike, query: Tensor) -> tuple[Tensor, float]:
    """Return a query and a factor whose product is the prepared query. Fused kernels apply the factor themselves."""
    if isinstance(scoring, ScaledDot):
        return query, query.shape[-1] ** -0.5
    return scoring.prepare(query), 1.0


def score(scoring: Score, query: Tensor, key: Tensor) -> Tensor:
    """The score of every query with every key, [B,H,T,S]."""
    if isinstance(scoring, Additive):
        return scoring.score(query, key)
    return scoring.prepare(query) @ key.transpose(-1, -2)
