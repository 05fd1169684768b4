"""Active learning in `seqloom label`: accuracy from 16 to 256 labels against random order, with a 95 % interval.

    SEQLOOM_DATA=DATA python benchmarks/labeling.py MODEL      SST-2 (DATA/sst2), with the vectors of a model
    python benchmarks/labeling.py                              artificial vectors of two overlapping classes

Both orders start with the same 16 rows. Then `seqloom label` asks, and the true labels answer. After every eight
answers the accuracy on held-out rows is measured; the area is the mean of these. The calibration of suggestions is
printed too: their mean probability, and the share that is correct, learned from rows in random order.
"""

import lzma
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.files.disk import temporary_folder
from seqloom.inference.model import load
from seqloom.search.decisions import WritableDecisions
from seqloom.search.documents import TextRows
from seqloom.search.labeling import LabeledTexts, Labeling, LabelingOptions, fit_head
from seqloom.search.vectors import unit_vectors

SEEDS = 20
FIRST, LAST, STEP = 16, 256, 8  # labels
EXAMPLES = (16, 64, 256)
POOL = 4_000
ARTIFICIAL, WIDTH = 2_000, 64


class LabeledVectors(NamedTuple):
    """Rows to label and held-out rows: unit vectors and true labels."""

    vectors: np.ndarray
    truth: np.ndarray
    held_out: np.ndarray
    held_out_truth: np.ndarray


def artificial() -> LabeledVectors:
    """Return two classes that differ in one dimension, with noise in all others."""
    draws = np.random.default_rng(0)
    truth = draws.integers(2, size=2 * ARTIFICIAL)
    vectors = draws.standard_normal((2 * ARTIFICIAL, WIDTH))
    vectors[:, 0] += 3 * (2 * truth - 1)
    vectors = unit_vectors(vectors)
    return LabeledVectors(vectors[:ARTIFICIAL], truth[:ARTIFICIAL], vectors[ARTIFICIAL:], truth[ARTIFICIAL:])


def sst2(folder: Path, model: str) -> LabeledVectors:
    """Return SST-2 with the vectors of a model."""
    loaded = load(model)
    packed = lzma.decompress((folder / "train.txt.xz").read_bytes()).decode()
    parts = [packed.splitlines()[:POOL], (folder / "test.txt").read_text(encoding="utf-8").splitlines()]
    rows = [[line.split(" ", 1) for line in part] for part in parts]
    vectors = [unit_vectors(loaded.embed([text for _, text in part])) for part in rows]
    truth = [np.array([int(label) for label, _ in part]) for part in rows]
    return LabeledVectors(vectors[0], truth[0], vectors[1], truth[1])


def area(data: LabeledVectors, order: str, seed: int, log: Path) -> float:
    """Return the mean accuracy while labels come in one order."""
    rows = len(data.truth)
    given = TextRows([f"text {row}" for row in range(rows)], [str(row) for row in range(rows)], "")
    first = np.random.default_rng(seed).choice(rows, FIRST, replace=False)
    examples = LabeledTexts(
        [given.texts[row] for row in first], [str(data.truth[row]) for row in first], data.vectors[first]
    )
    decisions = WritableDecisions(log, given.by_name)
    options = LabelingOptions(order=order, seed=seed)  # type: ignore[arg-type]  # one of the two
    session = Labeling(given, data.vectors, decisions, labels=["0", "1"], examples=examples, options=options)
    accuracies = []
    for labels in range(FIRST, LAST + 1):
        if labels % STEP == 0:
            found = session.fit().probabilities(data.held_out).argmax(axis=1)
            accuracies.append((found == data.held_out_truth).mean())
        question = session.next()
        assert question is not None
        session.label(question, str(data.truth[question.row]))
    return float(np.mean(accuracies))


def calibration(data: LabeledVectors, examples: int) -> tuple[float, float]:
    """Return the mean probability of suggestions and the share that is correct, learned from this many rows."""
    probabilities, correct = list[float](), list[float]()
    for seed in range(SEEDS):
        rows = np.random.default_rng(seed).choice(len(data.truth), examples, replace=False)
        found = fit_head(data.vectors[rows], data.truth[rows], 2).probabilities(data.held_out)
        probabilities.append(float(found.max(axis=1).mean()))
        correct.append(float((found.argmax(axis=1) == data.held_out_truth).mean()))
    return float(np.mean(probabilities)), float(np.mean(correct))


def main(arguments: Sequence[str] = ()) -> None:
    data = sst2(Path(os.environ["SEQLOOM_DATA"]) / "sst2", arguments[0]) if arguments else artificial()
    for examples in (count for count in EXAMPLES if count <= len(data.truth)):
        probability, correct = calibration(data, examples)
        print(f"{examples:3} examples: mean probability {probability:.2f}, {correct:.2f} correct")
    found: dict[str, list[float]] = {"active": [], "random": []}
    with temporary_folder("labeling") as folder:
        for seed in range(SEEDS):
            for order in found:
                found[order].append(area(data, order, seed, folder / f"{order}-{seed}.jsonl"))
    for order, areas in found.items():
        print(f"{order:8} area under accuracy from {FIRST} to {LAST} labels: {np.mean(areas):.4f}")
    differences = np.subtract(found["active"], found["random"])
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    print(f"active - random: {differences.mean():+.4f}, 95 % interval {low:+.4f} to {high:+.4f}, {SEEDS} seeds")


if __name__ == "__main__":
    main(sys.argv[1:])
