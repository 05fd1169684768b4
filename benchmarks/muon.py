"""Muon against AdamW on a small character model and on a translator: the loss by steps and learning rate.

The characters are those of the documentation of Seqloom; the table has the training loss of every 20 steps. The
translator learns the built-in dates, or Multi30k (English to German) if SEQLOOM_DATA names the folder of datasets; the
table has its dev loss. Both optimizers see the same batches; the learning rate rises, and then falls to zero.

    python benchmarks/muon.py                                 both models
    SEQLOOM_DATA=DATA python benchmarks/muon.py translation   Multi30k
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from torch import nn

from seqloom import recipes
from seqloom.config.training import AdamWConfig, AnyOptimizer, MuonConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.tasks.task import Division
from seqloom.training.devices import Alone, choose_device
from seqloom.training.run import train
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

STEPS, EVERY, ROWS, TIME, SIZE = 160, 20, 16, 64, "tiny"
RATES = (3e-3, 1e-2, 3e-2)
TRANSLATED = 300  # steps of the translator


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


def characters() -> None:
    """Print the training losses of the character model."""
    folder = Path(__file__).parents[1] / "docs"
    text = torch.tensor(list(b"".join(path.read_bytes() for path in sorted(folder.glob("*.md")))), dtype=torch.uint8)
    heading("characters, training loss", range(EVERY, STEPS + 1, EVERY))
    for rate in RATES:
        for optimizer in (AdamWConfig(), MuonConfig()):
            line(optimizer, rate, losses(optimizer, rate, text))


def translation() -> None:
    """Print the dev losses of the translator."""
    files, dev, steps = ("dates",), None, TRANSLATED
    if data := os.environ.get("SEQLOOM_DATA"):
        files = tuple(f"{data}/multi30k/train.{language}.xz" for language in ("en", "de"))
        dev = [f"{data}/multi30k/val.{language}" for language in ("en", "de")]
    heading(f"{Path(files[0]).parent.name or 'dates'}, dev loss", range(steps // 10, steps + 1, steps // 10))
    for rate in RATES:
        for optimizer in (AdamWConfig(), MuonConfig()):
            with tempfile.TemporaryDirectory() as folder:
                train(
                    *files,
                    dev=dev,
                    out=f"{folder}/run",
                    model="transformer",
                    size=SIZE,
                    optimizer=optimizer.kind(),
                    lr=rate,
                    steps=steps,
                    validate_every=steps // 10,
                    metric="loss",
                    patience=0,
                    device="cpu",
                )
                lines = map(msgspec.json.decode, Path(folder, "run/metrics.jsonl").read_text().splitlines())
                line(optimizer, rate, [one["metrics"]["loss"] for one in lines if one["kind"] == "validation"])


def heading(title: str, steps: range) -> None:
    """Print the steps of the columns."""
    print(f"\n{title}\n{'':12} " + " ".join(f"{step:>6}" for step in steps) + "   steps")


def line(optimizer: AnyOptimizer, rate: float, found: list[float]) -> None:
    """Print the losses of a run."""
    print(f"{optimizer.kind():5} {rate:6g} " + " ".join(f"{loss:6.3f}" for loss in found), flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Print a line per optimizer and learning rate, of both models or of the one that is named."""
    for name, compare in {"characters": characters, "translation": translation}.items():
        if name in (arguments or [name]):
            compare()


if __name__ == "__main__":
    main(sys.argv[1:])
