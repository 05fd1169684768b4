"""What a symbol and a whole answer are worth.

repetition    a score of a symbol that was said is divided by r where it is positive, multiplied by r where it is
              negative                                                                      Keskar et al. 2019
length        log P(y) / ((5 + |y|) / 6)^alpha, where |y| counts END                        Wu et al. 2016
coverage      + beta sum_i log(min(sum_j a_ij, 1)) for each element i of the source         Wu et al. 2016
"""

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_LOOK = 1e-9  # the logarithm of an element that was never looked at would be infinite


def log_probabilities(scores: Tensor, said: Tensor | None, repetition: float, never: Sequence[int]) -> Tensor:
    """[B,V] the logarithm of the probability of each symbol; minus infinity for those that are never said.

    `said` [B,V] is true for symbols that a row has said; None where nothing is made of it.
    """
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if said is not None:
        scores = torch.where(said, torch.where(scores > 0, scores / repetition, scores * repetition), scores)
    logs = scores.log_softmax(dim=-1)
    logs[:, list(never)] = -torch.inf
    return logs


def length_penalty(length: int, alpha: float) -> float:
    """What the log-probability of so many symbols is divided by.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0), length_penalty(50, 0.0)
    (1.0, 2.0, 1.0)
    """
    return float(((5 + length) / 6) ** alpha)


def coverage_penalty(covered: Tensor, beta: float) -> Tensor:
    """[B] what it costs that elements of the source were too little looked at; `covered` [B,S] sums all looks."""
    return beta * covered.clamp(LEAST_LOOK, 1.0).log().sum(dim=-1)
