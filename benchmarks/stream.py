"""A stream of a million steps: speed, memory on the way, and the difference from reading the sequence as a whole.

python benchmarks/stream.py                   a table of all models
python benchmarks/stream.py gru 1000000       one model as JSON, in this process

A language model of characters with random weights reads lines of random words from a pipe of bytes, never whole
in memory. `peak` is the highest resident memory after a tenth of the stream, and after all of it. The answers are
compared with one forward pass over all steps; those of a window only at the end, because it forgets the rest.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from seqloom import recipes
from seqloom.config.data import ReadingConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.data.endless import read_endless
from seqloom.data.inputs import InputColumns
from seqloom.data.problems import Ledger
from seqloom.data.schema import Schema
from seqloom.inference.stream import ModelStream
from seqloom.nn.models import LanguageModel
from seqloom.nn.types import Padded
from seqloom.tasks.lm import LanguageModeling
from seqloom.tasks.task import ModelSpec
from seqloom.text.special_tokens import BEGIN, END

STEPS = 1_000_000
MODELS = ("gru", "lstm", "window", "linear-attention")
WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "some", "dog", "ran", "far", "away", "from", "every", "house"]
REACH, LAST = 2 * 256, 2_000  # of two layers of windows; steps that are compared
CHUNK = 1 << 16  # bytes that a pipe holds


class Pipe:
    """Lines of random words, as many as have the steps; every line is the same in every run."""

    def __init__(self, steps: int) -> None:
        self.lines = self._lines(steps)

    def _lines(self, steps: int) -> Iterator[str]:
        draws = np.random.default_rng(0)
        while steps > 0:
            line = " ".join(draws.choice(WORDS, size=8))
            steps -= len(line) + 1  # END is a step too
            yield line

    def read1(self, size: int) -> bytes:
        """Some thousand bytes of whole lines."""
        found, length = [], 0
        for line in self.lines:
            found.append(f"{line}\n")
            length += len(line) + 1
            if length > min(size, CHUNK):
                break
        return "".join(found).encode()


def peak() -> float:
    """The highest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, steps: int) -> dict[str, float]:
    """Read the stream, then a part of it or all of it as a whole."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = CharactersConfig().fit([*WORDS, " "])
    model = recipes.language_model(name, vocab_size=tokenizer.vocab_size, size="nano").build().eval()
    task = LanguageModeling(ModelSpec(Schema("text", "nothing"), tokenizer, None))
    losses, done, early, ledger = (
        np.full(steps + 200, np.nan, np.float32),
        0,
        0.0,
        Ledger(),
    )  # filled: its memory is taken
    stream = ModelStream(task, model, torch.device("cpu"), flows=False)
    lines = read_endless(Pipe(steps), stream.kind, ledger, ReadingConfig(), InputColumns(), flows=False)
    began = time.perf_counter()
    for block in stream.answers(lines, ledger):
        losses[done : done + len(block)] = [answer.prediction.loss for answer in block]
        done += len(block)
        early = early or (peak() if done > steps // 10 else 0.0)
    seconds, late = time.perf_counter() - began, peak()
    rows = [tokenizer.encode([line]).row(0).tolist() for line in Pipe(steps).lines]
    whole = torch.tensor([BEGIN, *(token for row in rows for token in (*row, END))])
    gap = float(np.abs(compared(model, whole, name) - losses[:done][-LAST if name == "window" else 0 :]).max())
    return {"steps": done, "per_second": done / seconds, "peak_early": early, "peak_late": late, "difference": gap}


@torch.no_grad()
def compared(model: LanguageModel, tokens: torch.Tensor, name: str) -> np.ndarray:
    """The losses of all tokens, or of the last ones, read at once."""
    if name == "window":
        tokens = tokens[-LAST - 1 - REACH :]
    features = model.features(Padded.of(tokens[None, :-1])).values[0]
    pairs = zip(features.split(4_096), tokens[1:].split(4_096), strict=True)
    losses = torch.cat([F.cross_entropy(F.linear(x, *table(model)), y, reduction="none") for x, y in pairs]).numpy()
    return losses[-LAST:] if name == "window" else losses


def table(model: LanguageModel) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of the head."""
    return model.head.table, model.head.bias


def main(arguments: Sequence[str]) -> None:
    """Run one model, or all, each in its own process."""
    if arguments:
        name, steps = arguments
        print(json.dumps(measure(name, int(steps))))
        return
    print(f"{'model':16} {'steps':>9} {'steps/s':>8} {'peak MiB at 10 %':>17} {'at 100 %':>9} {'difference':>11}")
    for name in MODELS:
        command = [sys.executable, __file__, name, str(STEPS)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{name:16} {found['steps']:>9,} {found['per_second']:>8,.0f} {found['peak_early']:>17.1f} "
            f"{found['peak_late']:>9.1f} {found['difference']:>11.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
