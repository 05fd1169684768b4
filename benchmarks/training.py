"""The cost of a training step of Seqloom against a plain PyTorch loop with the same math: median of ratios.

The plain loop has zero_grad, loss, backward, clip_grad_norm_, fused AdamW in two groups, and LambdaLR. Seqloom does
more: it sums losses and norms for the report, seeds dropout, checks for NaN, counts tokens, and on a CPU reads the
results of every step.

    python benchmarks/training.py [cpu|cuda]
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import nn

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, LinearConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import Size
from seqloom.tasks.task import Division
from seqloom.training.devices import Alone, choose_device
from seqloom.training.learning_rate import lr_at
from seqloom.training.state import TrainingState
from seqloom.training.step import Update, moved

PAIRS, STEPS = 30, 10
VOCABULARY, CLASSES, ROWS, TIME = 2_000, 4, 32, 32
RUN = 100_000  # steps of the schedule
CONFIG = TrainingConfig(optimizer=AdamWConfig(weight_decay=0.01), schedule=LinearConfig(warmup=100), clip_norm=1.0)
MODELS: dict[str, tuple[str, Size]] = {"lstm, nano": ("lstm", "nano"), "transformer, small": ("transformer", "small")}

AnyBatch = Batch[Any, Any]


class Classified(NamedTuple):
    """The parts of a task that a step needs."""

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """Split batches into micro-batches."""
        return Division(self, pieces)  # type: ignore[arg-type]  # the parts that a step needs

    def loss(self, model: nn.Module, batch: AnyBatch, state: None) -> tuple[Loss, None]:
        """Return the loss of a batch, without state."""
        return model.loss(batch), None


def bare(model: nn.Module, batch: AnyBatch, device: torch.device) -> Callable[[], None]:
    """Return a plain training step."""
    with_decay = [weight for weight in model.parameters() if weight.ndim > 1]
    without = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": with_decay, "weight_decay": 0.01}, {"params": without, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=CONFIG.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_at(CONFIG, step, step / RUN, 1.0))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(moved(batch, device))
        (loss.total / loss.weight).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    return step


def ours(model: nn.Module, batch: AnyBatch, name: str) -> Callable[[], None]:
    """Return a step of the training loop."""
    update = Update(Classified(), model, CONFIG, Alone(), choose_device(name, "float32"))
    run_state, numbers = TrainingState(), count()

    def step() -> None:
        run_state.step = next(numbers)
        rate = lr_at(CONFIG, run_state.step, run_state.step / RUN, 1.0)
        update.step(batch, carried=False, run_state=run_state, lr=rate)
        if name == "cpu" or run_state.step % 10 == 0:
            update.read()

    return step


def seconds(step: Callable[[], None], name: str) -> float:
    """Return the mean seconds of a step."""
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    if name == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS


def ragged() -> AnyBatch:
    """Return a batch of texts of different lengths."""
    lengths = torch.randint(TIME // 2, TIME + 1, (ROWS,))
    return Batch(Padded.of(torch.randint(VOCABULARY, (ROWS, TIME)), lengths), torch.randint(CLASSES, (ROWS,)))


class Pair(NamedTuple):
    """Seconds of a step of Seqloom and of a plain one, measured one after the other."""

    ours: float
    bare: float

    @property
    def ratio(self) -> float:
        """Return the time of Seqloom relative to the plain step."""
        return self.ours / self.bare


def pairs(recipe: str, size: Size, name: str) -> list[Pair]:
    """Return the pairs of one model on a device, without the warm-up."""
    inputs, device = TokensConfig(vocab_size=VOCABULARY), torch.device(name)
    torch.manual_seed(0)
    model, batch = recipes.classifier(recipe, inputs=inputs, num_classes=CLASSES, size=size).build(), ragged()
    mine, other = ours(copy.deepcopy(model).to(device), batch, name), bare(model.to(device), batch, device)
    return [Pair(seconds(mine, name), seconds(other, name)) for _ in range(PAIRS + 1)][1:]


def main(arguments: list[str] | None = None) -> None:
    """Print one line per model."""
    name = (arguments or ["cpu"])[0]
    print(f"{PAIRS} pairs of {STEPS} steps in turns, {ROWS} rows of up to {TIME} tokens, {name}")
    for what, (recipe, size) in MODELS.items():
        taken = pairs(recipe, size, name)
        mine, other = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
        ratios = sorted(pair.ratio for pair in taken)
        spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{what:<20} seqloom {mine:8.2f} ms, plain {other:8.2f} ms per step: {spread}")


if __name__ == "__main__":
    main(sys.argv[1:])
