"""Batching: padding, fill, speed, and how often rows meet again, for lengths like those of SST-2, Multi30k and PTB."""

import time
from collections.abc import Callable
from itertools import islice

import numpy as np

from seqloom.data.loader import BatchPlan, Loader, collate, packed_batch, stream_batch
from seqloom.data.order import Order, Packs, Streams
from seqloom.data.schema import Schema
from seqloom.text.ragged import Ragged

BATCH_TOKENS, STEPS = 8_192, 400


def lengths(generator: np.random.Generator, mean: float, spread: float, rows: int, longest: int) -> np.ndarray:
    """Return log-normal lengths with this mean and standard deviation of the logarithm."""
    return np.clip(np.rint(generator.lognormal(mean, spread, rows)), 1, longest).astype(np.int64)


def column(generator: np.random.Generator, sizes: np.ndarray) -> Ragged:
    """Return rows of random tokens."""
    return Ragged(generator.integers(6, 8_000, int(sizes.sum()), dtype=np.int32), np.concatenate([[0], sizes.cumsum()]))


def sets() -> dict[str, tuple[Schema, dict[str, Ragged]]]:
    """Return data with the lengths of the sentences and phrases of SST-2 and of the pairs of Multi30k."""
    generator = np.random.Generator(np.random.PCG64(0))
    common = generator.normal(2.45, 0.29, 29_000)
    sides = [np.clip(np.rint(np.exp(common + generator.normal(0, 0.105, 29_000))), 2, 45) for _ in range(2)]
    sentences, phrases = (
        column(generator, lengths(generator, *shape)) for shape in ((2.9, 0.5, 6_920, 56), (2.0, 0.75, 67_349, 60))
    )
    source, target = (column(generator, side.astype(np.int64)) for side in sides)
    classify = Schema("text", "label", ("negative", "positive"))
    return {
        "SST-2 sentences": (classify, {"input": sentences, "target": labels(sentences.rows)}),
        "SST-2 phrases": (classify, {"input": phrases, "target": labels(phrases.rows)}),
        "Multi30k": (Schema("text", "text"), {"input": source, "target": target}),
    }


def labels(rows: int) -> Ragged:
    """Return one label per row."""
    return Ragged(np.arange(rows, dtype=np.int32) % 2, np.arange(rows + 1))


def per_second(plan: BatchPlan, make: Callable, workers: int) -> float:
    """Return batches per second of the loader."""
    steps = Loader(plan, make, workers=workers).steps()
    next(steps)
    began = time.perf_counter()
    count = sum(1 for _ in islice(steps, STEPS))
    return count / (time.perf_counter() - began)


def show(name: str, plan: BatchPlan, make: Callable, again: str) -> None:
    """Print one line of the table."""
    began = time.perf_counter()
    plan.count(9)
    draw = time.perf_counter() - began
    fill = plan.summary(0)
    speeds = " ".join(f"{per_second(plan, make, workers):>7,.0f}" for workers in (0, 1, 2))
    print(
        f"{name:<18}{fill.batches:>8}{fill.rows:>8.0f}{fill.padding:>9.1%}{fill.fill:>7.1%}{again:>9} "
        f"{draw * 1e3:>8.1f} {speeds}"
    )


def main() -> None:
    """Print one line per dataset."""
    print(
        f"{BATCH_TOKENS:,} tokens per batch; "
        "again: share of pairs in a batch that meet again in the next epoch; draw: ms to order an epoch"
    )
    head = "".join(f"{word:>8}" for word in ("0", "1", "2"))
    print(
        f"{'':<18}{'batches':>8}{'rows':>8}{'padding':>9}{'fill':>7}{'again':>9} {'draw':>8}{head} workers: batches/s"
    )
    for name, (schema, columns) in sets().items():
        order = Order(schema.target.sizes(columns), BATCH_TOKENS, seed=0)
        make = lambda rows, schema=schema, columns=columns: collate(schema, columns, rows)  # noqa: E731
        show(name, order, make, f"{order.together(0):.1%}")
    generator = np.random.Generator(np.random.PCG64(1))
    text = column(generator, lengths(generator, 2.93, 0.52, 42_068, 82))
    packs = Packs(text.lengths + 1, 256, BATCH_TOKENS // 256, seed=0)
    show("PTB packed, 256", packs, lambda rows: packed_batch(text, rows), "-")
    streams = Streams(text, rows=64, length=128)
    speeds = " ".join(f"{per_second(streams, lambda cut: stream_batch(streams, cut), n):>7,.0f}" for n in (0, 1, 2))
    print(f"{'PTB streams':<18}{streams.count(0):>8}{streams.rows:>8}{'':>35}{speeds}")


if __name__ == "__main__":
    main()
