"""Why is this attention weight high? The product of query and key, by dimension and by term.

    dot, scaled dot, bilinear    e_ij = sum_d q'_id k_jd + bias(i, j)           q' the query as the score prepares it
    additive                     e_ij = sum_d u_d tanh(W_q q_i + W_k k_j)_d + bias(i, j)
    linear attention             m_ij = sum_d phi(q_i)_d phi(k_j)_d             a_ij = m_ij / sum_j' m_ij', no softmax

    logit = content + position    position is the term of the distance: a bias (ALiBi, T5), a vector (Shaw), or the
                                  effect of the rotation (rotary)

Position embeddings that are added to the inputs are part of query and key and cannot be separated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspect.attention_weights import (
    AttentionLayer,
    AttentionRows,
    LinearRows,
    SoftmaxRows,
    chosen_heads,
    chosen_layer,
    chosen_token,
    heard,
    layers_of,
    one_head,
    one_linear_head,
)
from seqloom.inspect.head_view import snippet
from seqloom.inspect.layer_names import chosen_title
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import SMALL, View
from seqloom.nn.heads import Pooler
from seqloom.nn.mixers.attention import Relation
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.linear_attention import feature
from seqloom.nn.ops.relations import NoBias, Shaw, rotate
from seqloom.nn.ops.scores import Additive
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import number

MOST_KEYS = 16
MOST_DIMENSIONS = 16
BINS = 24


class Parts(NamedTuple):
    """One query against all keys."""

    products: Tensor  # [S,D] by dimension; they sum to the content, with rotary to the logit
    content: Tensor  # [S]
    position: Tensor  # [S]
    weights: Tensor  # [S] NaN where masked


@dataclass(frozen=True, kw_only=True)
class QueryKeyView(View):
    """The terms of a logit for every key of one query, and its dimensions for the strongest keys."""

    kind: ClassVar[str] = "query_key"
    layer: str
    head: int
    row: int
    token: str
    columns: tuple[str, ...]
    keys: tuple[int, ...]  # keys whose dimensions are kept: the strongest first, or the requested one
    products: np.ndarray  # [keys,D]
    content: np.ndarray  # [S]
    position: np.ndarray  # [S] zero if the model has no relative positions
    logit: np.ndarray  # [S]
    weights: np.ndarray  # [S] NaN where masked
    separated: str  # how content and position were separated

    def figures(self) -> tuple[Figure, ...]:
        if len(self.columns) <= SMALL:
            return self._terms(), self._dimensions()
        known = self.logit[~np.isnan(self.weights)]
        counts, edges = np.histogram(known, bins=BINS)
        labels = [f"{low:.2f} to {high:.2f}" for low, high in pairwise(edges)]
        title = f"Logits of all {len(known):,} keys"
        spread = Bars(title=title, labels=labels, values=[float(count) for count in counts], x_label="keys")
        return self._terms(), self._dimensions(), spread

    def _sentences(self) -> tuple[str, ...]:
        best = self.keys[0]
        key, weight = f"'{self.columns[best]}' ({best})", number(self.weights[best])
        start = f"'{self.token}' ({self.row}) attends to {key} with weight {weight}"
        terms = f"{number(self.content[best])} from content and {number(self.position[best])} from position"
        return f"{start}: logit {number(self.logit[best])}, {terms}.", self.separated

    def _name(self, key: int) -> str:
        return f"{key}: {self.columns[key] if len(self.columns) <= SMALL else snippet(self.columns, key)}"

    def _terms(self) -> Figure:
        table = np.stack([self.content, self.position, self.logit, self.weights], axis=1)
        return Matrix(
            title=f"{self.title}: the strongest keys",
            rows=[self._name(key) for key in self.keys],
            columns=["content", "position", "logit", "weight"],
            values=table[list(self.keys)].tolist(),
            y_label="key",
        )

    def _dimensions(self) -> Figure:
        key, products = self.keys[0], self.products[0]
        order = np.argsort(-np.abs(products), kind="stable")
        shown, rest = order[:MOST_DIMENSIONS], order[MOST_DIMENSIONS:]
        labels = [f"dimension {dimension}" for dimension in shown]
        values = [float(products[dimension]) for dimension in shown]
        if len(rest):
            labels, values = [*labels, f"the other {len(rest)}"], [*values, float(products[rest].sum())]
        title = f"Query '{self.token}' x key '{self.columns[key]}' ({key}), by dimension"
        caption = f"Sum: {number(products.sum())}."
        return Bars(title=title, labels=labels, values=values, x_label="query x key", caption=caption)


def query_key(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int = 0,
    token: int | str | None = None,
    key: int | str | None = None,
    side: str | None = None,
) -> QueryKeyView:
    """The logits of one query, split into content and position, and by dimension for the strongest keys.

    Args:
        layer: Number or path of an attention layer (default: the last).
        head: Number of the head.
        token: The query, by its number or its text (default: the last token).
        key: Only this key, by its number or its text.
        side: The sequence that the queries belong to: source or target, first or second.
    """
    layers = layers_of(subject, reading, side)
    # Numbers count only layers with keys, which attention pooling does not have
    keyed = [each for each in layers if not isinstance(subject.model.get_submodule(each.path), Pooler)]
    offered = layers if isinstance(layer, str) or not keyed else keyed
    picked = chosen_layer(offered, layer)
    named = chosen_title(picked.path, [each.path for each in offered])
    at = chosen_token(picked.queries, -1 if token is None else token)
    only = None if key is None else chosen_token(picked.keys, key)
    relation = getattr(subject.model.get_submodule(picked.path), "relation", None)
    turned = isinstance(relation, Relation) and relation.position == "rotary"

    def take(_: AttentionLayer, rows: AttentionRows) -> tuple[int, Parts, str]:
        (only_head,) = chosen_heads(picked, rows.num_heads, head)
        if type(rows) not in SPLITS:
            raise ConfigError(f"{picked.path} is attention pooling, which has no keys", fix="choose an attention layer")
        return only_head, SPLITS[type(rows)](rows, only_head, at, turned), _separation(rows, turned)

    ((chosen, parts, separated),) = heard(subject, reading, [picked], take)
    products, content, position, weights = (part.double().cpu().numpy() for part in parts)
    order = np.argsort(-np.nan_to_num(weights, nan=-1.0), kind="stable")
    best = [int(place) for place in order[:MOST_KEYS] if not np.isnan(weights[place])]
    keys = (best or [0]) if only is None else [only]
    return QueryKeyView(
        title=f"Query {at} '{picked.rows[at]}' in {named}, head {chosen}",
        layer=picked.path,
        head=chosen,
        row=at,
        token=picked.rows[at],
        columns=picked.columns,
        keys=tuple(keys),
        products=products[keys],
        content=content,
        position=position,
        logit=content + position,
        weights=weights,
        separated=separated,
    )


def _softmax_parts(rows: SoftmaxRows, head: int, at: int, turned: bool) -> Parts:
    request = one_head(rows.request, head, slice(at, at + 1))
    products = _products(request)
    total = products.sum(dim=-1)
    weights = rows.weights(head, slice(at, at + 1))[0]
    if turned:
        # Rotate queries and keys back to position 0
        query = rotate(request.query, -request.query_places.positions)
        unturned = request._replace(query=query, key=rotate(request.key, -request.key_places.positions))
        content = _products(unturned).sum(dim=-1)
        return Parts(products, content, total - content, weights)
    return Parts(products, total, _bias(request), weights)


def _products(request: Request) -> Tensor:
    """[S,D] the contribution of each dimension to the score of one query with every key."""
    score, query, key = request.score, request.query[0, 0], request.key[0, 0]
    if isinstance(score, Additive):
        inner = torch.tanh(query @ score.query_weight[0] + key @ score.key_weight[0])
        return inner * score.direction[0]
    return score.prepare(query[None, None])[0, 0] * key


def _bias(request: Request) -> Tensor:
    """[S] the bias of one query."""
    bias, places = request.bias, (request.query_places, request.key_places)
    if isinstance(bias, NoBias):
        return request.key.new_zeros(request.key.shape[2])
    if isinstance(bias, Shaw):
        assert not isinstance(request.score, Additive), "refused by the table of legal combinations"
        return bias.term(request.score.prepare(request.query), *places)[0, 0, 0]
    return bias.term(*places)[0, 0, 0]


def _linear_parts(rows: LinearRows, head: int, at: int, _turned: bool) -> Parts:
    mine = one_linear_head(rows.asked, head, slice(at, at + 1))
    products = feature(mine.query[0, 0]) * feature(mine.key[0, 0])
    content = products.sum(dim=-1)
    return Parts(products, content, torch.zeros_like(content), rows.weights(head, slice(at, at + 1))[0])


SPLITS: Mapping[type[AttentionRows], Callable[..., Parts]] = {SoftmaxRows: _softmax_parts, LinearRows: _linear_parts}


def _separation(rows: AttentionRows, turned: bool) -> str:
    if turned:
        return "Rotary positions: content is q . k without rotation, position is what the rotation changes."
    bias = rows.request.bias if isinstance(rows, SoftmaxRows) else NoBias()
    if isinstance(bias, NoBias):
        return "No position term: position embeddings of the inputs, if any, are part of query and key."
    return f"Position is the bias that {type(bias).__name__} adds for the distance."
