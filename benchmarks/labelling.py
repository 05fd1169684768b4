"""What active order saves: accuracy from 16 to 256 labels, against random order, with a 95 % interval over the seeds.

    SEQLOOM_DATA=DATA python benchmarks/labelling.py MODEL      SST-2 (DATA/sst2), by the vectors of a model
    python benchmarks/labelling.py                              made-up vectors of two classes that overlap

Both orders begin with the same 16 rows; then `seqloom label` asks, and the truth answers. After every eight answers the
accuracy on rows that nobody labels is taken; the area is the mean of these. How sure suggestions are is told beside how
often they are right, learnt from rows in random order.
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
from seqloom.search.documents import GivenRows
from seqloom.search.labeling import Examples, How, Labelling, fit_head
from seqloom.search.vectors import unit

SEEDS = 20
FIRST, LAST, STEP = 16, 256, 8  # labels
EXAMPLES = (16, 64, 256)
POOL = 4_000
MADE_UP, WIDTH = 2_000, 64


class Ground(NamedTuple):
    """Rows to label and rows to judge by: vectors of length 1, and the truth."""

    vectors: np.ndarray
    truth: np.ndarray
    judged: np.ndarray
    judged_truth: np.ndarray


def made_up() -> Ground:
    """Two classes along a line, among noise in all other directions."""
    draws = np.random.default_rng(0)
    truth = draws.integers(2, size=2 * MADE_UP)
    vectors = draws.standard_normal((2 * MADE_UP, WIDTH))
    vectors[:, 0] += 3 * (2 * truth - 1)
    vectors = unit(vectors)
    return Ground(vectors[:MADE_UP], truth[:MADE_UP], vectors[MADE_UP:], truth[MADE_UP:])


def sst2(folder: Path, model: str) -> Ground:
    """Sentences of films, by the vectors of a model."""
    loaded = load(model)
    packed = lzma.decompress((folder / "train.txt.xz").read_bytes()).decode()
    parts = [packed.splitlines()[:POOL], (folder / "test.txt").read_text(encoding="utf-8").splitlines()]
    rows = [[line.split(" ", 1) for line in part] for part in parts]
    vectors = [unit(loaded.embed([text for _, text in part])) for part in rows]
    truth = [np.array([int(label) for label, _ in part]) for part in rows]
    return Ground(vectors[0], truth[0], vectors[1], truth[1])


def area(ground: Ground, order: str, seed: int, log: Path) -> float:
    """The mean accuracy while labels come in one order."""
    rows = len(ground.truth)
    given = GivenRows([f"text {row}" for row in range(rows)], [str(row) for row in range(rows)], "")
    first = np.random.default_rng(seed).choice(rows, FIRST, replace=False)
    examples = Examples(
        [given.texts[row] for row in first], [str(ground.truth[row]) for row in first], ground.vectors[first]
    )
    decisions = WritableDecisions(log, given.by_name)
    how = How(order=order, seed=seed)  # type: ignore[arg-type]  # one of the two
    session = Labelling(given, ground.vectors, decisions, labels=["0", "1"], examples=examples, how=how)
    accuracies = []
    for labels in range(FIRST, LAST + 1):
        if labels % STEP == 0:
            found = session.fit().probabilities(ground.judged).argmax(axis=1)
            accuracies.append((found == ground.judged_truth).mean())
        question = session.next()
        assert question is not None
        session.label(question, str(ground.truth[question.row]))
    return float(np.mean(accuracies))


def sureness(ground: Ground, examples: int) -> tuple[float, float]:
    """The mean probability of the likelier label, and the share that is right, learnt from so many rows."""
    sure, right = list[float](), list[float]()
    for seed in range(SEEDS):
        rows = np.random.default_rng(seed).choice(len(ground.truth), examples, replace=False)
        found = fit_head(ground.vectors[rows], ground.truth[rows], 2).probabilities(ground.judged)
        sure.append(float(found.max(axis=1).mean()))
        right.append(float((found.argmax(axis=1) == ground.judged_truth).mean()))
    return float(np.mean(sure)), float(np.mean(right))


def main(arguments: Sequence[str] = ()) -> None:
    ground = sst2(Path(os.environ["SEQLOOM_DATA"]) / "sst2", arguments[0]) if arguments else made_up()
    for examples in (count for count in EXAMPLES if count <= len(ground.truth)):
        sure, right = sureness(ground, examples)
        print(f"{examples:3} examples: {sure:.2f} sure, {right:.2f} right")
    found: dict[str, list[float]] = {"active": [], "random": []}
    with temporary_folder("labelling") as folder:
        for seed in range(SEEDS):
            for order in found:
                found[order].append(area(ground, order, seed, folder / f"{order}-{seed}.jsonl"))
    for order, areas in found.items():
        print(f"{order:8} area under accuracy from {FIRST} to {LAST} labels: {np.mean(areas):.4f}")
    differences = np.subtract(found["active"], found["random"])
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    print(f"active - random: {differences.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}, {SEEDS} seeds")


if __name__ == "__main__":
    main(sys.argv[1:])
