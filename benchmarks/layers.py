"""Seqloom's layers against torch.nn, forward and backward, on padded batches: ratios of medians in one run.

python benchmarks/layers.py
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from seqloom import recipes
from seqloom.config.inputs import VectorsConfig
from seqloom.config.mixers import AttentionConfig, BidirectionalConfig, GruConfig, LstmConfig, MixerConfig, RnnConfig
from seqloom.config.stacks import BlockConfig, EncoderConfig, FeedForwardConfig
from seqloom.nn.types import Padded

BATCH, TIME, WIDTH, HEADS, HIDDEN, DEPTH = 16, 128, 256, 8, 1024, 4
ROUNDS = 7
VOCABULARY = 8_000


def ours(mixer: MixerConfig, arrangement: str = "plain") -> nn.Module:
    """Return a stack of Seqloom blocks without an input layer."""
    feed_forward = FeedForwardConfig(hidden=HIDDEN) if isinstance(mixer, AttentionConfig) else None
    depth = DEPTH if isinstance(mixer, AttentionConfig) else 2
    block = BlockConfig(mixer=mixer, arrangement=arrangement, feed_forward=feed_forward)
    return EncoderConfig(input=VectorsConfig(size=WIDTH), width=WIDTH, layers=(block,), repeat=depth).build()


def attention_theirs() -> nn.Module:
    """Return torch's encoder of the same size."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)


def compare(name: str, ours_step: Callable[[], None], theirs_step: Callable[[], None]) -> None:
    """Print both medians, their ratio, and the range of the ratio over rounds."""
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS + 1):
        pair = []
        for step in (ours_step, theirs_step):
            start = time.perf_counter()
            step()
            pair.append(time.perf_counter() - start)
        times.append((pair[0], pair[1]))
    times = times[1:]  # the first round is a warm-up
    mine, other = (statistics.median(column) for column in zip(*times, strict=True))
    ratios = sorted(theirs / own for own, theirs in times)
    medians = f"{mine * 1e3:8.1f} ms {other * 1e3:8.1f} ms"
    print(f"{name:22} {medians}   {other / mine:5.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})")


def main() -> None:
    """Compare every layer that torch.nn has too."""
    torch.manual_seed(0)
    lengths = torch.randint(TIME // 4, TIME + 1, (BATCH,))
    lengths[0] = TIME
    values = torch.randn(BATCH, TIME, WIDTH)
    x = Padded.of(values, lengths)
    padding = ~x.valid
    print(f"{'':22} {'seqloom':>11} {'torch.nn':>11}   speed of seqloom")

    encoder, theirs = ours(AttentionConfig(num_heads=HEADS), "post"), attention_theirs()
    compare(
        "transformer encoder",
        lambda: encoder(x).values.sum().backward(),
        lambda: theirs(x.values, src_key_padding_mask=padding).sum().backward(),
    )
    pairs: list[tuple[MixerConfig, nn.Module]] = [
        (RnnConfig(), nn.RNN(WIDTH, WIDTH, 2, batch_first=True)),
        (GruConfig(), nn.GRU(WIDTH, WIDTH, 2, batch_first=True)),
        (LstmConfig(), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)),
        (BidirectionalConfig(), nn.LSTM(WIDTH, WIDTH // 2, 2, batch_first=True, bidirectional=True)),
    ]
    for config, module in pairs:
        stack = ours(config)

        def packed(module: nn.Module = module) -> None:
            rows = nn.utils.rnn.pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
            nn.utils.rnn.pad_packed_sequence(module(rows)[0], batch_first=True)[0].sum().backward()

        compare(f"{config.kind()}, packed", lambda stack=stack: stack(x).values.sum().backward(), packed)
        compare(
            f"{config.kind()}, padded",
            lambda stack=stack: stack(x).values.sum().backward(),
            lambda module=module: module(values)[0].sum().backward(),
        )
    model = recipes.language_model("transformer", vocab_size=VOCABULARY, size="small").build()
    tokens = Padded.of(torch.randint(0, VOCABULARY, (8, TIME)))
    targets = torch.randint(0, VOCABULARY, (8, TIME))

    def whole_logits() -> None:
        scores = model(tokens).values
        nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum").backward()

    from seqloom.nn.types import Batch

    compare("lm loss, chunked", lambda: model.loss(Batch(tokens, targets)).total.backward(), whole_logits)


if __name__ == "__main__":
    main()
