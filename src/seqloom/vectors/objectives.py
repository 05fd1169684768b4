"""Steps of skip-gram and CBOW with negative sampling, for many centers at a time (Mikolov et al. 2013).

v is the input vector of a word and u its output vector. Word w_t is the center, b its window, n_1 ... n_k noise words:

    skip-gram    J = - sum_{0 < |j| <= b} [ log s(u_{t+j} . v_t) + sum_k log s(-u_{n_k} . v_t) ]          s: sigmoid
    CBOW         J = - log s(u_t . h) - sum_k log s(-u_{n_k} . h)        h = mean of v_{t+j} over 0 < |j| <= b

A step is plain gradient descent on the sum over the centers of a batch. The noise words of a block are shared by its
centers: each counts k / BLOCK of a pair. The gradient of CBOW is divided by the number of words in h, which word2vec.c
forgets (Irsoy et al. 2021).
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.config.vectors import VectorMethod
from seqloom.vectors.tables import InputTable


class TensorBlocks(NamedTuple):
    """`WindowBlocks` as tensors; B blocks of T centers with C contexts and K noise words."""

    centers: Tensor  # [B,T]
    contexts: Tensor  # [B,C]
    in_window: Tensor  # [B,T,C] bool
    noise: Tensor  # [B,K]


class VectorTables(NamedTuple):
    """The vectors that are trained: v of the inputs, u of the outputs."""

    inputs: InputTable
    outputs: Tensor  # [V,D]


class VectorStep(Protocol):
    """Changes the tables by one step of gradient descent."""

    def __call__(self, tables: VectorTables, batch: TensorBlocks, *, negative: int, lr: float) -> None: ...


def skip_gram_step(tables: VectorTables, batch: TensorBlocks, *, negative: int, lr: float) -> None:
    """A step of skip-gram."""
    centers, split = batch.centers.flatten(), batch.contexts.shape[1]
    targets = torch.cat([batch.contexts, batch.noise], 1)  # [B,C+K]
    v = tables.inputs.take(centers).view(*batch.centers.shape, -1)  # [B,T,D]
    u = tables.outputs.index_select(0, targets.flatten()).view(*targets.shape, -1)  # [B,C+K,D]
    slope = torch.bmm(v, u.mT).sigmoid_().neg_()  # [B,T,C+K]: y - s(u.v), with y = 1 for a context, 0 for noise
    slope[..., :split].add_(1.0).mul_(batch.in_window)
    pairs = batch.in_window.sum(2, keepdim=True)  # [B,T,1]
    slope[..., split:].mul_(pairs * (negative / batch.noise.shape[1]))
    slope.mul_(lr)
    tables.inputs.add(centers, torch.bmm(slope, u).flatten(0, 1))
    tables.outputs.index_add_(0, targets.flatten(), torch.bmm(slope.mT, v).flatten(0, 1))


def cbow_step(tables: VectorTables, batch: TensorBlocks, *, negative: int, lr: float) -> None:
    """A step of CBOW; a center without neighbors has none."""
    centers, contexts, noise = batch.centers.flatten(), batch.contexts.flatten(), batch.noise.flatten()
    pairs = batch.in_window.sum(2, keepdim=True)  # [B,T,1]
    weights = batch.in_window / pairs.clamp(min=1).to(tables.outputs.dtype)  # [B,T,C]
    h = torch.bmm(weights, tables.inputs.take(contexts).view(*batch.contexts.shape, -1))  # [B,T,D]
    u = tables.outputs.index_select(0, centers).view_as(h)
    drawn = tables.outputs.index_select(0, noise).view(*batch.noise.shape, -1)  # [B,K,D]
    rate = (pairs > 0) * lr
    slope = (1.0 - (h * u).sum(2, keepdim=True).sigmoid_()) * rate  # [B,T,1]
    against = torch.bmm(h, drawn.mT).sigmoid_().mul_(rate * (-negative / batch.noise.shape[1]))  # [B,T,K]
    change = slope * u + torch.bmm(against, drawn)  # [B,T,D]
    tables.outputs.index_add_(0, centers, (slope * h).flatten(0, 1))
    tables.outputs.index_add_(0, noise, torch.bmm(against.mT, h).flatten(0, 1))
    tables.inputs.add(contexts, torch.bmm(weights.mT, change).flatten(0, 1))


class VectorObjective(NamedTuple):
    """A method: its step, its default learning rate, and how many pairs a word of the window adds to a center."""

    step: VectorStep
    lr: float
    pairs: float  # per word of the window, beyond the first


OBJECTIVES: dict[VectorMethod, VectorObjective] = {
    "skip-gram": VectorObjective(skip_gram_step, 0.025, 1.0),
    "cbow": VectorObjective(cbow_step, 0.075, 0.0),
}
