"""A training step of a small GPT against transformers' GPT-2: d=384, 6 layers, 6 heads, T=256, B=8, V=16,384.

The peer runs at its defaults (the bar) and without dropout of attention weights (like for like). Both start from the
same weights, and their losses without dropout must agree.
"""

import torch
from benchmarks.peers.harness import Asked, side_by_side, table
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from seqloom import recipes
from seqloom.config.training import AdamWConfig, TrainingConfig
from seqloom.nn.types import Batch, Padded
from seqloom.recipes.families import Dimensions
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

WIDTH, LAYERS, HEADS, TIME, ROWS, VOCABULARY = 384, 6, 6, 256, 8, 16_384
RATE = 3e-4


def theirs(**settings: float) -> nn.Module:
    """Return GPT-2 of this size."""
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=TIME, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False, **settings
    )
    return GPT2LMHeadModel(config).train()


def ours() -> nn.Module:
    """Return the recipe `gpt` in the same size."""
    size = Dimensions("small", width=WIDTH, layers=LAYERS, heads=HEADS)
    return recipes.language_model("gpt", vocab_size=VOCABULARY, size=size).build()


def copied(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of GPT-2 into ours."""
    given, mine = source.transformer, target.decoder
    with torch.no_grad():
        mine.input.table.copy_(given.wte.weight)
        mine.entry[0].table[:TIME].copy_(given.wpe.weight)
        for block, layer in zip(given.h, mine.layers, strict=True):
            query, key, value = block.attn.c_attn.weight.T.chunk(3)
            heads = layer.mixer.heads
            for part, weight, bias in zip(
                (heads.query, heads.key, heads.value), (query, key, value), block.attn.c_attn.bias.chunk(3), strict=True
            ):
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            _linear(heads.output, block.attn.c_proj)
            _linear(layer.feed_forward.inward, block.mlp.c_fc)
            _linear(layer.feed_forward.outward, block.mlp.c_proj)


def _linear(mine: nn.Linear, theirs: nn.Module) -> None:
    mine.weight.copy_(theirs.weight.T)
    mine.bias.copy_(theirs.bias)


def main() -> None:
    """Check that both compute the same, and print the table."""
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (ROWS, TIME + 1))
    batch = Batch(Padded.of(tokens[:, :-1]), tokens[:, 1:])
    peer, like, mine = theirs(), theirs(attn_pdrop=0.0), ours()
    copied(peer, mine)
    with torch.no_grad():
        scores = peer.eval()(batch.inputs.values).logits
        expected = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
        torch.testing.assert_close(mine.eval().loss(batch).mean, expected, rtol=1e-3, atol=1e-3)
    peer.train()

    def trained(model: nn.Module):
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

        def step() -> None:
            optimizer.zero_grad()
            model(batch.inputs.values, labels=tokens[:, :-1]).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return step

    update = Update(Asked(), mine, TrainingConfig(optimizer=AdamWConfig()), Alone(), choose_device("cpu"))
    state = TrainingState()

    def our_step() -> None:
        update.step(batch, carried=False, run_state=state, lr=RATE)
        update.read()
        state.step += 1

    runs = {
        "transformers GPT-2, defaults": trained(peer),
        "transformers GPT-2, no attention dropout": trained(like),
        "seqloom gpt": our_step,
    }
    title = f"GPT training step, d={WIDTH} L={LAYERS} H={HEADS} T={TIME} B={ROWS} V={VOCABULARY:,}"
    table(title, side_by_side(runs, 5), unit="tokens", work=ROWS * TIME)


if __name__ == "__main__":
    main()
