"""Claims about the loader: one order for any number of workers, and nothing hangs, is lost or is left behind."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import numpy as np
import pytest

from seqloom.data.loader import Loader, Position, Step
from seqloom.data.order import Order
from seqloom.errors import DataError

SIZES = np.random.Generator(np.random.PCG64(0)).integers(1, 20, (60, 1))
WAYS = [(0, 1), (1, 1), (1, 4), (2, 1), (2, 4), (4, 1), (4, 4)]  # workers, prefetch
Seen = list[tuple[int, int, list[int] | None]]


def order() -> Order:
    return Order(SIZES, 96, seed=5)


def uneven(rows: np.ndarray) -> list[int]:
    """The rows themselves, some of them late, so that workers overtake each other."""
    time.sleep(0.001 if int(rows[0]) % 5 == 0 else 0)
    return rows.tolist()


def seen(steps: Iterator[Step[list[int]]]) -> Seen:
    return [(step.epoch, step.index, step.batch) for step in steps]


def loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("seqloom-loader")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert loader_threads() == []


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_order_is_the_same_for_any_workers_and_prefetch_and_after_any_restart(ranks: int) -> None:
    for rank in range(ranks):
        plan = order()
        expected: Seen = []
        for epoch in (0, 1):
            for index, batch in enumerate(plan.batches(epoch)):
                expected.append((epoch, index, batch[rank::ranks].tolist() or None))
        for workers, prefetch in WAYS:
            loader = Loader(order(), uneven, workers=workers, prefetch=prefetch, rank=rank, ranks=ranks)
            assert seen(loader.steps(until=2)) == expected, (workers, prefetch)
            for stop in range(1, len(expected)):
                before = list(islice(loader.steps(), stop))
                after = loader.steps(before[-1].next, until=2)
                assert seen(iter(before)) + seen(after) == expected, (workers, prefetch, stop)


def test_two_ranks_see_the_examples_of_one_at_every_step() -> None:
    alone = seen(Loader(order(), uneven, workers=0).steps(until=2))
    both = [seen(Loader(order(), uneven, rank=rank, ranks=2).steps(until=2)) for rank in (0, 1)]
    for (epoch, index, batch), *shares in zip(alone, *both, strict=True):
        assert [share[:2] for share in shares] == [(epoch, index)] * 2
        assert sorted((shares[0][2] or []) + (shares[1][2] or [])) == sorted(batch)


def test_a_rank_without_rows_takes_part_in_every_step() -> None:
    plan = Order(np.full((3, 1), 5), 5, seed=0)  # batches of one row
    steps = list(Loader(plan, uneven, rank=1, ranks=2).steps(until=1))
    assert [(step.index, step.batch) for step in steps] == [(0, None), (1, None), (2, None)]


def test_a_position_at_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    count = order().count(0)
    step = next(Loader(order(), uneven).steps(Position(0, count)))
    assert (step.epoch, step.index) == (1, 0)
    assert list(Loader(order(), uneven).steps(Position(0, count), until=1)) == []


def test_a_position_that_no_run_can_have_is_refused() -> None:
    count = order().count(1)
    with pytest.raises(DataError, match=f"no step {count + 1} of epoch 1, which has {count} steps"):
        next(Loader(order(), uneven).steps(Position(1, count + 1)))
    for epoch, index in ((-1, 0), (0, -1)):
        with pytest.raises(DataError, match="from 0"):
            Position(epoch, index)


def test_the_fingerprint_of_an_order_changes_with_everything_that_decides_it() -> None:
    def order_of(sizes: np.ndarray = SIZES, budget: int = 96, seed: int = 5, most_rows: int | None = None) -> str:
        return Order(sizes, budget, seed, most_rows).fingerprint()

    longer = SIZES.copy()
    longer[30] += 1
    others = [order_of(longer), order_of(SIZES[:-1]), order_of(SIZES[::-1]), order_of(SIZES.reshape(-1, 2))]
    others += [order_of(budget=97), order_of(seed=6), order_of(most_rows=4)]
    assert len({order_of(), *others}) == 8
    assert order_of() == order_of(SIZES.astype(np.int16)) == "8fef07a053d79e1d1bf2b2e92522f411"


def failing_at(bad: int) -> Callable[[np.ndarray], list[int]]:
    def make(rows: np.ndarray) -> list[int]:
        if bad in rows:
            raise ValueError(f"example {bad} is broken")
        return rows.tolist()

    return make


@pytest.mark.parametrize(("workers", "prefetch"), WAYS)
def test_an_error_in_a_worker_comes_in_its_turn_with_its_cause(workers: int, prefetch: int) -> None:
    at = next(index for index, batch in enumerate(order().batches(0)) if 17 in batch)
    loader, taken = Loader(order(), failing_at(17), workers=workers, prefetch=prefetch, timeout=20), []
    began = time.monotonic()
    with pytest.raises(DataError, match=f"batch of step {at} of epoch 0.*example 17 is broken") as caught:
        taken.extend(loader.steps())
    assert isinstance(caught.value.__cause__, ValueError)
    assert [step.index for step in taken] == list(range(at)) and time.monotonic() - began < 10


def test_the_cure_of_a_refused_batch_is_kept() -> None:
    def refuse(rows: np.ndarray) -> None:
        raise DataError("the pictures differ in size", fix="crop them")

    with pytest.raises(DataError, match=r"step 0 of epoch 0.*differ in size\. Fix: crop them"):
        next(Loader(order(), refuse).steps())


def test_whoever_leaves_early_leaves_no_thread_behind() -> None:
    loader = Loader(order(), uneven, workers=3)
    for _ in loader.steps():
        assert len(loader_threads()) == 3
        break
    assert loader_threads() == []
    with suppress(KeyError):
        for _ in loader.steps():
            raise KeyError
    assert loader_threads() == []
    steps = loader.steps()
    next(steps)
    steps.close()
    assert loader_threads() == []
    steps = loader.steps()
    next(steps)
    del steps
    gc.collect()
    assert loader_threads() == []


def test_no_thread_starts_before_the_first_step_is_asked_for() -> None:
    steps = Loader(order(), uneven).steps()
    assert loader_threads() == []
    next(steps)
    steps.close()


@pytest.mark.slow
def test_a_worker_that_hangs_is_named() -> None:
    release = threading.Event()

    def hang(rows: np.ndarray) -> list[int]:
        if 17 in rows:
            release.wait(20)
        return rows.tolist()

    at = next(index for index, batch in enumerate(order().batches(0)) if 17 in batch)
    try:
        with pytest.raises(DataError, match=rf"seqloom-loader-\d has not finished step {at} of epoch 0 in 0\.2 s"):
            list(Loader(order(), hang, workers=2, timeout=0.2).steps(until=1))
    finally:
        release.set()
    deadline = time.monotonic() + 10
    while loader_threads() and time.monotonic() < deadline:  # it goes as soon as it can
        time.sleep(0.01)


def test_workers_are_ahead_by_the_prefetch_and_no_further() -> None:
    made: list[int] = []
    loader = Loader(order(), lambda rows: made.append(int(rows[0])), workers=4, prefetch=3)
    steps = loader.steps()
    next(steps)
    time.sleep(0.1)
    assert len(made) == 4  # the one that was taken and three more
    steps.close()


def test_a_plan_without_steps_is_refused_instead_of_turning_for_ever() -> None:
    with pytest.raises(DataError, match="epoch 0 has no steps"):
        next(Loader(Order(np.zeros((0, 1), np.int64), 9, seed=0), uneven).steps())


@pytest.mark.parametrize(("name", "value"), [("workers", -1), ("prefetch", 0), ("rank", 1), ("rank", -1)])
def test_impossible_settings_are_refused(name: str, value: int) -> None:
    with pytest.raises(DataError, match="Fix"):
        Loader(order(), uneven, **{name: value})
