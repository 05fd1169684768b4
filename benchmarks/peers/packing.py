"""Packed documents in layers that know nothing of packing: grouped by length, against all padded to the longest."""

import functools

import numpy as np
import torch
from benchmarks.peers.harness import side_by_side, table

from seqloom.config.mixers import ConvolutionConfig, GruConfig, LinearAttentionConfig, LstmConfig
from seqloom.nn import packing
from seqloom.nn.mixers import contract
from seqloom.nn.types import Padded

ROWS, LENGTH, WIDTH, LONG = 16, 512, 128, 400
SHARES = (0.0, 0.01)  # of long documents


def packed(share_of_long: float) -> Padded:
    """Return documents of 8 to 23 elements packed into rows; some of them are long."""
    rng = np.random.default_rng(0)
    segments = np.zeros((ROWS, LENGTH), np.int64)
    for row in segments:
        at, number = 0, 0
        while at < LENGTH:
            size = LONG if rng.random() < share_of_long else int(rng.integers(8, 24))
            row[at : at + size] = number
            at, number = at + size, number + 1
    return Padded.of(torch.randn(ROWS, LENGTH, WIDTH), segments=torch.from_numpy(segments))


def main() -> None:
    """Print a table for each layer, without and with long documents."""
    torch.manual_seed(0)
    layers = {
        "lstm": LstmConfig().build_causal(WIDTH),
        "gru": GruConfig().build_causal(WIDTH),
        "convolution": ConvolutionConfig().build_causal(WIDTH),
        "linear attention": LinearAttentionConfig(num_heads=4).build_causal(WIDTH),
    }
    grouped = packing.by_document
    together = functools.partial(_at_once, grouped)
    for share in SHARES:
        x = packed(share)
        for name, layer in layers.items():

            def run(how: object, layer: torch.nn.Module = layer, x: Padded = x) -> torch.Tensor:
                contract.by_document = how  # type: ignore[attr-defined]
                layer.zero_grad()
                y = layer(x.laid_out()).values
                y.square().sum().backward()
                return y

            torch.testing.assert_close(run(grouped), run(together), rtol=1e-4, atol=1e-5)
            runs = {"one group": lambda run=run: run(together), "groups by length": lambda run=run: run(grouped)}
            title = f"packed documents, {name}, {share:.0%} of {LONG} elements, forward and backward"
            table(title, side_by_side(runs), unit="tokens", work=ROWS * LENGTH)
    contract.by_document = grouped


def _at_once(grouped, run, x, **_):
    return grouped(run, x, at_once=True)


if __name__ == "__main__":
    main()
