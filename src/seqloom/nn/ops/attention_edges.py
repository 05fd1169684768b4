"""Attention over edges, with one score per edge: O(E d). The result equals `plain` with the same mask.

The rows of a batch become one large graph without edges between rows, so that each row can have a different graph:

    row 0: 0-1    row 1: 0-2    of three nodes each    ──▶    0-1, 3-5
"""

import torch
from torch import Tensor

from seqloom.nn.ops.attention import Kernel, Request
from seqloom.nn.ops.masks import Edges, Neighbors, Padding
from seqloom.nn.ops.relations import NoBias
from seqloom.nn.ops.scores import Additive

_SPARSE = 200  # with more pairs of nodes per edge, a dense matrix is slower (measured on a CPU)


def _edges_refuses(request: Request) -> str | None:
    parts = request.mask.parts()
    graphs = sum(isinstance(part, Edges | Neighbors) for part in parts)
    if graphs != 1 or not all(isinstance(part, Edges | Neighbors | Padding) for part in parts):
        return "the mask is not a single edge list, with or without padding"
    if not request.aligned:
        return "queries and keys are not the same nodes"
    if not isinstance(request.bias, NoBias) or request.dropout > 0:
        return "it supports neither a bias nor dropout of attention weights"
    return None


def _edges_declines(request: Request) -> str | None:
    """Return a reason against this kernel for graphs of a batch that are small or have many edges."""
    graph, time = _graph(request), request.query.shape[2]
    if isinstance(graph, Edges) or time * time > _SPARSE * (graph.pairs.shape[1] + time):
        return None
    return f"with fewer than {_SPARSE} pairs of nodes for each edge, a dense mask is faster"


def _graph(request: Request) -> Edges | Neighbors:
    (graph,) = (part for part in request.mask.parts() if isinstance(part, Edges | Neighbors))
    return graph


def _pairs(request: Request) -> Tensor:
    """[E,2] all edges of the batch without duplicates: the reading and the read position, numbered over all rows."""
    graph, (batch, _, time, _) = _graph(request), request.query.shape
    rows = time * torch.arange(batch, device=request.query.device)[:, None, None]
    if isinstance(graph, Edges):
        pairs = (graph.pairs[(graph.pairs < time).all(dim=1)] + rows).flatten(0, 1)
    else:
        loops = torch.arange(batch * time, device=request.query.device)[:, None].expand(-1, 2)
        pairs = torch.cat([(graph.pairs + rows)[(graph.pairs >= 0).all(dim=2)], loops])
    if any(isinstance(part, Padding) for part in request.mask.parts()):
        pairs = pairs[request.key_places.valid.flatten()[pairs[:, 1]]]
    found: Tensor = torch.unique(pairs, dim=0)  # duplicate edges count once
    return found


def _edges(request: Request) -> Tensor:
    batch, heads, time = request.query.shape[:3]
    shared, valid = request.shared, request.key_places.valid
    once = _pairs(request) if shared is None else shared.once(("pairs", request.mask, valid), lambda: _pairs(request))
    reader, read = once.unbind(dim=1)  # [E] query, [E] key
    query, key, value = (_in_one(tensor)[:, places] for tensor, places in _taken(request, reader, read))  # [H,E,D]
    if isinstance(request.score, Additive):
        inner = torch.tanh(query @ request.score.query_weight + key @ request.score.key_weight)
        scores = torch.einsum("hea,ha->he", inner, request.score.direction)
    else:
        scores = (request.score.prepare(query) * key).sum(dim=-1)  # [H,E]
    rows = reader.expand_as(scores)
    peak = scores.new_full((heads, batch * time), torch.finfo(scores.dtype).min)
    peak = peak.scatter_reduce(-1, rows, scores.detach(), "amax")
    mass = (scores - peak.gather(-1, rows)).exp()
    total = mass.new_zeros(heads, batch * time).scatter_add(-1, rows, mass)
    share = mass / total.gather(-1, rows)
    exact = torch.promote_types(value.dtype, torch.float32)  # in bfloat16, a sum over many edges would stop growing
    output = torch.zeros(heads, batch * time, value.shape[2], dtype=exact, device=value.device)
    output = output.index_add(1, reader, (share[..., None] * value).to(exact)).to(value.dtype)
    return output.view(heads, batch, time, -1).transpose(0, 1)


def _taken(request: Request, reader: Tensor, read: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(request.query, reader), (request.key, read), (request.value, read)]


def _in_one(tensor: Tensor) -> Tensor:
    """[B,H,T,D] as [H,B*T,D], with the rows of the batch one after another."""
    return tensor.transpose(0, 1).flatten(1, 2)


EDGES = Kernel("edges", _edges_refuses, _edges_declines, _edges)
