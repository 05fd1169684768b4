"""An epoch of an encoder classifier on ragged text against transformers' BertModel: d=256, 4 layers, 8 heads, V=8,000.

256 texts of 16 to 128 tokens, batches of about 4,096 tokens. The peer runs twice: at its defaults, with random batches
padded to their longest row and dropout of attention weights; and with Seqloom's settings, without that dropout
and with rows of similar length together.
"""

from collections.abc import Callable

import numpy as np
import torch
from benchmarks.peers.harness import Asked, side_by_side, table
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, TrainingConfig
from seqloom.data.order import Order
from seqloom.nn.types import Batch, Padded
from seqloom.recipes.families import Dimensions
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

WIDTH, LAYERS, HEADS, VOCABULARY, CLASSES = 256, 4, 8, 8_000, 4
TEXTS, SHORTEST, LONGEST, ROWS, RATE = 256, 16, 128, 32, 1e-4


def theirs(**settings: float) -> nn.Module:
    """Return BERT of this size with a classification head."""
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=LONGEST,
            num_labels=CLASSES,
            **settings,
        )
    ).train()


def epoch(model: nn.Module, texts: list[torch.Tensor], labels: torch.Tensor, order: list[np.ndarray]) -> Callable:
    """Return a function that trains the peer for an epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    def run() -> None:
        for rows in order:
            ids = nn.utils.rnn.pad_sequence([texts[row] for row in rows], batch_first=True)
            mask = torch.arange(ids.shape[1]) < torch.tensor([len(texts[row]) for row in rows])[:, None]
            optimizer.zero_grad()
            model(ids, attention_mask=mask.long(), labels=labels[rows]).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return run


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    sizes = rng.integers(SHORTEST, LONGEST + 1, TEXTS)
    texts = [torch.randint(5, VOCABULARY, (int(size),)) for size in sizes]
    labels = torch.randint(CLASSES, (TEXTS,))
    plan = Order(sizes[:, None], ROWS * LONGEST, seed=0)
    alike = [plan.share(0, index, 0, 1) for index in range(plan.count(0))]
    mixed = list(np.array_split(rng.permutation(TEXTS), TEXTS // ROWS))
    size = Dimensions("small", width=WIDTH, layers=LAYERS, heads=HEADS)
    inputs = TokensConfig(vocab_size=VOCABULARY)
    mine = recipes.classifier("encoder", inputs=inputs, num_classes=CLASSES, size=size).build()
    update = Update(Asked(), mine, TrainingConfig(optimizer=AdamWConfig()), Alone(), choose_device("cpu"))
    state = TrainingState()

    def ours() -> None:
        for rows in alike:
            x = Padded.stack([texts[row] for row in rows])
            update.step(Batch(x, labels[rows]), carried=False, run_state=state, lr=RATE)
            update.read()
            state.step += 1

    runs = {
        "transformers BertModel, defaults": epoch(theirs(), texts, labels, mixed),
        "the same, no attention dropout, by length": epoch(
            theirs(attention_probs_dropout_prob=0.0), texts, labels, alike
        ),
        "seqloom encoder": ours,
    }
    title = f"encoder classifier epoch, {TEXTS} texts of {SHORTEST} to {LONGEST} tokens, d={WIDTH} L={LAYERS} H={HEADS}"
    table(title, side_by_side(runs, 3), unit="tokens", work=float(sizes.sum()))


if __name__ == "__main__":
    main()
