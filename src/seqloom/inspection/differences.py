"""The difference of two views of one kind: after less before, wherever both have a number.

Arrays of one shape are subtracted. Where a text has become longer or shorter, rows and columns are brought together by
what stands before and behind the change: the places in between have no partner and no value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

import numpy as np

from seqloom.errors import ConfigError
from seqloom.figures import Bars, Figure, HeatMap, Line, Matrix, Series, Strip
from seqloom.figures.matrix import MOST_CELLS
from seqloom.inspection.curves import blocks_of
from seqloom.inspection.view import MEDIUM, SMALL, View

NAMES = ("tokens", "said", "words", "columns", "rows", "source", "target", "labels")  # of tuples that name an axis
LARGEST_MAP = 256
POINTS = 200  # of a curve
Asked = TypeVar("Asked")


@dataclass(frozen=True, kw_only=True)
class DifferenceView(View):
    """What has changed between two views."""

    kind: ClassVar[str] = "difference"
    of: str  # the kind of the two
    changes: Mapping[str, np.ndarray]  # by the name of the field: after less before; NaN where there is no partner
    names: Mapping[str, tuple[tuple[str, ...], ...]]  # of each field, the names along its axes, where they are known

    @property
    def largest(self) -> Mapping[str, float]:
        """The largest change of each field, whatever its sign."""
        return {name: float(np.nanmax(np.abs(values), initial=0.0)) for name, values in self.changes.items()}

    def figures(self) -> tuple[Figure, ...]:
        drawn = [
            self._drawn(name, values) for name, values in self.changes.items() if values.ndim in (1, 2) and values.size
        ]
        return tuple(drawn) or (self._bars(),)

    def sentences(self) -> tuple[str, ...]:
        return tuple(f"Largest change of {name}: {value:.4g}." for name, value in self.largest.items())

    def _bars(self) -> Figure:
        labels, values = list(self.largest) or ["nothing"], list(self.largest.values()) or [0.0]
        return Bars(title=self.title, labels=labels, values=values, x_label="largest change")

    def _drawn(self, name: str, values: np.ndarray) -> Figure:
        title, axes = f"{self.title}: {name}", self.names[name]
        if values.ndim == 1:
            return self._line(title, values, axes[0])
        cells, span = _gaps(values), _both_ways(values)
        if values.size <= MOST_CELLS and max(values.shape) <= SMALL and all(axes):
            return Matrix(title=title, values=cells, rows=axes[0], columns=axes[1], span=span)
        small = _gaps(_smaller(values))
        return HeatMap(title=title, values=small, value_label="after less before", span=span)

    def _line(self, title: str, values: np.ndarray, names: tuple[str, ...]) -> Figure:
        if names and len(values) <= MEDIUM:
            known = _gaps(values[None])[0]
            return Strip(
                title=title, tokens=names, values=known, value_label="after less before", span=_both_ways(values)
            )
        if np.isnan(values).all():
            return self._bars()
        known = np.nan_to_num(values)
        high, low = blocks_of(known, POINTS), blocks_of(-known, POINTS)
        curves = {"mean": high.mean, "maximum": high.maximum, "minimum": [-value for value in low.maximum]}
        shown = {name: f"{name} of {high.size}" for name in curves} if high.size > 1 else {"mean": "after less before"}
        series = [Series(name=said, x=high.starts, y=curves[name]) for name, said in shown.items()]
        return Line(title=title, series=series, x_label="number", y_label="after less before")


def changed(look: Callable[[Asked], View], before: Asked, after: Asked) -> DifferenceView:
    """How a view of one thing differs from that of another: of two readings, two layers, two models."""
    return difference(look(before), look(after))


def difference(before: View, after: View) -> DifferenceView:
    """What has changed from one view to another of the same kind."""
    if type(before) is not type(after):
        raise ConfigError(f"a view of {before.kind} and one of {after.kind} have no difference", fix="give two alike")
    changes, names = {}, {}
    for field in (each for each in fields(before) if each.compare):
        one, other = _numbers(getattr(before, field.name)), _numbers(getattr(after, field.name))
        if one is None or other is None or one.ndim != other.ndim:
            continue
        axes = tuple(_axis(before, after, length, other.shape[at]) for at, length in enumerate(one.shape))
        if all(axis is not None for axis in axes):
            known = [axis for axis in axes if axis is not None]
            changes[field.name] = _subtracted(one, other, [axis.pairs for axis in known])
            names[field.name] = tuple(axis.names for axis in known)
    return DifferenceView(title=f"What changed in {before.kind}", of=before.kind, changes=changes, names=names)


@dataclass(frozen=True)
class Axis:
    """Which numbers of two axes belong together, and how the places are called."""

    pairs: tuple[tuple[int | None, int | None], ...]
    names: tuple[str, ...]


def _axis(before: View, after: View, one: int, other: int) -> Axis | None:
    """The pairs along an axis: by the names of a field of this length, or number by number."""
    for name in NAMES:
        mine, theirs = getattr(before, name, None), getattr(after, name, None)
        fits = isinstance(mine, tuple) and isinstance(theirs, tuple) and (len(mine), len(theirs)) == (one, other)
        if fits and one and all(isinstance(text, str) for text in (*mine, *theirs)):  # type: ignore[misc]
            return _paired(mine, theirs)  # type: ignore[arg-type]
    return Axis(tuple((at, at) for at in range(one)), ()) if one == other else None


def _paired(before: Sequence[str], after: Sequence[str]) -> Axis:
    """Tokens brought together: those before the first difference, those behind the last, and the ones in between."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    ends = next((at for at in range(shorter - start) if before[-1 - at] != after[-1 - at]), shorter - start)
    gone, come = range(start, len(before) - ends), range(start, len(after) - ends)
    middle = [
        (gone[at] if at < len(gone) else None, come[at] if at < len(come) else None)
        for at in range(max(len(gone), len(come)))
    ]
    same = [(at, at) for at in range(start)]
    tail = [(len(before) - at, len(after) - at) for at in range(ends, 0, -1)]
    pairs = (*same, *middle, *tail)
    return Axis(pairs, tuple(_name(before, after, pair) for pair in pairs))


def _name(before: Sequence[str], after: Sequence[str], pair: tuple[int | None, int | None]) -> str:
    old = None if pair[0] is None else before[pair[0]]
    new = None if pair[1] is None else after[pair[1]]
    return str(new) if old == new else f"{old if old is not None else '∅'} → {new if new is not None else '∅'}"


def _subtracted(
    one: np.ndarray, other: np.ndarray, axes: Sequence[Sequence[tuple[int | None, int | None]]]
) -> np.ndarray:
    olds = [[pair[0] for pair in axis] for axis in axes]
    news = [[pair[1] for pair in axis] for axis in axes]
    found: np.ndarray = _taken(other, news) - _taken(one, olds)
    return found


def _taken(values: np.ndarray, axes: Sequence[Sequence[int | None]]) -> np.ndarray:
    """The chosen places along each axis, NaN where there is none."""
    for at, places in enumerate(axes):
        found = np.take(values, [place or 0 for place in places], axis=at)
        missing = [number for number, place in enumerate(places) if place is None]
        np.moveaxis(found, at, 0)[missing] = np.nan
        values = found
    return values


def _numbers(value: object) -> np.ndarray | None:
    """A field as an array of numbers; None for what is none."""
    if isinstance(value, float):  # whole numbers count and name things: their difference says nothing
        return np.array(value)
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    listed = isinstance(value, tuple) and bool(value) and all(isinstance(one, float) for one in value)
    return np.asarray(value, dtype=float) if whole or listed else None


def _both_ways(values: np.ndarray) -> tuple[float, float] | None:
    """The same scale for more and for less, so that no change is the colour between them."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    return (-largest, largest) if largest > 0 else None


def _gaps(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]


def _smaller(values: np.ndarray) -> np.ndarray:
    """At most 256 rows and columns: of each block the change that is farthest from zero."""
    for _ in range(2):
        size = -(-len(values) // LARGEST_MAP)
        blocks = [values[at : at + size] for at in range(0, len(values), size)]
        values = np.stack([_farthest(block) for block in blocks]).T
    return values


def _farthest(block: np.ndarray) -> np.ndarray:
    known = np.nan_to_num(block)
    found: np.ndarray = np.take_along_axis(block, np.abs(known).argmax(axis=0)[None], axis=0)[0]
    return found
