"""Relative positions in attention: biases on the scores, and rotations of queries and keys.

    ALiBi    e_ij - m_h |i - j|                       Press et al. 2022 (deck E); symmetric when both sides are visible
    T5       e_ij + b_h[bucket(j - i)]                Raffel et al. 2020: near distances exact, far ones logarithmic
    Shaw     (q_i . (k_j + a_K[j-i])) ; z_i = sum_j alpha_ij (v_j + a_V[j-i])    Shaw et al. 2018, clipped at a radius
    rotary   rotate pairs of q and k by angle position / 10000^(2i/d)            Su et al. 2021: q . k sees only i - j

Every bias is a NamedTuple of tensors that computes its term for given positions; the kernels call it block by block.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.nn.types import Places


class NoBias(NamedTuple):
    """No bias."""


class Alibi(NamedTuple):
    """-m_h |i - j|: a linear penalty on distance, steeper for some heads than for others."""

    slopes: Tensor  # [H]

    def term(self, query: Places, key: Places) -> Tensor:
        """[B,H,T,S] added to the scores."""
        distance = (query.positions[:, :, None] - key.positions[:, None, :]).abs()
        exact = torch.promote_types(self.slopes.dtype, torch.float32)  # bfloat16 cannot count beyond 256
        return (-self.slopes[:, None, None].to(exact) * distance[:, None].to(exact)).to(self.slopes.dtype)


class Buckets(NamedTuple):
    """b_h[bucket(j - i)]: a learned number per head and bucket of distance."""

    table: Tensor  # [buckets,H]
    two_sided: bool  # half of the buckets for keys ahead of the query
    farthest: int  # distances beyond this share the last bucket

    def term(self, query: Places, key: Places) -> Tensor:
        """[B,H,T,S] added to the scores."""
        ahead = key.positions[:, None, :] - query.positions[:, :, None]
        numbers = bucket(ahead, num_buckets=self.table.shape[0], two_sided=self.two_sided, farthest=self.farthest)
        exact = torch.promote_types(self.table.dtype, torch.float32)  # its gradient is a sum over all pairs
        return self.table.to(exact)[numbers].permute(0, 3, 1, 2).to(self.table.dtype)


class Shaw(NamedTuple):
    """Learned vectors for each clipped distance, added to the keys and to the values."""

    keys: Tensor  # [2R+1,D]
    values: Tensor  # [2R+1,D]

    def rows(self, query: Places, key: Places) -> Tensor:
        """[B,T,S] the row of both tables for each pair: clip(j - i, -R, R) + R."""
        radius = self.keys.shape[0] // 2
        ahead = key.positions[:, None, :] - query.positions[:, :, None]
        return ahead.clamp(-radius, radius) + radius

    def term(self, prepared_query: Tensor, query: Places, key: Places) -> Tensor:
        """[B,H,T,S] the dot product of each (prepared) query with the key vector of the distance."""
        every = prepared_query @ self.keys.T  # [B,H,T,2R+1]
        index = self.rows(query, key)[:, None].expand(-1, every.shape[1], -1, -1)
        return every.gather(-1, index)

    def value_term(self, weights: Tensor, query: Places, key: Places) -> Tensor:
        """[B,H,T,D] the weighted sum of the value vectors of the distances."""
        index = self.rows(query, key)[:, None].expand_as(weights)
        mass = weights.new_zeros(*weights.shape[:3], self.values.shape[0]).scatter_add(-1, index, weights)
        return mass @ self.values


Bias = NoBias | Alibi | Buckets | Shaw


def alibi_slopes(num_heads: int) -> list[float]:
    """m_h: the geometric sequence of Press et al. 2022, filled from the next power of two if needed.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-4 * (2 * head + 1) / power) for head in range(num_heads - power)]
    return slopes + between


def bucket(ahead: Tensor, *, num_buckets: int, two_sided: bool, farthest: int) -> Tensor:
    """The bucket of each signed distance j - i: exact up to half of the buckets, then logarithmic up to `farthest`."""
    side = torch.zeros_like(ahead)
    if two_sided:
        num_buckets //= 2
        side = (ahead > 0) * num_buckets
        distance = ahead.abs()
    else:
        distance = (-ahead).clamp(min=0)  # keys ahead are masked anyway
    exact = num_buckets // 2
    steps = torch.tensor(_far_buckets(exact, num_buckets - exact, farthest), device=ahead.device)
    far = exact + torch.bucketize(distance, steps, right=True)
    return side + torch.where(distance < exact, distance, far)


@cache
def _far_buckets(exact: int, count: int, farthest: int) -> list[int]:
    """Return the starts of the far buckets after the first: exact (farthest / exact)^(k / count), rounded up.

    Integers are compared, so that rounding of logarithms on a device cannot change a bucket.
    """

    def reached(distance: int, step: int) -> bool:
        return bool(distance**count * exact**step >= farthest**step * exact**count)

    return [next(d for d in range(exact, farthest + 1) if reached(d, step)) for step in range(1, count)]


def angles(positions: Tensor, width: int) -> Tensor:
    """position / 10000^(2i/width) for every pair i of dimensions, [..., ceil(width / 2)].

    In float64 where the device has it: at position 100,000 float32 would already be wrong in the third digit.
    """
    exact = torch.float32 if positions.device.type == "mps" else torch.float64
    rates = 10_000.0 ** (-torch.arange(0, width, 2, device=positions.device, dtype=exact) / width)
    return positions[..., None] * rates


def rotate(vectors: Tensor, positions: Tensor) -> Tensor:
    """Rotate each pair (x_2i, x_2i+1) of [B,H,T,D] by the angle of its position.

    q_m . k_n then depends on the positions only through m - n, because rotations are orthogonal.
    """
    cos, sin = turns(positions, vectors.shape[-1]).to(vectors.dtype).unbind(dim=-1)
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def turns(positions: Tensor, width: int) -> Tensor:
    """The cosine and the sine of every angle, [B,1,T,D/2,2]."""
    angle = angles(positions, width)[:, None]
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def turn(vectors: Tensor, table: Tensor) -> Tensor:
    """Apply `rotate` with a table of `turns`, in the table's dtype: each pair is a complex number, times cos + i sin.

    This is one kernel. A compiler fuses the real formula itself, but cannot fuse complex numbers.
    """
    pairs = vectors.to(table.dtype).view(*vectors.shape[:-1], vectors.shape[-1] // 2, 2)  # [...,T,D/2,2]
    if torch.compiler.is_compiling():
        (even, odd), (cos, sin) = pairs.unbind(dim=-1), table.unbind(dim=-1)
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(table))
    return turned.flatten(-2).to(vectors.dtype)
