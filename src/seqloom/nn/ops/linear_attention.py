"""Linear attention (Katharopoulos et al. 2020): a kernel in place of the softmax, so that the sums can be accumulated.

    o_i = phi(q_i) . sum_j phi(k_j) v_j^T  /  phi(q_i) . sum_j phi(k_j)          phi(x) = elu(x) + 1

Read in order, the two sums are a state of fixed size, S [D,D] and z [D]: attention as a recurrence. The plain form
stores the T x T matrix phi(q_i) . phi(k_j); the chunked one stores it inside chunks and carries S and z between them.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.nn.ops.kernels import Choice, named, report_choice
from seqloom.nn.ops.masks import Mask, dense
from seqloom.nn.types import Places

_CHUNK = 64  # elements whose matrix of weights is stored
_CHUNKS = 64  # computed at once on a CPU, whose cache their matrices fit; a GPU takes all, in few kernels


class AttentionSums(NamedTuple):
    """The state of linear attention: sums over the keys and values read so far, in float32 or wider.

    A long sum in bfloat16 would stop growing.
    """

    matrix: Tensor  # [B,H,D,D], sum of phi(k) v^T
    vector: Tensor  # [B,H,D], sum of phi(k)


def feature(x: Tensor) -> Tensor:
    """Return phi(x) = elu(x) + 1: x + 1 above zero, exp(x) below; expm1(x) + 1 would cancel to zero."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


class LinearQueries(NamedTuple):
    """The inputs of linear attention, from which any row of the weight matrix can be computed.

        a_ij = phi(q_i) . phi(k_j) / phi(q_i) . (z + sum_j' phi(k_j'))

    z is the sum over everything read before these keys; if there is any, a row of weights sums to less than 1.
    """

    query: Tensor  # [B,H,T,D]
    key: Tensor  # [B,H,S,D]
    query_places: Places  # [B,T]
    key_places: Places  # [B,S]
    mask: Mask
    before: Tensor  # [B,H,D], the z of the formula

    def rows(self, start: int, stop: int) -> "LinearQueries":
        """Return the same for queries start..stop only."""
        return self._replace(query=self.query[:, :, start:stop], query_places=self.query_places.cut(start, stop))

    def match(self) -> Tensor:
        """phi(q_i) . phi(k_j) of every query with every key, [B,H,T,S]; zero where the mask forbids."""
        wide = self.before.dtype
        match = feature(self.query.to(wide)) @ feature(self.key.to(wide)).transpose(-1, -2)
        return match.masked_fill(~dense(self.mask, self.query_places, self.key_places), 0)

    def weights(self) -> Tensor:
        """The implied distribution of every query over the keys, [B,H,T,S]."""
        match, wide = self.match(), self.before.dtype
        before = (feature(self.query.to(wide)) @ self.before[..., None])[..., 0]
        return _divide(match, match.sum(dim=-1) + before)


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    # phi is positive, so the denominator is zero only where nothing was read; there the numerator is zero too.
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)[..., None]


def plain(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """Linear attention by its definition for any mask [B,1,T,S], [B,H,T,D]; quadratic in the length."""
    match = (feature(query) @ feature(key).transpose(-1, -2)).masked_fill(~allowed, 0)
    return _divide(match @ value, match.sum(dim=-1))


def everywhere(query: Tensor, key: Tensor, value: Tensor, valid: Tensor) -> Tensor:
    """Every query reads every real key (`valid` [B,S]): two sums, linear in the length."""
    keys = feature(key).masked_fill(~valid[:, None, :, None], 0)
    sums = AttentionSums(keys.transpose(-1, -2) @ value, keys.sum(dim=2))
    queries = feature(query)
    return _divide(queries @ sums.matrix, (queries @ sums.vector[..., None])[..., 0])


def plain_causal(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor, sums: AttentionSums
) -> tuple[Tensor, AttentionSums]:
    """Each query reads earlier elements and itself, one element at a time; return [B,H,T,D] and the new sums."""
    kept, outputs = query.dtype, [query[:, :, :0]]
    query, key, value = (x.to(sums.matrix.dtype) for x in (query, key, value))
    for time in range(query.shape[2]):
        real = valid[:, None, time, None]
        keys = feature(key[:, :, time]).masked_fill(~real, 0)
        sums = AttentionSums(sums.matrix + keys[..., :, None] * value[:, :, time, None, :], sums.vector + keys)
        queries = feature(query[:, :, time])
        numerator = (queries[:, :, None] @ sums.matrix)[:, :, 0]
        outputs.append(_divide(numerator, (queries * sums.vector).sum(dim=-1))[:, :, None].to(kept))
    return torch.cat(outputs, dim=2), sums


def chunked_causal(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor, sums: AttentionSums
) -> tuple[Tensor, AttentionSums]:
    """The same by chunks: a small triangle inside each, and for everything before it the sums so far."""
    kept, wide, outputs = query.dtype, sums.matrix.dtype, [query[:, :, :0]]
    # split, not slices: its backward pass joins the pieces once, where each slice would fill a full tensor with zeros
    piece = _CHUNK * _CHUNKS if query.device.type == "cpu" else max(1, query.shape[2])
    pieces = (torch.split(x, piece, 2) for x in (query, key, value, valid[:, None, :, None]))
    for q, k, v, real in zip(*pieces, strict=True):
        k = feature(k.to(wide)).masked_fill(~real, 0)
        output, sums = _chunks(feature(q.to(wide)), k, v.to(wide), sums)
        outputs.append(output.to(kept))
    return torch.cat(outputs, dim=2), sums


def _chunks(query: Tensor, key: Tensor, value: Tensor, sums: AttentionSums) -> tuple[Tensor, AttentionSums]:
    """The output and the new sums of phi(q), phi(k) and v, with all chunks at once."""
    time = query.shape[2]
    if time == 0:
        return query, sums
    q, k, v = (_cut(x, min(time, _CHUNK)) for x in (query, key, value))  # [B,H,N,C,D]
    matrices, matrix = _so_far(sums.matrix, k.transpose(-1, -2) @ v)
    vectors, vector = _so_far(sums.vector, k.sum(dim=3))
    match = (q @ k.transpose(-1, -2)).tril()
    numerator = match @ v + q @ matrices
    denominator = match.sum(dim=-1) + (q @ vectors[..., None])[..., 0]
    return _divide(numerator, denominator).flatten(2, 3)[:, :, :time], AttentionSums(matrix, vector)


def _cut(x: Tensor, size: int) -> Tensor:
    """[B,H,T,D] in chunks, [B,H,N,C,D]; zeros fill up the last one."""
    batch, heads, time, width = x.shape
    count = -(-time // size)
    return F.pad(x, (0, 0, 0, count * size - time)).view(batch, heads, count, size, width)


def _so_far(start: Tensor, chunks: Tensor) -> tuple[Tensor, Tensor]:
    """The sums before each chunk, [B,H,N,...], and after the last."""
    if chunks.shape[2] == 1:
        return start[:, :, None], start + chunks[:, :, 0]
    sums = torch.cat([start[:, :, None], chunks], dim=2).cumsum(dim=2)
    return sums[:, :, :-1], sums[:, :, -1]


KERNELS = ("plain", "sums")


def _chosen() -> str:
    name = named("linear_attention") or "sums"
    if name not in KERNELS:
        raise ConfigError(f"there is no linear attention kernel '{name}'", fix=did_you_mean(name, KERNELS))
    report_choice("linear_attention", lambda: Choice(name, {}))
    return name


def causal(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor, sums: AttentionSums
) -> tuple[Tensor, AttentionSums]:
    """Causal linear attention by the named kernel, or by sums over chunks."""
    run = plain_causal if _chosen() == "plain" else chunked_causal
    with torch.autocast(query.device.type, enabled=False):  # it would undo the casts to float32
        return run(query, key, value, valid, sums)


def two_sided(query: Tensor, key: Tensor, value: Tensor, valid: Tensor) -> Tensor:
    """Linear attention of every query to every real key by the named kernel, or by sums."""
    kept, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):  # it would undo the casts to float32
        query, key, value = (x.to(wide) for x in (query, key, value))
        if _chosen() == "plain":
            return plain(query, key, value, valid[:, None, None, :]).to(kept)
        return everywhere(query, key, value, valid).to(kept)
