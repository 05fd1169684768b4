"""Muon against AdamW on a small character model: the training loss every 20 steps, by learning rate.

The text is the documentation of Seqloom. Both see the same batches; the rate rises for 20 steps and then falls to zero.

    python benchmarks/muon.py
"""

from pathlib import Path

import torch
from torch import nn

from seqloom import recipes
from seqloom.config.training import AdamWConfig, AnyOptimizer, MuonConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.tasks.task import Division
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

STEPS, EVERY, ROWS, TIME, SIZE = 160, 20, 16, 64, "tiny"
RATES = (3e-3, 1e-2, 3e-2)


class Running:
    """The parts of a task that a step needs."""

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """Return the step undivided."""
        return Division(self, pieces)  # type: ignore[arg-type]

    def loss(self, model: nn.Module, batch: Batch, state: None) -> tuple[Loss, None]:
        """Return the loss of a batch."""
        return model.loss(batch), None


def losses(optimizer: AnyOptimizer, rate: float, text: torch.Tensor) -> list[float]:
    """Return the mean losses of every 20 steps."""
    torch.manual_seed(0)
    model = recipes.language_model("transformer", vocab_size=256, size=SIZE).build()
    update = Update(Running(), model, TrainingConfig(optimizer=optimizer), Alone(), choose_device("cpu"))
    state, generator, found = TrainingState(), torch.Generator().manual_seed(1), list[float]()
    for step in range(STEPS):
        starts = torch.randint(len(text) - TIME - 1, (ROWS,), generator=generator)
        rows = torch.stack([text[start : start + TIME + 1] for start in starts.tolist()]).long()
        lr = rate * min(1.0, (step + 1) / EVERY) * (1 - step / STEPS)
        update.step(Batch(Padded.of(rows[:, :-1]), rows[:, 1:]), carried=False, run_state=state, lr=lr)
        state.step += 1
        if state.step % EVERY == 0:
            tally = update.read()
            found.append(tally.loss / tally.weight)
    return found


def main() -> None:
    """Print a line per optimizer and learning rate."""
    folder = Path(__file__).parents[1] / "docs"
    text = torch.tensor(list(b"".join(path.read_bytes() for path in sorted(folder.glob("*.md")))), dtype=torch.uint8)
    print(f"{'':12} " + " ".join(f"{step:>6}" for step in range(EVERY, STEPS + 1, EVERY)) + "   steps")
    for rate in RATES:
        for optimizer in (AdamWConfig(), MuonConfig()):
            row = " ".join(f"{loss:6.3f}" for loss in losses(optimizer, rate, text))
            print(f"{optimizer.kind():5} {rate:6g} {row}")


if __name__ == "__main__":
    main()
