"""Claims about the order of examples: exactly once, inside the budget, pure, different each epoch, little padding."""

import subprocess
import sys
from collections.abc import Callable
from itertools import chain, count, takewhile
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data import order as orders
from seqloom.data.order import Order, Packs, shard
from seqloom.errors import DataError

rows_of_sizes = st.integers(1, 2).flatmap(
    lambda sides: st.lists(st.lists(st.integers(0, 30), min_size=sides, max_size=sides), min_size=1, max_size=120)
)


def lognormal(mean: float, spread: float, count: int, longest: int, seed: int = 1) -> np.ndarray:
    """Lengths like those of sentences."""
    drawn = np.random.Generator(np.random.PCG64(seed)).lognormal(mean, spread, count)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)


def phrases() -> np.ndarray:
    """Like the 67,349 phrases of SST-2."""
    return lognormal(2.0, 0.75, 67_349, 60)[:, None]


def translations() -> np.ndarray:
    """Like the 29,000 pairs of Multi30k: two sides that agree up to a few words (correlation 0.88)."""
    generator = np.random.Generator(np.random.PCG64(2))
    common = generator.normal(2.45, 0.29, 29_000)
    sides = [np.exp(common + generator.normal(0, 0.105, 29_000)) for _ in range(2)]
    return np.clip(np.rint(np.stack(sides, 1)), 2, 45).astype(np.int64) + np.array([0, 1])


def labels(order: Order, epoch: int) -> np.ndarray:
    """The batch that each example is in."""
    found = np.empty(len(order.sizes), np.int64)
    for number, batch in enumerate(order.batches(epoch)):
        found[batch] = number
    return found


def together(one: np.ndarray, other: np.ndarray) -> float:
    """The share of the pairs in one batch that are in one batch again."""
    before = np.unique(one, return_counts=True)[1]
    both = np.unique(np.stack([one, other]), axis=1, return_counts=True)[1]
    return float((both * (both - 1)).sum() / (before * (before - 1)).sum())


@given(rows_of_sizes, st.integers(1, 90), st.integers(0, 2**63 - 1), st.none() | st.integers(1, 9))
def test_every_example_comes_exactly_once_and_no_batch_breaks_its_limits(
    sizes: list[list[int]], budget: int, seed: int, most_rows: int | None
) -> None:
    order = Order(np.array(sizes), budget, seed, most_rows)
    for epoch in (0, 1, 7):
        batches = order.batches(epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
        for batch in batches:
            assert batch.dtype == np.int64 and len(batch) <= (most_rows or len(batch))
            cost = len(batch) * order.sizes[batch].max(axis=0).sum()
            assert cost <= budget or len(batch) == 1


@given(rows_of_sizes, st.integers(1, 90), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_the_order_is_a_function_of_seed_and_epoch_alone(
    sizes: list[list[int]], budget: int, seed: int, epoch: int
) -> None:
    one, other = Order(np.array(sizes), budget, seed), Order(np.array(sizes), budget, seed)
    other.batches(epoch + 1)  # what was asked for before does not matter
    expected = [batch.tolist() for batch in one.batches(epoch)]
    assert [other.at(epoch, index).tolist() for index in range(other.count(epoch))] == expected


@pytest.mark.slow
def test_the_order_is_the_same_in_another_process_and_on_every_machine() -> None:
    program = """if True:
        import numpy as np
        from seqloom.data.order import Order
        sizes = (np.arange(400).reshape(200, 2) * 7919) % 31 + 1
        order = Order(sizes, 256, seed=2**40 + 3)
        print(sum(int(example) * (place + 1) for place, example in enumerate(np.concatenate(order.batches(5)))))
    """
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "1987679\n"  # the order is part of what a run can be resumed from: it may never change


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [phrases(), translations()], ids=["phrases", "translations"])
def test_padding_is_small_batches_are_full_and_neighbors_change(sizes: np.ndarray) -> None:
    order = Order(sizes, 8192, seed=3)
    first, second = (labels(order, epoch) for epoch in (0, 1))
    for epoch in (1, 2, 3):
        fill = order.summary(epoch)
        assert fill.padding < (0.07 if sizes.shape[1] == 1 else 0.08)
        assert fill.fill >= 0.85
        assert fill.batches == order.count(epoch) and fill.rows == len(sizes) / fill.batches
    assert together(first, second) < 0.35  # about 90 batches in bands of one length; see the next test for many
    assert together(first, labels(Order(sizes, 8192, seed=4), 0)) < 0.35


@pytest.mark.slow
def test_of_many_batches_hardly_any_neighbors_stay() -> None:
    sizes = lognormal(3, 0.6, 300_000, 200)[:, None]
    order = Order(sizes, 4096, seed=0)
    assert together(labels(order, 0), labels(order, 1)) < 0.06
    assert order.summary(0).padding < 0.06


def test_the_summary_counts_what_a_count_by_hand_gives() -> None:
    order = Order(np.array([[3, 1], [5, 2], [4, 1], [9, 9]]), batch_tokens=16, seed=1)
    batches = [order.sizes[batch] for batch in order.batches(0)]
    padded = sum(len(sizes) * sizes.max(axis=0).sum() for sizes in batches)
    found = order.summary(0)
    assert found.padding == pytest.approx(1 - order.sizes.sum() / padded)
    costs = [min(1, len(sizes) * sizes.max(axis=0).sum() / 16) for sizes in batches]
    assert found.fill == pytest.approx(sum(costs) / len(costs))


def test_batches_come_in_no_order_of_length() -> None:
    order = Order(phrases(), 8192, seed=0)
    longest = np.array([order.sizes[batch].max() for batch in order.batches(0)])
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.4


@given(st.lists(st.integers(0, 99), max_size=20), st.integers(1, 3))
def test_the_shards_of_a_batch_are_the_batch(batch: list[int], ranks: int) -> None:
    shards = [shard(np.array(batch, np.int64), rank, ranks).tolist() for rank in range(ranks)]
    assert sorted(chain(*shards)) == sorted(batch)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@settings(max_examples=30)
@given(rows_of_sizes, st.integers(1, 3))
def test_the_examples_of_a_step_do_not_depend_on_the_number_of_ranks(sizes: list[list[int]], ranks: int) -> None:
    order = Order(np.array(sizes), 40, seed=0)
    for index in range(order.count(0)):
        shares = [order.share(0, index, rank, ranks) for rank in range(ranks)]
        union = np.concatenate([share for share in shares if share is not None])
        assert sorted(union.tolist()) == sorted(order.at(0, index).tolist())


def test_no_examples_make_no_batches() -> None:
    assert Order(np.zeros((0, 1), np.int64), 10, seed=0).batches(0) == []
    assert Order(np.zeros((0, 2), np.int64), 10, seed=0).summary(0).batches == 0


@pytest.mark.parametrize(
    ("sizes", "budget", "most_rows"),
    [
        (np.zeros(3, np.int64), 10, None),
        (np.zeros((3, 3), np.int64), 10, None),
        (np.zeros((3, 1)), 10, None),
        (np.full((3, 1), -1), 10, None),
        (np.zeros((3, 1), np.int64), 0, None),
        (np.zeros((3, 1), np.int64), 10, 0),
    ],
)
def test_what_cannot_be_ordered_is_refused(sizes: np.ndarray, budget: int, most_rows: int | None) -> None:
    with pytest.raises(DataError):
        Order(sizes, budget, 0, most_rows)


@pytest.mark.slow
def test_ten_million_examples_are_ordered_in_seconds() -> None:
    program = """if True:
        import resource, time
        import numpy as np
        from seqloom.data.order import Order
        sizes = np.random.Generator(np.random.PCG64(0)).integers(1, 60, (10_000_000, 1))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        count = Order(sizes, 8192, 0).count(0)
        print(time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, count)
    """
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    seconds, megabytes, count = map(float, found.stdout.split())
    assert seconds < 40 and megabytes < 1200 and count > 36_000


def asked_at(moment: int, order: Order | Packs) -> list[int]:
    """What another thread is told that asks for the count of an epoch before this line of the code that draws it."""
    lines, found, before = count(), list[int](), sys.gettrace()

    def asked(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_filename == orders.__file__ and next(lines) == moment:
            found.append(order.count(1))
        return asked

    sys.settrace(asked)
    try:
        assert order.count(1) == 5
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize(
    "make",
    [lambda: Order(np.full((9, 1), 3), batch_tokens=6, seed=0), lambda: Packs(np.full(9, 3), 6, 1, seed=0)],
    ids=["rows", "packs"],
)
def test_the_count_of_an_epoch_may_be_asked_for_at_any_moment_while_it_is_drawn(
    make: Callable[[], Order | Packs],
) -> None:
    found = list(takewhile(bool, (asked_at(moment, make()) for moment in count())))
    assert len(found) > 5 and all(one == [5] for one in found)
