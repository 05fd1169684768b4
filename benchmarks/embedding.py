"""Embedding throughput on the processor, ragged text: ours in float32 and int8, beside sentence-transformers.

    seqloom import CHECKPOINT --out MODEL
    python benchmarks/embedding.py MODEL CHECKPOINT [texts]

MODEL is what `seqloom import` made of CHECKPOINT, the folder of a sentence-transformers model. Rounds of all of them
alternate, and the ratios are those of medians of processor time. Without sentence-transformers only ours are timed.
Words are drawn from the checkpoint's vocabulary by Zipf's law, 25 to a text on average and 1 to 200 of them.
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
from seqloom.search.embedding.packed_linears import computing_in

ROUNDS = 5
LONGEST = 256  # symbols, what the usual checkpoint is cut at


def ragged(checkpoint: Path, count: int) -> list[str]:
    """Texts of very different lengths."""
    pieces = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    words = [piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1][:15_000]
    draw, shares = np.random.default_rng(0), 1 / np.arange(1, len(words) + 1)
    lengths = np.exp(draw.normal(2.9, 0.8, count)).clip(1, 200).astype(int)
    picks = iter(draw.choice(words, lengths.sum(), p=shares / shares.sum()).tolist())
    return [" ".join(next(picks) for _ in range(length)) for length in lengths]


def theirs(checkpoint: Path) -> Callable[[list[str]], object]:
    """What sentence-transformers does with texts, as it does it by default."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(checkpoint), device="cpu")
    model.max_seq_length = LONGEST
    return lambda texts: model.encode(texts)


def main(arguments: Sequence[str]) -> None:
    """Print texts a second of each, and how many times as fast as sentence-transformers it is."""
    model, checkpoint = Path(arguments[0]), Path(arguments[1])
    texts = ragged(checkpoint, int(arguments[2]) if len(arguments) > 2 else 1_000)
    loaded = seqloom.load(model)
    exact, whole = computing_in(loaded, "float32"), computing_in(loaded, "int8")
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
    print(f"{len(texts):,} texts, {ROUNDS} rounds, processor time")
    medians = {name: statistics.median(times) for name, times in spent.items()}
    beside = medians.get("sentence-transformers")
    for name, median in medians.items():
        ratio = f"  {beside / median:.2f}x" if beside else ""
        print(f"{name:24} {len(texts) / median:8.1f} texts/s{ratio}")


if __name__ == "__main__":
    main(sys.argv[1:])
