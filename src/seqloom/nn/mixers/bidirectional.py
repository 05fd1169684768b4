"""Bidirectional recurrence: one reads from each end, y_t = [forward(x)_t ; backward(x)_t]."""

import torch

from seqloom.config.mixers import BidirectionalConfig
from seqloom.nn.mixers.contract import Mixer
from seqloom.nn.types import Padded


class Bidirectional(Mixer):
    """Every position sees the past through one mixer and the future through another, each with half the width.

    Both read the complete input, like torch's bidirectional recurrences, so that weights can be exchanged.
    """

    def __init__(self, config: BidirectionalConfig, width: int) -> None:
        super().__init__()
        config.fit(width)
        self.ahead = config.mixer.build_reading(width, width // 2)
        self.back = config.mixer.build_reading(width, width // 2)

    def forward(self, x: Padded) -> Padded:
        ahead = self.ahead(x)
        back = self.back(x.reverse()).reverse()
        return x.with_values(torch.cat([ahead.values, back.values], dim=-1))
