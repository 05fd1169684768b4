"""Whether explanations agree: attention, or whatever is given, against gradients and against leave-one-out.

    gradient         g_t = |sum_d dy/de_td e_td|        y the probability of the answer, attention held as it is
    leave-one-out    d_t = TVD(p(x without t), p(x))

Kendall's tau looks at the order of all tokens, and is low where many irrelevant ones stand in any order, even if
attention is right about the one that matters; so the overlap of the top tenth stands beside it. Leave-one-out of a long
input is measured for a sample of its tokens.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from seqloom.inspection.attention_layers import AttentionLayer
from seqloom.inspection.faithfulness.answers import confidence, decided, probabilities
from seqloom.inspection.faithfulness.distances import Tau, kendall, overlap, total_variation
from seqloom.inspection.faithfulness.imposing import imposed
from seqloom.inspection.faithfulness.removing import Removal, without
from seqloom.inspection.flow import still
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.vectors import changed_vectors
from seqloom.inspection.view import MEDIUM
from seqloom.types import Padded

MOST_LEFT_OUT = 128  # tokens of an input of more than 512 that are left out, one by one
MOST_READ = 2**18  # tokens that are read for it: of a longer input fewer are left out
CHANCE = 0.05
BINS = 10  # of a histogram of tau, from -1 to 1


class Agreement(NamedTuple):
    """How far two explanations of one input agree."""

    one: str
    other: str
    tau: Tau | None  # None where it is undefined
    overlap: float


class Pair(NamedTuple):
    """How far two explanations agree over several inputs."""

    one: str
    other: str
    answer: str | None  # of the inputs with this answer; None: of all
    tau: float | None  # the mean; None where it is undefined for every input
    spread: float | None  # the standard deviation
    significant: float | None  # the share with p <= 0.05
    overlap: float  # of the top tenth, the mean
    inputs: int
    undefined: int  # inputs of fewer than 3 tokens, or with equal numbers throughout
    histogram: tuple[int, ...]  # how many inputs have a tau in each of ten equal parts of -1 to 1


def agreements(scores: dict[str, np.ndarray]) -> tuple[Agreement, ...]:
    """How far each explanation [T] agrees with each other one, on the tokens where both have a number."""
    found = []
    for one, other in combinations(scores, 2):
        known = ~np.isnan(scores[one]) & ~np.isnan(scores[other])
        x, y = scores[one][known], scores[other][known]
        found.append(Agreement(one, other, kendall(x, y), overlap(x, y) if len(x) else 0.0))
    return tuple(found)


def pairs(by_input: Sequence[Sequence[Agreement]], answers: Sequence[str | None]) -> tuple[Pair, ...]:
    """What the inputs come to: all of them, and where each has one answer, by that answer."""
    names = [name for name in dict.fromkeys(answers) if name is not None]
    found = []
    for at in range(len(by_input[0])):
        every = [each[at] for each in by_input]
        found.append(_pair(every, None))
        for name in names if len(names) > 1 else []:
            found.append(_pair([each for each, answer in zip(every, answers, strict=True) if answer == name], name))
    return tuple(found)


def _pair(found: Sequence[Agreement], answer: str | None) -> Pair:
    taus = [each.tau for each in found if each.tau is not None]
    values = np.array([tau.value for tau in taus])
    measured = (values.mean(), values.std(), np.mean([tau.chance <= CHANCE for tau in taus])) if taus else ()
    mean, spread, significant = (float(each) for each in measured) if taus else (None, None, None)
    shared = float(np.mean([each.overlap for each in found]))
    one, other = found[0][:2]
    counts = tuple(int(count) for count in np.histogram(values, bins=BINS, range=(-1, 1))[0])
    return Pair(one, other, answer, mean, spread, significant, shared, len(found), len(found) - len(taus), counts)


def gradient(subject: Subject, reading: Reading, layer: AttentionLayer | None) -> np.ndarray:
    """[T] |slope x vector| at each token of the first side, the weights of the layer held; NaN at special symbols."""
    leaves: list[torch.Tensor] = []

    def leaf(_call: int, vectors: Padded) -> Padded:
        leaves.append(vectors.values.detach().requires_grad_())
        return vectors.with_any(leaves[0])

    side = reading.sides[0]
    holding = nullcontext() if layer is None else imposed(subject.model, layer.path, lambda rows: rows.weights.detach())
    # The fused recurrent kernels of cuDNN refuse to go backwards outside training.
    with torch.enable_grad(), still(subject.model), torch.backends.cudnn.flags(enabled=False):
        with changed_vectors(subject.model, side.stack, leaf), holding:
            found = probabilities(subject, reading, reading.inputs)
        (slopes,) = torch.autograd.grad(confidence(found, decided(found[0])).sum(), leaves)
    sizes = (slopes * leaves[0]).sum(dim=-1).abs()[0].double().detach().cpu().numpy()
    return np.where([token.is_special for token in side.tokens], np.nan, sizes)


def left_out(subject: Subject, reading: Reading, removal: Removal, draw: np.random.Generator) -> np.ndarray:
    """[T] how far the answers move without each token of the first side; NaN at those that were not left out."""
    tokens = reading.sides[0].tokens
    chosen = np.array([at for at, token in enumerate(tokens) if not token.is_special])
    if len(chosen) > MEDIUM:
        count = max(1, min(MOST_LEFT_OUT, MOST_READ // len(tokens)))
        chosen = np.sort(draw.choice(chosen, count, replace=False))
    gone = np.zeros((1 + len(chosen), len(tokens)), dtype=bool)
    gone[1 + np.arange(len(chosen)), chosen] = True
    found = without(subject, reading, gone, removal)
    moved = np.full(len(tokens), np.nan)
    moved[chosen] = total_variation(found[1:], found[0]).mean(dim=1).double().cpu().numpy()
    return moved
