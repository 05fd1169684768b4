"""Linear attention as a mixer: multi-head attention whose memory is two sums of fixed size.

The equations are in `seqloom.nn.ops.linear_attention`.
"""

import torch
from torch import Tensor, nn

from seqloom.config.mixers import LinearAttentionConfig
from seqloom.nn.mixers.attention import Heads
from seqloom.nn.mixers.contract import CausalMixer, Mixer
from seqloom.nn.ops import linear_attention
from seqloom.nn.ops.linear_attention import AttentionSums, LinearQueries
from seqloom.nn.ops.masks import Causal, Mask, Padding
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded


class _LinearlyAttending(nn.Module):
    """Shared parts of bidirectional and causal linear attention: heads, and the tap on their outputs."""

    def __init__(self, config: LinearAttentionConfig, width: int) -> None:
        super().__init__()
        config.fit(width)
        self.heads = Heads(width, config.num_heads)
        self.weights = Tap()  # LinearQueries: its `weights` compute any rows of the matrix that is never stored
        self.mixed = Tap()  # [B,H,T,D/H]


class LinearAttention(_LinearlyAttending, Mixer):
    """Attention to both sides, in time and memory linear in the length."""

    def forward(self, x: Padded) -> Padded:
        return self.by_document(self._rows, x)

    def _rows(self, x: Padded) -> Padded:
        heads = self.heads
        query, key, value = (heads.split(linear(x.values)) for linear in (heads.query, heads.key, heads.value))
        self.weights.offer(lambda: _queries(query, key, x, Padding(), _nothing(key)))
        mixed = linear_attention.two_sided(query, key, value, x.valid)
        return x.with_values(heads.join(self.mixed(mixed)))


class CausalLinearAttention(_LinearlyAttending, CausalMixer[AttentionSums]):
    """Attention to the past through running sums."""

    def begin(self, batch_size: int) -> AttentionSums:
        weight = self.heads.key.weight
        head = weight.shape[0] // self.heads.num_heads
        wide = torch.promote_types(weight.dtype, torch.float32)
        matrix = weight.new_zeros(batch_size, self.heads.num_heads, head, head, dtype=wide)
        return AttentionSums(matrix, matrix[..., 0])

    def extend(self, x: Padded, inner: AttentionSums) -> tuple[Padded, AttentionSums]:
        heads = self.heads
        query, key, value = (heads.split(linear(x.values)) for linear in (heads.query, heads.key, heads.value))
        self.weights.offer(lambda: _queries(query, key, x, Causal() & Padding(), inner.vector))
        mixed, sums = linear_attention.causal(query, key, value, x.valid, inner)
        return x.with_values(heads.join(self.mixed(mixed))), sums


def _queries(query: Tensor, key: Tensor, x: Padded, mask: Mask, before: Tensor) -> LinearQueries:
    places = x.layout.places
    return LinearQueries(query, key, places, places, mask, before)


def _nothing(key: Tensor) -> Tensor:
    """Return zeros [B,H,D] in a dtype wide enough for sums, as the state before these keys [B,H,S,D]."""
    return torch.zeros_like(key[:, :, 0], dtype=torch.promote_types(key.dtype, torch.float32))
