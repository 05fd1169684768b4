"""The best paths through the lattice of a tagger, and how sure the model is of a span.

best paths   b_t[j, k] is the k-th best score of a path that ends in tag j at t: the best of all b_{t-1}[i, k'] +
             between[i, j], of which `count` are kept for each tag. With one it is Viterbi's recursion.
spans        P(tags y_s..y_e, and no tag at e + 1 that would go on) = Z of the paths that do so / Z of all paths
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.operators import crf

EXCLUDED = -1e30  # a score that no path can make up for, and whose exponential is zero


class Path(NamedTuple):
    """A sequence of tags and what it scores."""

    tags: tuple[int, ...]
    score: float


@torch.no_grad()
def best_paths(scores: Tensor, moves: crf.Transitions, count: int) -> tuple[Path, ...]:
    """The `count` best legal paths through scores [T,K], the best first; fewer where there are no more."""
    start, between, end = moves.filled(-torch.inf, scores.dtype)
    best = (start + scores[0])[:, None]  # [K,k]
    origins = []
    for element in scores[1:]:
        arriving = (best[:, :, None] + between[:, None, :]).flatten(0, 1)  # [K*k,K]
        top, origin = arriving.topk(min(count, len(arriving)), dim=0)
        origins.append((origin, best.shape[1]))
        best = element[:, None] + top.T
    ended = (best + end[:, None]).flatten()
    values, places = ended.topk(min(count, len(ended)))
    width = best.shape[1]
    found = zip(values.tolist(), places.tolist(), strict=True)
    return tuple(Path(_back(origins, place, width), value) for value, place in found if value > -torch.inf)


def _back(origins: list[tuple[Tensor, int]], place: int, width: int) -> tuple[int, ...]:
    """The tags on the way to a place among tags x ranks, followed back."""
    path = [place // width]
    for origin, before in reversed(origins):
        came = int(origin[place % width, place // width])
        path.append(came // before)
        place, width = came, before
    return tuple(reversed(path))


class Span(NamedTuple):
    """Elements start..stop with their tags, and the tags that would make the span longer."""

    start: int
    stop: int
    tags: tuple[int, ...]
    longer: tuple[int, ...]


@torch.no_grad()
def span_probabilities(scores: Tensor, moves: crf.Transitions, spans: Sequence[Span]) -> list[float]:
    """How likely each span is, exactly so, among all paths through scores [T,K].

    What all paths to an element and all paths from it score is summed up once, whatever the number of spans.
    """
    wide = scores.double()  # sums over thousands of elements, of which a difference is taken
    between = moves.filled(EXCLUDED, wide.dtype)
    before, behind = _sums(wide, between)
    every = torch.logsumexp(before[-1] + between[2], dim=0)
    found = [_inside(wide, between[1], before, behind, span) - every for span in spans]
    return [min(1.0, math.exp(float(one))) for one in found]


def _sums(scores: Tensor, moves: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """[T,K] log of the sum over all paths that end in a tag, itself counted; [T,K] over all that go on behind it."""
    start, between, end = moves
    before, behind = [start + scores[0]], [end]
    for element in scores[1:]:
        before.append(element + torch.logsumexp(before[-1][:, None] + between, dim=0))
    for element in scores[1:].flip(0):
        behind.append(torch.logsumexp(between + (element + behind[-1]), dim=1))
    return torch.stack(before), torch.stack(behind[::-1])


def _inside(scores: Tensor, between: Tensor, before: Tensor, behind: Tensor, span: Span) -> Tensor:
    """log of the sum over all paths that have the span and do not go on with it."""
    tags = torch.tensor(span.tags, device=scores.device)
    places = torch.arange(span.start + 1, span.stop, device=scores.device)
    way = before[span.start, tags[0]] + (between[tags[:-1], tags[1:]] + scores[places, tags[1:]]).sum()
    if span.stop == len(scores):
        return way + behind[-1, tags[-1]]
    following = between[tags[-1]] + scores[span.stop] + behind[span.stop]
    following[list(span.longer)] = EXCLUDED
    return way + torch.logsumexp(following, dim=0)
