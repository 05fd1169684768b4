"""What does the same again: the steps of a loop, the layers of a stack.

A recurrence written as a loop is one row of operations, the same few over and over. Here such a run becomes steps, each
a part like that of a module, so that everything else knows one kind of repeat only: parts in a row that do the same.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.inspection.graphs.trace import Op, Trace

LONGEST_BODY = 96  # operations or parts of one step
FEWEST_STEPS = 3  # fewer may be chance
NUMBERS = re.compile(r"#?\d+")  # of a layer, of a call


class Item(NamedTuple):
    """What stands directly inside a part: a call, or an operation by itself."""

    call: str  # its label; empty for an operation
    ops: tuple[int, ...]


class Run(NamedTuple):
    """Items from `start` on that repeat: `times` times a body of `length` items."""

    start: int
    length: int
    times: int


def items_of(ops: Sequence[Op], indices: Sequence[int], depth: int) -> list[Item]:
    """What stands directly inside a part that is `depth` calls deep and has these operations, in order."""
    found = list[tuple[str, list[int]]]()
    for at in indices:
        call = ops[at].path[depth] if len(ops[at].path) > depth else ""
        if call and found and found[-1][0] == call:
            found[-1][1].append(at)
        else:
            found.append((call, [at]))
    return [Item(call, tuple(members)) for call, members in found]


def likeness(ops: Sequence[Op], item: Item, depth: int) -> Hashable:
    """What two items have in common that do the same: names, shapes and, of single operations, weights."""
    if not item.call:
        op = ops[item.ops[0]]
        return op.name, op.shape, op.weights, op.label
    inside = tuple((ops[at].name, ops[at].shape, _bare(ops[at].path[depth + 1 :])) for at in item.ops)
    return NUMBERS.sub("", item.call), inside


def _bare(path: tuple[str, ...]) -> str:
    return NUMBERS.sub("", "/".join(path))


def with_steps(trace: Trace) -> Trace:
    """The same with the steps of loops as calls of their own."""
    ops = list(trace.ops)
    _label(ops, range(len(ops)), 0)
    return trace._replace(ops=tuple(ops))


def _label(ops: list[Op], indices: Sequence[int], depth: int) -> None:
    items = items_of(ops, indices, depth)
    before = [len(ops[item.ops[0]].path) for item in items]
    for number, run in enumerate(runs([likeness(ops, item, depth) for item in items]), start=1):
        for step in range(run.times):
            first = run.start + step * run.length
            name = f"step {step}" if number == 1 else f"loop {number} step {step}"
            for item in items[first : first + run.length]:
                _insert(ops, item.ops, depth, name)
    for item, was in zip(items, before, strict=True):
        if item.call:
            _label(ops, item.ops, depth + 1 + len(ops[item.ops[0]].path) - was)


def _insert(ops: list[Op], indices: Sequence[int], depth: int, name: str) -> None:
    for at in indices:
        path = ops[at].path
        label = f"{path[depth - 1]}.{name}" if depth else name
        ops[at] = ops[at]._replace(path=(*path[:depth], label, *path[depth:]))


def runs(keys: Sequence[Hashable]) -> Iterator[Run]:
    """The runs of bodies of two items or more, from left to right, the longest first where several begin.

    >>> list(runs("xababababy"))
    [Run(start=1, length=2, times=4)]
    """
    numbers = dict[Hashable, int]()
    known = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    same = {length: _alike(known, length) for length in range(2, min(LONGEST_BODY, len(known) // FEWEST_STEPS) + 1)}
    at = 0
    while at < len(known):
        best = Run(at, 1, 1)
        for length, alike in same.items():
            count = 1 + int(alike[at]) // length
            if count >= FEWEST_STEPS and length * count > best.length * best.times:
                best = Run(at, length, count)
        if best.times > 1 and len(set(known[at : at + best.length].tolist())) > 1:
            yield best
            at += best.length * best.times
        else:
            at += 1


def _alike(keys: np.ndarray, length: int) -> np.ndarray:
    """For each place, how many items from it on equal those `length` later."""
    equal = np.zeros(len(keys) + 1, dtype=np.int64)
    equal[: len(keys) - length] = keys[:-length] == keys[length:]
    broken = np.flatnonzero(equal == 0)
    return broken[np.searchsorted(broken, np.arange(len(keys)))] - np.arange(len(keys))
