"""A training step of small models with a large table of word vectors: gradients as rows against dense ones.

44,000 words, 8,192 tokens a step, drawn from a Zipf distribution; the models are `bag` and `cnn` of size small, `bag`
also with 200,000 words. AdamW has the same weights after steps of both; `sparse-adamw` is an optimizer of its own.
"""

from collections.abc import Callable

import numpy as np
import torch
from benchmarks.peers.harness import Asked, side_by_side, table
from torch import nn

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, AnyOptimizer, SparseAdamWConfig, TrainingConfig
from seqloom.nn.types import Batch, Padded
from seqloom.training.devices import Alone, choose_device
from seqloom.training.optimizers import build_optimizer
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

MODELS = (("bag", 44_000), ("bag", 200_000), ("cnn", 44_000))
ROWS, TIME, CLASSES, SIZE = 128, 64, 4, "small"
BATCHES, STEPS, ROUNDS, RATE = 4, 4, 7, 1e-3


def steps(
    family: str, words: int, optimizer: AnyOptimizer, batches: list[Batch], *, dense: bool = False
) -> Callable[[], nn.Module]:
    """Return a function that takes some steps and returns the model."""
    torch.manual_seed(0)
    inputs = TokensConfig(vocab_size=words)
    model = recipes.classifier(family, inputs=inputs, num_classes=CLASSES, size=SIZE).build()
    config = TrainingConfig(optimizer=optimizer, clip_norm=0.0)
    update = Update(Asked(), model, config, Alone(), choose_device("cpu"))
    if dense:
        update._optimizer = build_optimizer(config, model)
    state = TrainingState()

    def run() -> nn.Module:
        for _ in range(STEPS):
            update.step(batches[state.step % len(batches)], carried=False, run_state=state, lr=RATE)
            update.read()
            state.step += 1
        return model

    return run


def drawn(words: int) -> list[Batch]:
    """Return batches of words, the first of which are the most frequent."""
    rng, chances, batches = np.random.default_rng(0), 1 / np.arange(1, words + 1), []
    for _ in range(BATCHES):
        tokens = rng.choice(words, (ROWS, TIME), p=chances / chances.sum())
        labels = torch.from_numpy(rng.integers(CLASSES, size=ROWS))
        batches.append(Batch(Padded.of(torch.from_numpy(tokens)), labels))
    return batches


def main() -> None:
    """Check that AdamW takes the same steps, and print a table for each model."""
    for family, words in MODELS:
        batches = drawn(words)
        different = float(np.mean([len(batch.inputs.values.unique()) for batch in batches]))
        runs = {
            "adamw, dense gradients": steps(family, words, AdamWConfig(), batches, dense=True),
            "adamw": steps(family, words, AdamWConfig(), batches),
            "sparse-adamw": steps(family, words, SparseAdamWConfig(), batches),
        }
        dense, rows = (run().state_dict() for run in list(runs.values())[:2])
        torch.testing.assert_close(rows, dense, rtol=0, atol=0)
        size = f"{STEPS} steps of {ROWS * TIME:,} tokens with {different:,.0f} different words"
        table(
            f"{family}, {SIZE}, {words:,} words, {size}",
            side_by_side(runs, ROUNDS),
            unit="tokens",
            work=STEPS * ROWS * TIME,
        )


if __name__ == "__main__":
    main()
