"""A training step of small models with a large table of word vectors: AdamW by touched rows against AdamW.

44,000 words, 8,192 tokens a step, drawn from a Zipf distribution; the models are `bag` and `cnn` of size small.
"""

from collections.abc import Callable

import numpy as np
import torch
from benchmarks.peers.harness import Asked, side_by_side, table

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, AnyOptimizer, SparseAdamWConfig, TrainingConfig
from seqloom.nn.types import Batch, Padded
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

WORDS, ROWS, TIME, CLASSES, SIZE = 44_000, 128, 64, 4, "small"
BATCHES, STEPS, ROUNDS, RATE = 8, 8, 9, 1e-3


def steps(family: str, optimizer: AnyOptimizer, batches: list[Batch]) -> Callable[[], None]:
    """Return a function that takes some steps."""
    torch.manual_seed(0)
    inputs = TokensConfig(vocab_size=WORDS)
    model = recipes.classifier(family, inputs=inputs, num_classes=CLASSES, size=SIZE).build()
    update = Update(Asked(), model, TrainingConfig(optimizer=optimizer), Alone(), choose_device("cpu"))
    state = TrainingState()

    def run() -> None:
        for _ in range(STEPS):
            update.step(batches[state.step % len(batches)], carried=False, run_state=state, lr=RATE)
            update.read()
            state.step += 1

    return run


def main() -> None:
    """Print a table for each model."""
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, WORDS + 1)
    batches = []
    for _ in range(BATCHES):
        words = rng.choice(WORDS, (ROWS, TIME), p=chances / chances.sum())
        labels = torch.from_numpy(rng.integers(CLASSES, size=ROWS))
        batches.append(Batch(Padded.of(torch.from_numpy(words)), labels))
    different = float(np.mean([len(batch.inputs.values.unique()) for batch in batches]))
    for family in ("bag", "cnn"):
        runs = {"adamw": steps(family, AdamWConfig(), batches)}
        runs["sparse-adamw"] = steps(family, SparseAdamWConfig(), batches)
        size = f"{STEPS} steps of {ROWS * TIME:,} tokens with {different:,.0f} different words"
        title = f"{family}, {SIZE}, {WORDS:,} words, {size}"
        table(title, side_by_side(runs, ROUNDS), unit="tokens", work=STEPS * ROWS * TIME)


if __name__ == "__main__":
    main()
