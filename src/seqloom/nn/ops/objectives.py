"""Losses on embedding vectors, one per row [B]: smaller if matching vectors are nearer.

Vectors [B,D] are compared by cosine similarity. `excluded` marks texts of a batch that are not negatives of a row: two
rows may share a text, for example a question with two answers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """[B,C] the cosine of each row with each row of the second, in float32 or wider; 0 for a vector of zeros."""
    return _unit(first) @ _unit(second).T


def paired_cosines(first: Tensor, second: Tensor) -> Tensor:
    """[B] the cosine of each row with the same row of the second."""
    return (_unit(first) * _unit(second)).sum(dim=-1)


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)


def contrast(first: Tensor, second: Tensor, excluded: Tensor, *, temperature: float) -> Tensor:
    """[B] -log softmax_j(cos(x_i, y_j) / temperature) at j = i, y [C,D] with C >= B, without the excluded [B,C].

    The text in the same row is never excluded.
    """
    scores = cosines(first, second) / temperature
    own = torch.eye(*scores.shape, dtype=torch.bool, device=scores.device)
    scores = scores.masked_fill(excluded & ~own, -torch.inf)
    return -scores.log_softmax(dim=-1).diagonal()


def rank(similarities: Tensor, scores: Tensor, *, scale: float) -> Tensor:
    """[B] whose mean is log(1 + sum exp(scale (s_j - s_i))) over all i, j with score_i > score_j (CoSENT).

    s are cosines [B], scores [B]. The loss belongs to the complete batch: each exp is divided equally between its two
    rows, and the 1 among all rows. These shares are constants, so the gradient is that of the complete loss.
    """
    differences = scale * (similarities[None, :] - similarities[:, None])  # [i,j]
    kept = differences.masked_fill(scores[:, None] <= scores[None, :], -torch.inf)
    whole = torch.cat([kept.new_zeros(1), kept.flatten()]).logsumexp(dim=0)
    parts = (kept - whole).detach().exp()
    own = (parts.sum(dim=0) + parts.sum(dim=1)) / 2
    return whole * (len(own) * own + 1 - own.sum())


def hinge(near: Tensor, far: Tensor, *, margin: float) -> Tensor:
    """[B] max(0, far + margin - near) of the cosines."""
    return (margin - near + far).clamp(min=0)


def hardest(similarities: Tensor, excluded: Tensor) -> Tensor:
    """[B] the largest cosine of each row [B,C] that is not excluded; -1, the minimum, if all are."""
    return similarities.masked_fill(excluded, -1.0).amax(dim=-1)
