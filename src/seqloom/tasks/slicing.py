"""Slices: how well a model does on each kind of example, by a column of the data or by the length of the input.

    values   few different ones      a slice each
             many                    the frequent ones a slice each, all others together, as "(others)"
             many numbers            QUANTILES stretches with about as many rows each: "3 to 7"
             none                    "(nothing)"

A slice is an evaluation of its rows: it has the same metrics, and intervals that say how little few rows tell.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.data.values import is_number
from seqloom.tasks.contract import Task
from seqloom.tasks.judging import Evaluation, Slice

MOST_VALUES = 20  # slices of one column
LEAST_ROWS = 5  # of a value with a slice of its own, where there are more values than that
FEW_NUMBERS = 8  # different numbers up to here are names: stars, years
QUANTILES = 5
LONGEST_NAME = 60  # characters
OTHERS, NOTHING = "(others)", "(nothing)"


def sliced(task: Task, evaluation: Evaluation, column: str, values: Sequence[Any]) -> tuple[Slice, ...]:
    """The evaluation of the rows that belong together; `values` are those of its rows, in their order."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names_of(values)):
        found.setdefault(name, []).append(row)
    return tuple(
        Slice(column, name, evaluation.only(task, np.array(found[name])))
        for name in _ordered(list(found), {name: len(rows) for name, rows in found.items()}, values)
    )


def names_of(values: Sequence[Any]) -> list[str]:
    """The name of the slice of each value.

    >>> names_of(["a", "b", "a", None])
    ['a', 'b', 'a', '(nothing)']
    >>> names_of([3, 1, 4, 1, 5, 9, 2, 6, 8, 7])
    ['2 to 3', '1', '4 to 5', '1', '4 to 5', '8 to 9', '2 to 3', '6 to 7', '8 to 9', '6 to 7']
    """
    there = [value for value in values if not _is_nothing(value)]
    if there and all(map(is_number, there)) and len({float(value) for value in there}) > FEW_NUMBERS:
        stretches = _stretches(np.array([float(value) for value in there]))
        return [NOTHING if _is_nothing(value) else _stretch(float(value), stretches) for value in values]
    named = [NOTHING if _is_nothing(value) else _shown(value) for value in values]
    kept = _frequent(Counter(named))
    return [name if name in kept else OTHERS for name in named]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _frequent(counts: Counter[str]) -> set[str]:
    """The values with slices of their own: all of a few, else the most frequent that have rows enough."""
    if len(counts) <= MOST_VALUES:
        return set(counts)
    often = [name for name, count in counts.most_common() if count >= LEAST_ROWS or name == NOTHING]
    return set(often[:MOST_VALUES])


def _stretches(numbers: np.ndarray) -> list[tuple[float, float]]:
    """The least and the largest number of each stretch; numbers that are equal stay together."""
    ends = [-(-len(numbers) * part // QUANTILES) - 1 for part in range(1, QUANTILES + 1)]
    edges = np.unique(np.sort(numbers)[ends])
    different = np.unique(numbers)
    groups = np.searchsorted(edges, different)
    return [(float(one.min()), float(one.max())) for one in (different[groups == at] for at in range(len(edges)))]


def _stretch(number: float, stretches: list[tuple[float, float]]) -> str:
    low, high = next((low, high) for low, high in stretches if number <= high)
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def _ordered(names: list[str], counts: dict[str, int], values: Sequence[Any]) -> list[str]:
    """Stretches and numbers by their size, names by how often they come; what is left over last."""
    last = {OTHERS: 1, NOTHING: 2}
    numeric = all(_is_nothing(value) or is_number(value) for value in values)

    def rank(name: str) -> tuple[int, float, str]:
        size = float(name.partition(" to ")[0]) if numeric and name not in last else -counts[name]
        return last.get(name, 0), size, name

    return sorted(names, key=rank)
