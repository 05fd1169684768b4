"""Embedding throughput on a CPU with texts of mixed length: Seqloom in float32 and int8 against sentence-transformers.

    seqloom import CHECKPOINT --out MODEL
    python benchmarks/embedding.py MODEL CHECKPOINT [texts]

CHECKPOINT is the folder of a sentence-transformers model, and MODEL the folder that `seqloom import` makes of it. The
rounds of all alternate, and ratios are those of median CPU times. Without sentence-transformers, only Seqloom is
timed. Words are drawn from the vocabulary of the checkpoint by Zipf's law, 1 to 200 per text, 25 on average.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import seqloom
from seqloom.search.embedding.packed_linears import with_precision

ROUNDS = 5
MAX_LENGTH = 256  # tokens, at which common checkpoints truncate


def ragged(checkpoint: Path, count: int) -> list[str]:
    """Return texts of very different lengths."""
    pieces = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1][:15_000]
    draw, shares = np.random.default_rng(0), 1 / np.arange(1, len(words) + 1)
    lengths = np.exp(draw.normal(2.9, 0.8, count)).clip(1, 200).astype(int)
    picks = iter(draw.choice(words, lengths.sum(), p=shares / shares.sum()).tolist())
    return [" ".join(next(picks) for _ in range(length)) for length in lengths]


def theirs(checkpoint: Path) -> Callable[[list[str]], object]:
    """Return a function that embeds texts with sentence-transformers and its defaults."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(checkpoint), device="cpu")
    model.max_seq_length = MAX_LENGTH
    return lambda texts: model.encode(texts)


def main(arguments: Sequence[str]) -> None:
    """Print texts per second, and the speed relative to sentence-transformers."""
    model, checkpoint = Path(arguments[0]), Path(arguments[1])
    texts = ragged(checkpoint, int(arguments[2]) if len(arguments) > 2 else 1_000)
    loaded = seqloom.load(model)
    exact, whole = with_precision(loaded, "float32"), with_precision(loaded, "int8")
    calls: dict[str, Callable[[list[str]], object]] = {
        "seqloom float32": lambda some: exact.embed(some),
        "seqloom int8": lambda some: whole.embed(some),
    }
    if find_spec("sentence_transformers") is not None:
        calls["sentence-transformers"] = theirs(checkpoint)
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call(texts[:50])
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call(texts)
            spent[name].append(time.process_time() - start)
    print(f"{len(texts):,} texts, {ROUNDS} rounds, CPU time")
    medians = {name: statistics.median(times) for name, times in spent.items()}
    beside = medians.get("sentence-transformers")
    for name, median in medians.items():
        ratio = f"  {beside / median:.2f}x" if beside else ""
        print(f"{name:24} {len(texts) / median:8.1f} texts/s{ratio}")


if __name__ == "__main__":
    main(sys.argv[1:])
