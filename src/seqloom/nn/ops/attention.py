"""Attention: a soft lookup table.

A lookup table returns the value whose key equals the query. Attention returns a mixture of all values, each weighted by
how well its key matches:

    e_ij = score(q_i, k_j) + bias(i, j)          for the j that the mask lets i read
    a_ij = exp(e_ij) / sum_j' exp(e_ij')         a distribution over the keys
    o_i  = sum_j a_ij v_j                        (deck A prints v_i here; it must be v_j)

With one-hot keys and a large scale the mixture becomes the exact lookup. `plain` below is the specification: it takes
every score, mask and bias, holds the T x S matrix of weights, and is quadratic in the length in time and in memory.
A query that may read nothing gets zero.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.ops.masks import Everything, Mask, dense
from seqloom.nn.ops.relations import Bias, NoBias, Shaw
from seqloom.nn.ops.scores import Additive, ScaledDot, Score, score
from seqloom.nn.types import Layout, Places


class Request(NamedTuple):
    """The input of an attention kernel: the tensors, their positions, the score, the mask and the bias."""

    query: Tensor  # [B,H,T,D]
    key: Tensor  # [B,H,S,D]
    value: Tensor  # [B,H,S,D]
    query_places: Places  # [B,T]
    key_places: Places  # [B,S]
    score: Score = ScaledDot()
    mask: Mask = Everything()
    bias: Bias = NoBias()
    dropout: float = 0.0  # of the weights; 0 keeps the fused kernels
    # Queries and keys are the elements of one sequence, and positions count up by one along the row, so that index
    # distance is distance; where positions restart (packed documents) the mask must contain Document().
    aligned: bool = False
    # The caller ignores queries that may read nothing (padding), or has zeroed the values there.
    heedless: bool = False
    shared: Layout | None = None  # the queries' layout: caches the dense mask for other layers with these keys

    def rows(self, start: int, stop: int) -> "Request":
        """Return the request for queries start..stop only."""
        return self._replace(
            query=self.query[:, :, start:stop],
            query_places=self.query_places.cut(start, stop),
            aligned=False,
            shared=None,
        )

    def keys(self, start: int, stop: int) -> "Request":
        """Return the request with keys start..stop only."""
        return self._replace(
            key=self.key[:, :, start:stop],
            value=self.value[:, :, start:stop],
            key_places=self.key_places.cut(start, stop),
            aligned=False,
            shared=None,
        )

    def tensors(self) -> list[Tensor]:
        """Return every tensor that may need a gradient, in the order that `refill` takes them."""
        extra = [part for value in (self.score, self.bias) for part in value if isinstance(part, Tensor)]
        return [self.query, self.key, self.value, *extra]

    def refill(self, tensors: Iterator[Tensor]) -> "Request":
        """Return the request with other tensors in place of those that `tensors` lists."""
        query, key, value = next(tensors), next(tensors), next(tensors)
        scoring, bias = _refill(self.score, tensors), _refill(self.bias, tensors)
        return self._replace(query=query, key=key, value=value, score=scoring, bias=bias)


Part = TypeVar("Part", bound=tuple[Any, ...])


def _refill(part: Part, tensors: Iterator[Tensor]) -> Part:
    return type(part)(*(next(tensors) if isinstance(field, Tensor) else field for field in part))


def weights(request: Request) -> Tensor:
    """Return the distribution of every query over the keys, [B,H,T,S]; zero where the mask forbids."""
    scores = score(request.score, request.query, request.key)
    if isinstance(request.bias, Shaw):
        assert not isinstance(request.score, Additive), "refused by the table of legal combinations"
        prepared = request.score.prepare(request.query)
        scores = scores + request.bias.term(prepared, request.query_places, request.key_places).to(scores.dtype)
    elif not isinstance(request.bias, NoBias):
        scores = scores + request.bias.term(request.query_places, request.key_places).to(scores.dtype)
    allowed = dense(request.mask, request.query_places, request.key_places)
    # The lowest finite number instead of -inf: a row that may read nothing then has no NaN to leak into gradients.
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill(~allowed, 0)


def plain(request: Request) -> Tensor:
    """Attention by its definition, [B,H,T,D]; quadratic in the length."""
    mixture = F.dropout(weights(request), request.dropout)
    output = mixture @ request.value
    if isinstance(request.bias, Shaw):
        output = output + request.bias.value_term(mixture, request.query_places, request.key_places)
    return output


class Kernel(NamedTuple):
    """One way to compute attention."""

    name: str
    refuses: Callable[[Request], str | None]  # the reason why it cannot, or None
    declines: Callable[[Request], str | None]  # the reason why another kernel is better, or None
    run: Callable[[Request], Tensor]


def never(_: Request) -> str | None:
    """Return None: no reason against this kernel."""
    return None


PLAIN = Kernel("plain", never, never, plain)
