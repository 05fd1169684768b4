"""Recurrent language-model cores against torch.nn: two layers of 650, forward and backward, T=35, B=20."""

import torch
from benchmarks.peers.harness import side_by_side, table
from torch import Tensor, nn

from seqloom.config.mixers import GruConfig, LstmConfig, RnnConfig
from seqloom.nn.types import Padded

WIDTH, TIME, ROWS, LAYERS = 650, 35, 20, 2


def main() -> None:
    """Compare gradients, then print one table per cell."""
    for config, kind in ((GruConfig(), nn.GRU), (RnnConfig(), nn.RNN), (LstmConfig(), nn.LSTM)):
        torch.manual_seed(0)
        theirs = kind(WIDTH, WIDTH, LAYERS, batch_first=True)
        ours = nn.ModuleList(config.build_causal(WIDTH) for _ in range(LAYERS))
        for number, layer in enumerate(ours):
            for mine, name in (("input_weight", "weight_ih"), ("hidden_weight", "weight_hh")):
                getattr(layer, mine).data.copy_(getattr(theirs, f"{name}_l{number}"))
            for mine, name in (("input_bias", "bias_ih"), ("hidden_bias", "bias_hh")):
                getattr(layer, mine).data.copy_(getattr(theirs, f"{name}_l{number}"))
        x = torch.randn(ROWS, TIME, WIDTH, requires_grad=True)

        def their_step(module: nn.Module = theirs, x: Tensor = x) -> Tensor:
            x.grad = None
            module.zero_grad()
            module(x)[0].square().sum().backward()
            return x.grad.clone()

        def our_step(layers: nn.ModuleList = ours, x: Tensor = x) -> Tensor:
            x.grad = None
            layers.zero_grad()
            y = Padded.of(x)
            for layer in layers:
                y = layer(y)
            y.values.square().sum().backward()
            return x.grad.clone()

        torch.testing.assert_close(our_step(), their_step(), rtol=1e-3, atol=1e-4)
        title = f"{kind.__name__} core, {LAYERS} x {WIDTH}, T={TIME}, B={ROWS}, forward and backward"
        taken = side_by_side({f"torch.nn.{kind.__name__}": their_step, "seqloom": our_step}, warm_up=2)
        table(title, taken, unit="tokens", work=ROWS * TIME)


if __name__ == "__main__":
    main()
