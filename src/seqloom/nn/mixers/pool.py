"""Pooling as a mixer: every position sees one summary of all positions, or of all so far.

    mean  y_t = (1/n) sum_s x_s        sum  y_t = sum_s x_s        max  y_t = max_s x_s

over all s of the document, or over s <= t if running. A bag-of-embeddings model uses only this mixer.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.config.mixers import PoolConfig
from seqloom.nn.mixers.contract import CausalMixer, Mixer
from seqloom.nn.ops import pooling
from seqloom.nn.types import Padded


class Pool(Mixer):
    """Every position sees the summary of its complete document."""

    def __init__(self, config: PoolConfig, width: int) -> None:
        super().__init__()
        self.summarize = pooling.SUMMARIES[config.how]

    def forward(self, x: Padded) -> Padded:
        return self.by_document(self._everywhere, x)

    def _everywhere(self, x: Padded) -> Padded:
        summary = self.summarize(x)  # [B,D]
        return x.with_values(summary[:, None].expand_as(x.values))


class PoolSummary(NamedTuple):
    """The state of a running pool."""

    value: Tensor  # [B,D] the sum or the maximum so far
    seen: Tensor  # [B] how many elements


class RunningPool(CausalMixer[PoolSummary]):
    """Every position sees the summary of its document so far."""

    place: Tensor

    def __init__(self, config: PoolConfig, width: int) -> None:
        super().__init__()
        self.how, self.width = config.how, width
        self.register_buffer("place", torch.zeros(()), persistent=False)  # follows the model to its device and dtype

    @property
    def device(self) -> torch.device:
        return self.place.device

    def begin(self, batch_size: int) -> PoolSummary:
        start = float("-inf") if self.how == "max" else 0.0
        wide = torch.promote_types(self.place.dtype, torch.float32)  # a long sum in bfloat16 would stop growing
        value = torch.full((batch_size, self.width), start, dtype=wide, device=self.place.device)
        return PoolSummary(value, torch.zeros(batch_size, dtype=torch.int64, device=self.place.device))

    def extend(self, x: Padded, inner: PoolSummary) -> tuple[Padded, PoolSummary]:
        beyond, entering = ~x.valid[:, :, None], x.values.to(inner.value.dtype)
        count = inner.seen[:, None] + torch.arange(1, x.values.shape[1] + 1, device=x.values.device)  # [B,T]
        if self.how == "max":
            values = torch.cat([inner.value[:, None], entering.masked_fill(beyond, float("-inf"))], dim=1)
            running = values.cummax(dim=1).values
            return x.with_values(running[:, 1:].to(x.values.dtype)), PoolSummary(running[:, -1], inner.seen + x.lengths)
        values = torch.cat([inner.value[:, None], entering.masked_fill(beyond, 0)], dim=1)
        running = values.cumsum(dim=1)
        outputs = running[:, 1:] / count[:, :, None].to(running.dtype) if self.how == "mean" else running[:, 1:]
        return x.with_values(outputs.to(x.values.dtype)), PoolSummary(running[:, -1], inner.seen + x.lengths)
