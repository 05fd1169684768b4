"""Rows of attention, recomputed from what a layer was asked while its own pass stays fused.

    attention           softmax of scores, masks and biases: the plain operator on the asked queries of one head
    linear attention    a_ij = phi(q_i) . phi(k_j) / sum: the matrix that it implies and never holds
    attention pooling   one row over the elements

Only the asked rows of the asked head are made, so memory stays flat at any length. Weights are those before dropout; a
cell that the mask forbids is NaN, and so is every cell of a query that may read nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.flow import still
from seqloom.inspect.layers import chosen, read_by, required
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.tokens import Token
from seqloom.nn.heads import Pooler
from seqloom.nn.layouts import Places
from seqloom.nn.mixers.contract import ConditionedMixer
from seqloom.nn.ops.attention import Request, weights
from seqloom.nn.ops.linear_attention import LinearQueries
from seqloom.nn.ops.masks import dense
from seqloom.nn.ops.relations import Alibi, Bias, Buckets
from seqloom.nn.ops.scores import Additive, Bilinear, Score
from seqloom.nn.taps import listening, taps

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

    def __init__(self, asked: LinearQueries) -> None:
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


OFFERED: Mapping[type, Callable[[Any], AttentionRows]] = {
    Request: SoftmaxRows,
    LinearQueries: LinearRows,
    Tensor: PooledRows,
}


def rows_of(offered: Request | LinearQueries | Tensor) -> AttentionRows:
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


def one_linear_head(request: LinearQueries, head: int, asked: slice) -> LinearQueries:
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


# -----------------------------------------------------------------------------
# Which layers of a model attend, from which tokens to which, and what they are asked while the model reads.
#
#     self-attention     the tokens of a side to the same tokens: those that are read, also of a decoder
#     cross-attention    the symbols of the target, each where it is said, to the tokens of the source
#     pooling            one row, to the tokens of a side
#
# A layer is named by its number among those that are meant, from 0, or by its path in the model.
# -----------------------------------------------------------------------------

TAP = ".weights"
MOST_NAMED = 12  # places of a token that stands in several

Taken = TypeVar("Taken")


class AttentionLayer(NamedTuple):
    """A layer that attends: what its rows and its columns stand for."""

    path: str
    side: str  # that the queries belong to
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    same: bool  # queries and keys are the same tokens
    call: int = 0  # how often the layer was used before in the same pass: 1 for the second of two texts

    @property
    def rows(self) -> tuple[str, ...]:
        """The queries as they are shown."""
        return tuple(token.text for token in self.queries)

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys as they are shown."""
        return tuple(token.text for token in self.keys)


def layers_of(subject: Subject, reading: Reading, side: str | None = None) -> tuple[AttentionLayer, ...]:
    """Every layer that attends, in the order of the model; those whose queries are of one side, if it is named.

    Of two texts that the same layers read, the first is meant.
    """
    wanted = None if side is None else reading.side(side).name
    if side is None and len({each.stack for each in reading.sides}) < len(reading.sides):
        wanted = reading.sides[0].name
    every = tuple(
        layer for name in taps(subject.model) if name.endswith(TAP) for layer in _uses(subject, reading, name)
    )
    required(every, subject.model, "attention", "none of its layers reads others by weights")
    found = tuple(layer for layer in every if wanted in (None, layer.side))
    if not found:
        there = ", ".join(dict.fromkeys(layer.side for layer in every))
        raise ConfigError(f"no layer of this model attends from the side '{side}'", fix=f"choose from {there}")
    return found


def _uses(subject: Subject, reading: Reading, name: str) -> Iterator[AttentionLayer]:
    path = name.removesuffix(TAP)
    owner = subject.model.get_submodule(path)
    if isinstance(owner, Pooler):
        if owner.how == "attention":
            for call, side in enumerate(reading.sides):
                yield AttentionLayer(path, side.name, (Token("pooled"),), side.tokens, same=False, call=call)
        return
    readers = [side for side in reading.sides if path.startswith(f"{side.stack}.")]
    for call, side in enumerate(readers):
        if isinstance(owner, ConditionedMixer):
            yield AttentionLayer(path, side.name, side.tokens, reading.sides[0].tokens, same=False, call=call)
        else:
            tokens = read_by(reading, side)
            yield AttentionLayer(path, side.name, tokens, tokens, same=True, call=call)


def chosen_layer(layers: Sequence[AttentionLayer], layer: int | str | None) -> AttentionLayer:
    """The layer of a number or a path; the last one if none is named."""
    asked = layer.removesuffix(TAP) if isinstance(layer, str) else layer
    return chosen({each.path: each for each in layers}, asked, "layers with attention")


def chosen_heads(layer: AttentionLayer, count: int, head: int | None) -> tuple[int, ...]:
    """The head of a number, or all of them."""
    if head is None:
        return tuple(range(count))
    if not 0 <= head < count:
        heads = f"{count} heads, 0 to {count - 1}" if count > 1 else "one head, 0"
        raise ConfigError(f"there is no head {head}: {layer.path} has {heads}", fix="choose one of them")
    return (head,)


def chosen_token(tokens: Sequence[Token], token: int | str) -> int:
    """The number of a token that is given by its number or its text; DataError where no or more than one fits."""
    if isinstance(token, int):
        if not -len(tokens) <= token < len(tokens):
            raise DataError(
                f"there is no token {token}: they are numbered from 0 to {len(tokens) - 1}", fix="choose one"
            )
        return token % len(tokens)
    places = [number for number, each in enumerate(tokens) if token in (each.text, each.text.strip())]
    if not places:
        raise DataError(f"no token reads '{token}'", fix=did_you_mean(token, {each.text for each in tokens}))
    if len(places) > 1:
        more = ", ..." if len(places) > MOST_NAMED else ""
        there = ", ".join(map(str, places[:MOST_NAMED])) + more
        raise DataError(f"'{token}' stands in {len(places)} places: {there}", fix="give the number of one of them")
    return places[0]


@torch.no_grad()
def heard(
    subject: Subject,
    reading: Reading,
    layers: Sequence[AttentionLayer],
    take: Callable[[AttentionLayer, AttentionRows], Taken],
) -> tuple[Taken, ...]:
    """What `take` makes of each layer, in one pass; it is called while the layer is at work, and no layer is kept."""
    wanted = {(layer.path, layer.call): layer for layer in layers}
    calls: dict[str, int] = {}
    taken: dict[tuple[str, int], Taken] = {}

    def listen(name: str, offered: object) -> None:
        path = name.removesuffix(TAP)
        use = path, calls.get(path, 0)
        calls[path] = use[1] + 1
        if use in wanted:
            taken[use] = take(wanted[use], rows_of(offered))  # type: ignore[arg-type]  # what taps of weights offer

    with still(subject.model), listening(subject.model, f"*{TAP}", listen):
        scores(subject, reading.inputs)
    return tuple(taken[layer.path, layer.call] for layer in layers)
