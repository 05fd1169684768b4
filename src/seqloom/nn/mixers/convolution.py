"""Convolution as a mixer: every position sees its neighborhood through learned filters.

    y_t = f(b + sum_k W_k x_{t + (k - left) * dilation})

Several kernel sizes run in parallel and share the width (Kim 2014); dilation spreads the taps (Bai et al. 2018).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqloom.config.mixers import ConvolutionConfig
from seqloom.nn.mixers.contract import CausalMixer, Mixer
from seqloom.nn.ops.activations import ACTIVATIONS
from seqloom.nn.ops.convolution import convolve
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded


class ConvolutionFilters(nn.Module):
    """The filters of one kernel size: weight [D_out,D,K] and bias."""

    def __init__(self, width: int, filters: int, taps: int) -> None:
        super().__init__()
        bound = (width * taps) ** -0.5
        self.weight = nn.Parameter(torch.empty(filters, width, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(filters).uniform_(-bound, bound))


class _Convolving(nn.Module):
    """Shared parts of centered and causal convolution: filters, activation, and the tap on their maps."""

    filters: Sequence[ConvolutionFilters]

    def __init__(self, config: ConvolutionConfig, width: int) -> None:
        super().__init__()
        config.fit(width)
        self.dilation, self.activation = config.dilation, ACTIVATIONS[config.activation]
        share = width // len(config.kernel_sizes)
        filters = nn.ModuleList(ConvolutionFilters(width, share, taps) for taps in config.kernel_sizes)
        self.filters = filters  # type: ignore[assignment]  # a ModuleList is the sequence of its modules
        self.maps = Tap()  # [B,T,D] activations, one column per filter

    def convolve(self, values: Tensor, *, causal: bool) -> Tensor:
        maps = []
        for filters in self.filters:
            taps = filters.weight.shape[2]
            left = taps - 1 if causal else (taps - 1) // 2
            maps.append(convolve(values, filters.weight, filters.bias, left=left, dilation=self.dilation))
        shown: Tensor = self.maps(self.activation(torch.cat(maps, dim=-1)))
        return shown


class Convolution(_Convolving, Mixer):
    """Centered: every position sees both sides."""

    def forward(self, x: Padded) -> Padded:
        return self.by_document(self._rows, x)

    def _rows(self, x: Padded) -> Padded:
        return x.with_values(self.convolve(_clean(x), causal=False))


def _clean(x: Padded) -> Tensor:
    """Return the values with zeroed padding, because a filter near the end reads it."""
    return x.with_values(x.values).values


class CausalConvolution(_Convolving, CausalMixer[tuple[Tensor]]):
    """Causal: every position sees itself and earlier ones; the state is the last inputs."""

    def __init__(self, config: ConvolutionConfig, width: int) -> None:
        super().__init__(config, width)
        self.width = width
        self.reach = (max(config.kernel_sizes) - 1) * config.dilation

    def begin(self, batch_size: int) -> tuple[Tensor]:
        return (self.filters[0].weight.new_zeros(batch_size, self.reach, self.width),)

    def forward(self, x: Padded) -> Padded:
        return self.by_document(lambda rows: rows.with_values(self.convolve(_clean(rows), causal=True)), x)

    def extend(self, x: Padded, inner: tuple[Tensor]) -> tuple[Padded, tuple[Tensor]]:
        values = torch.cat([inner[0], _clean(x)], dim=1)  # [B,R+T,D]
        outputs = self.convolve(values, causal=True)[:, self.reach :]
        columns = x.lengths[:, None] + torch.arange(self.reach, device=values.device)  # the R inputs before the end
        rows = torch.arange(len(x.lengths), device=values.device)[:, None]
        return x.with_values(outputs), (values[rows, columns],)
