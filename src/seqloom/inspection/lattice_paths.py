"""The best paths through the lattice of a tagger, and how sure the model is of a span.

best paths   b_t[j, k] is the k-th best score of a path that ends in tag j at t: the best of all b_{t-1}[i, k'] +
             between[i, j], of which `count` are kept for each tag. With one it is Viterbi's recursion.
spans        P(tags y_s..y_e, and no tag at e + 1 that would go on) = Z of the paths that do so / Z of all paths
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.operators import crf

EXCLUDED = -1e30  # a score that no path can make up for, and whose exponential is zero
TOGETHER = 64  # spans whose paths are summed up at once


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
    """How likely each span is, exactly so, among all paths through scores [T,K]."""
    wide = scores.double()  # sums over thousands of elements, of which a difference is taken
    every = _log_partition(wide[None], moves)
    groups = (spans[at : at + TOGETHER] for at in range(0, len(spans), TOGETHER))
    found = (torch.stack([_only(wide, span) for span in group]) for group in groups)
    return [float(one) for rows in found for one in (_log_partition(rows, moves) - every).exp().clamp(max=1.0)]


def _log_partition(rows: Tensor, moves: crf.Transitions) -> Tensor:
    lengths = torch.full((len(rows),), rows.shape[1], device=rows.device)
    return crf.log_partition(rows, lengths, moves)


def _only(scores: Tensor, span: Span) -> Tensor:
    """[T,K] the scores, of which only paths with the span, no longer than it is, have any left."""
    kept = torch.ones_like(scores, dtype=torch.bool)
    kept[span.start : span.stop] = False
    kept[torch.arange(span.start, span.stop), list(span.tags)] = True
    if span.stop < len(scores):
        kept[span.stop, list(span.longer)] = False
    return scores.masked_fill(~kept, EXCLUDED)
