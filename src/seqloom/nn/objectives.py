"""Objectives of embedding models: losses on the vectors of texts, pairs and triples.

    Padded              a text, which is read twice
    Both                two texts
    Triple              anchor, positive, negative

`Read` is any function from texts to vectors [B,D]: the model, for all rows or in chunks. Every row has weight 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.config.models import ContrastConfig, RankConfig, TripletConfig, ViewsConfig
from seqloom.nn.ops import objectives as losses
from seqloom.nn.types import Both, Loss, Padded, Triple
from seqloom.text.special_tokens import COUNT

Read = Callable[[Padded], Tensor]
Together = Padded | Both | Triple


class ObjectiveLoss(NamedTuple):
    """The loss of each row of a batch, its cosine similarity, and whether the matching text is the nearest."""

    losses: Tensor  # [B]
    cosines: Tensor  # [B] of the first two texts
    correct: Tensor  # [B] true if the second text is the nearest; for triples, if it is nearer than the third

    @property
    def loss(self) -> Loss:
        """The summed loss; every row weighs 1."""
        return Loss(self.losses.sum(), self.losses.new_tensor(float(len(self.losses))))


class Objective(ABC):
    """A loss on the vectors of a batch."""

    @abstractmethod
    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        """The losses of a batch; scores [B] are for scored pairs only."""


class RowObjective(Objective):
    """An objective whose loss of a row depends only on that row, so that a batch can be split into micro-batches."""


class Contrast(Objective):
    """(l(x,y) + l(y,x)) / 2, with l the cross-entropy of finding the matching text."""

    def __init__(self, config: ContrastConfig | ViewsConfig) -> None:
        self.temperature = config.temperature

    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        sides = (texts, texts) if isinstance(texts, Padded) else texts
        return self.of(tuple(map(read, sides)), sides)

    def of(self, vectors: tuple[Tensor, ...], texts: tuple[Padded, ...]) -> ObjectiveLoss:
        """The losses of vectors, given their texts."""
        (first, second, *others), settings = vectors, {"temperature": self.temperature}
        excluded = related(texts[0], texts[1], texts[1])
        back = losses.contrast(second, first, excluded.T, **settings)
        candidates = torch.cat([second, *others])
        taboo = torch.cat([excluded, *(related(texts[0], texts[1], negative) for negative in texts[2:])], dim=1)
        there = losses.contrast(first, candidates, taboo, **settings)
        near = losses.paired_cosines(first, second)
        if others:
            return ObjectiveLoss((there + back) / 2, near, near > losses.paired_cosines(first, others[0]))
        return ObjectiveLoss((there + back) / 2, near, _nearest(losses.cosines(first, second), taboo))


class Views(Contrast):
    """Contrast of a text with a copy of itself in which some tokens are dropped."""

    def __init__(self, config: ViewsConfig) -> None:
        super().__init__(config)
        self.left_out = config.left_out

    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        assert isinstance(texts, Padded), "the task has checked it"
        draws = torch.rand(texts.values.shape, device=texts.values.device) if self.left_out else None
        second = texts if draws is None else thinned(texts, draws, self.left_out)
        return self.of((read(texts), read(second)), (texts, texts))


class ScoredCosine(RowObjective):
    """(cos(x,y) - score)^2."""

    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        near = _cosines_of(read, texts)
        return ObjectiveLoss((near - scores).square(), near, torch.ones_like(near, dtype=torch.bool))


class Rank(Objective):
    """Ranks cosine similarities by the scores: one loss for the complete batch, divided among its rows."""

    def __init__(self, config: RankConfig) -> None:
        self.scale = config.scale

    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        near = _cosines_of(read, texts)
        return ObjectiveLoss(losses.rank(near, scores, scale=self.scale), near, torch.ones_like(near, dtype=torch.bool))


class Triplet(Objective):
    """[m - cos(a,p) + cos(a,n)]+ + [m - cos(a,p) + max cos(a,other)]+ over the other texts of the batch."""

    def __init__(self, config: TripletConfig) -> None:
        self.margin = config.margin

    def __call__(self, read: Read, texts: Together, scores: Tensor) -> ObjectiveLoss:
        assert isinstance(texts, Triple), "the task has checked it"
        anchor, positive, negative = map(read, texts)
        near, far = losses.paired_cosines(anchor, positive), losses.paired_cosines(anchor, negative)
        own = torch.eye(len(near), dtype=torch.bool, device=near.device)
        excluded = [related(texts.anchor, texts.positive, candidate) | own for candidate in texts[1:]]
        other = losses.hardest(losses.cosines(anchor, torch.cat([positive, negative])), torch.cat(excluded, dim=1))
        hinges = [losses.hinge(near, one, margin=self.margin) for one in (far, other)]
        return ObjectiveLoss(hinges[0] + hinges[1], near, near > far)


def equal_texts(first: Padded, second: Padded) -> Tensor:
    """[B,C] whether two rows are the same tokens; compared column by column to save memory."""
    equal = first.lengths[:, None] == second.lengths[None, :]
    for column in range(min(first.values.shape[1], second.values.shape[1])):
        equal = equal & (first.values[:, column, None] == second.values[None, :, column])
    return equal


def related(anchor: Padded, positive: Padded, candidate: Padded) -> Tensor:
    """[B,C] whether a candidate is not a negative of an anchor: it is the same text, or matches it in some row."""
    rows, belonging = equal_texts(anchor, anchor), equal_texts(positive, candidate)  # [i,k], [k,j]
    return equal_texts(anchor, candidate) | (rows.float() @ belonging.float() > 0)


def _nearest(similarities: Tensor, excluded: Tensor) -> Tensor:
    """[B] whether the text of the same row has the largest cosine of all that are not excluded."""
    own = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
    return similarities.diagonal() > losses.hardest(similarities, excluded | own)


def _cosines_of(read: Read, texts: Together) -> Tensor:
    assert isinstance(texts, Both), "the task has checked it"
    return losses.paired_cosines(read(texts.first), read(texts.second))


def thinned(tokens: Padded, draws: Tensor, left_out: float) -> Padded:
    """Return the rows without the ordinary tokens whose draw [B,T] is below `left_out`; at least one stays.

    >>> text = Padded.of(torch.tensor([[7, 8, 9]]))
    >>> thinned(text, torch.tensor([[0.9, 0.1, 0.5]]), 0.3).values.tolist()
    [[7, 9, 0]]
    """
    ordinary = tokens.valid & (tokens.values >= COUNT)
    likeliest = draws.masked_fill(~ordinary, -1.0).amax(dim=1, keepdim=True)
    kept = tokens.valid & (~ordinary | (draws >= left_out) | (draws == likeliest))
    order = (~kept).to(torch.int8).argsort(dim=1, stable=True)  # kept tokens in order, then the others
    return Padded(tokens.values, kept.sum(dim=1)).with_values(tokens.values.gather(1, order))
