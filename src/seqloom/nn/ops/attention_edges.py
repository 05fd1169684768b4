"""Attention over an edge list, one score per edge: O(E d). It equals `plain` under the same mask."""

import torch
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request, always
from seqloom.nn.ops.masks import Edges, Padding
from seqloom.nn.ops.relations import NoBias
from seqloom.nn.ops.scores import Additive


def _edges_refuses(request: Request) -> str | None:
    parts = request.mask.parts()
    if sum(isinstance(part, Edges) for part in parts) != 1 or not all(isinstance(p, Edges | Padding) for p in parts):
        return "the mask is not a single edge list, with or without padding"
    if not request.aligned:
        return "queries and keys are not the same nodes"
    if not isinstance(request.bias, NoBias) or request.dropout > 0:
        return "it supports neither a bias nor dropout of attention weights"
    return None


def _edges(request: Request) -> Tensor:
    (graph,) = (part for part in request.mask.parts() if isinstance(part, Edges))
    time = request.query.shape[2]
    pairs = torch.unique(graph.pairs, dim=0)  # an edge listed twice is one edge
    source, target = pairs[(pairs < time).all(dim=1)].unbind(dim=1)  # [E] query, [E] key
    query, key, value = request.query[:, :, source], request.key[:, :, target], request.value[:, :, target]
    if isinstance(request.score, Additive):
        inner = torch.tanh(query @ request.score.query_weight + key @ request.score.key_weight)
        scores = torch.einsum("bhea,ha->bhe", inner, request.score.direction)
    else:
        scores = (request.score.prepare(query) * key).sum(dim=-1)  # [B,H,E]
    read = torch.ones_like(request.key_places.valid[:, target])
    if any(isinstance(part, Padding) for part in request.mask.parts()):
        read = request.key_places.valid[:, target]
    scores = scores.masked_fill(~read[:, None], torch.finfo(scores.dtype).min)
    rows = source.expand_as(scores)
    peak = scores.new_full((*scores.shape[:2], time), torch.finfo(scores.dtype).min)
    peak = peak.scatter_reduce(-1, rows, scores.detach(), "amax")
    mass = (scores - peak.gather(-1, rows)).exp().masked_fill(~read[:, None], 0)
    total = mass.new_zeros(*mass.shape[:2], time).scatter_add(-1, rows, mass)
    share = mass / total.gather(-1, rows).clamp(min=torch.finfo(mass.dtype).tiny)
    output = value.new_zeros(*value.shape[:2], time, value.shape[3])
    return output.index_add(2, source, (share[..., None] * value).to(output.dtype))


EDGES = Kernel("edges", _edges_refuses, always, _edges)
