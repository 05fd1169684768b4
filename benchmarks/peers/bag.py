"""A bag-of-words classifier from a file to a model against fastText (dim 10, lr 0.5, 5 epochs), with as many threads.

Texts are drawn from a Zipf distribution; the class shifts some of the words, and 5 % of the labels are wrong. Both
sides read the same rows from a file, train, and are scored on the same test rows. Each turn of Seqloom reads a file of
its own, so that nothing that an earlier one has prepared is used.
"""

import csv
import tempfile
from pathlib import Path

import fasttext
import numpy as np
import torch
from benchmarks.peers.harness import side_by_side, table

from seqloom.inference.model import load
from seqloom.report.numbers import counted
from seqloom.training.run import train

TRAIN, TEST, WORDS, CLASSES, LENGTH, NOISE = 60_000, 4_000, 60_000, 4, 40, 0.05
EPOCHS, BATCH_TOKENS, ROUNDS = 1, 32_768, 5


def texts(count: int, rng: np.random.Generator) -> tuple[list[str], list[int]]:
    """Return texts of Zipf-distributed words and their classes."""
    classes = rng.integers(CLASSES, size=count)
    found = []
    for label in classes:
        words = rng.zipf(1.3, int(rng.integers(LENGTH // 2, LENGTH * 3 // 2))) % WORDS
        own = rng.random(len(words)) < 0.08  # words that depend on the class
        words[own] = (words[own] * CLASSES + label) % WORDS
        found.append(" ".join(f"w{word}" for word in words))
    wrong = rng.random(count) < NOISE
    classes[wrong] = rng.integers(CLASSES, size=int(wrong.sum()))
    return found, classes.tolist()


def main() -> None:
    """Print accuracies, and the table of wall-clock times."""
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    (own, labels), (other, truth) = texts(TRAIN, rng), texts(TEST, rng)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f"__label__{label} {text}" for text, label in zip(own, labels, strict=True)]
        (folder / "fasttext.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = [("text", "label"), *((text, f"c{label}") for text, label in zip(own, labels, strict=True))]
        for number in range(ROUNDS):
            (folder / str(number)).mkdir()
            with (folder / str(number) / "train.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(rows)
        accuracy: dict[str, list[float]] = {"fasttext": [], "seqloom": []}
        turns = iter(range(ROUNDS))

        def theirs() -> None:
            path = str(folder / "fasttext.txt")
            model = fasttext.train_supervised(path, dim=10, lr=0.5, epoch=5, thread=threads, verbose=0)
            predicted = model.predict(other)[0]
            accuracy["fasttext"].append(
                float(np.mean([int(one[0][9:]) == label for one, label in zip(predicted, truth, strict=True)]))
            )

        def ours() -> None:
            turn = folder / str(next(turns))
            run = turn / "run"
            train(
                turn / "train.csv",
                out=run,
                model="bag",
                width=10,
                epochs=EPOCHS,
                dev_size=0.01,
                batch_tokens=BATCH_TOKENS,
                lr=0.1,
                device="cpu",
            )
            predicted = load(run).predict(other, batch_tokens=65_536)
            accuracy["seqloom"].append(
                float(np.mean([one.label == f"c{label}" for one, label in zip(predicted, truth, strict=True)]))
            )

        taken = side_by_side(
            {"fastText, dim 10, lr 0.5, 5 epochs": theirs, f"seqloom bag, width 10, {counted(EPOCHS, 'epoch')}": ours},
            ROUNDS,
            warm_up=0,
        )
        table(f"bag classifier, {TRAIN:,} texts, file to model and {TEST:,} predictions", taken)
        for side, values in accuracy.items():
            print(f"  {side}: accuracy {np.median(values):.4f} ({min(values):.4f}-{max(values):.4f})")


if __name__ == "__main__":
    main()
