"""The difference of two views of the same kind: after - before, wherever both have a number.

`AXES` says which field of a view has the labels of each axis. If a text becomes longer or shorter, rows and columns are
matched by the text before and after the change. The changed tokens are matched from the end, because only the last
subword has read the complete word; the remaining tokens have no partner and no value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import ClassVar, TypeVar

import numpy as np

from seqloom.errors import ConfigError
from seqloom.inspect.view import MEDIUM, SMALL, View, blocks_of, strongest_in
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number

# for each kind of view, the arrays that can be subtracted and the fields with the labels of their axes; None: positions
# that mean the same in every view. Arrays sorted by size are left out: their entries cannot be matched.
AXES: Mapping[str, Mapping[str, tuple[str | None, ...]]] = {
    "alignment": {"coverage": ("weights.columns",)},
    "attention": {"values": ("rows", "columns"), "entropy": ("rows",), "received": ("columns",)},
    "attribution": {"values": ("tokens",), "baseline_scores": (None,)},
    "attribution_table": {"score": ("rows",), "error": ("rows",)},
    "attributions": {"tau": (None, None), "overlap": (None, None)},
    "change": {"distance": ("rows",)},
    "extrapolation": {"loss": (None,), "loss_beyond": (None,)},
    "gates": {"values": ("names", "tokens", None), "memory": (None,)},
    "lattice": {
        "emissions": ("words", "tags"),
        "marginals": ("words", "tags"),
        "transitions": ("tags", "tags"),
        "starts": ("tags",),
        "ends": ("tags",),
    },
    "maps": {"picture": (None, None), "maps": (None, None, None)},
    "neighbors": {"contextual": (None, None), "static": (None, None), "similarities": ("sentence",)},
    "next_tokens": {"surprisal": ("targets",), "entropy": ("targets",), "rank": ("targets",)},
    "pinned_token": {"values": ("names", "columns")},
    "probe": {"correlations": (None,)},
    "query_key": {"content": ("columns",), "position": ("columns",), "logit": ("columns",), "weights": ("columns",)},
    "similarity_pairs": {"values": ("rows", "columns")},
    "states": {"path": ("tokens", None), "explained_variance": (None,), "step_sizes": ("tokens",)},
}
# fields that depend on a coordinate frame: they are subtracted only if the frames are equal
FRAMES: Mapping[str, Mapping[str, str]] = {"states": {"path": "plane", "explained_variance": "plane"}}
LARGEST_MAP = 256
POINTS = 200  # of a curve
Asked = TypeVar("Asked")


@dataclass(frozen=True, kw_only=True)
class DifferenceView(View):
    """The difference of two views."""

    kind: ClassVar[str] = "difference"
    of: str  # the kind of both views
    changes: Mapping[str, np.ndarray]  # by field: after - before; NaN without a partner
    names: Mapping[str, tuple[tuple[str, ...], ...]]  # by field, the labels along its axes, if known

    @property
    def largest(self) -> Mapping[str, float]:
        """The largest absolute change of each field."""
        return {name: float(np.nanmax(np.abs(values), initial=0.0)) for name, values in self.changes.items()}

    def figures(self) -> tuple[Figure, ...]:
        shown = {name: values for name, values in self.changes.items() if values.ndim in (1, 2) and values.size}
        return tuple(self._drawn(name, values) for name, values in shown.items()) or (self._bars(),)

    def _sentences(self) -> tuple[str, ...]:
        return tuple(f"Largest change of {self.of}.{name}: {number(value)}." for name, value in self.largest.items())

    def _bars(self) -> Figure:
        labels, values = list(self.largest) or ["no change"], list(self.largest.values()) or [0.0]
        return Bars(title=self.title, labels=labels, values=values, x_label="largest change")

    def _drawn(self, name: str, values: np.ndarray) -> Figure:
        title, axes = f"{self.title}: {name}", self.names[name]
        if values.ndim == 1:
            return self._line(title, values, axes[0])
        span = _both_ways(values)
        if values.size <= MOST_CELLS and max(values.shape) <= SMALL and all(axes):
            return Matrix(title=title, values=values.tolist(), rows=axes[0], columns=axes[1], span=span)
        # at most 256 rows and columns: of each block the change that is farthest from zero
        small = strongest_in(values, *(-(-side // LARGEST_MAP) for side in values.shape))
        return HeatMap(title=title, values=small.tolist(), value_label="after - before", span=span)

    def _line(self, title: str, values: np.ndarray, names: tuple[str, ...]) -> Figure:
        if names and len(values) <= MEDIUM:
            span = _both_ways(values)
            return Strip(title=title, tokens=names, values=values.tolist(), value_label="after - before", span=span)
        if np.isnan(values).all():
            return self._bars()
        high, low = blocks_of(values, POINTS), blocks_of(-values, POINTS)
        curves = {"mean": high.mean, "maximum": high.maximum, "minimum": [-value for value in low.maximum]}
        shown = {name: f"{name} of {high.size}" for name in curves} if high.size > 1 else {"mean": "after - before"}
        series = [Series(name=label, x=high.starts, y=curves[name]) for name, label in shown.items()]
        return Line(title=title, series=series, x_label="number", y_label="after - before")


def changed(view: Callable[[Asked], View], before: Asked, after: Asked) -> DifferenceView:
    """Call a view function on two inputs (or layers, or models) and return the difference."""
    return difference(view(before), view(after))


def difference(before: View, after: View) -> DifferenceView:
    """The difference of two views of the same kind; ConfigError for different kinds."""
    if type(before) is not type(after):
        raise ConfigError(
            f"the views {before.kind} and {after.kind} cannot be subtracted", fix="give two views of the same kind"
        )
    changes, names = {}, {}
    for field in (each for each in fields(before) if each.compare and _in_one_frame(before, after, each.name)):
        one, other = _numbers(getattr(before, field.name)), _numbers(getattr(after, field.name))
        if one is None or other is None or (axes := _axes(before, after, field.name, one, other)) is None:
            continue
        olds, news = ([[pair[at] for pair in axis.pairs] for axis in axes] for at in (0, 1))
        changes[field.name] = taken(other, news) - taken(one, olds)
        names[field.name] = tuple(axis.names for axis in axes)
    return DifferenceView(title=f"Change of {before.kind}", of=before.kind, changes=changes, names=names)


def _in_one_frame(before: View, after: View, field: str) -> bool:
    frame = FRAMES.get(before.kind, {}).get(field)
    if frame is None:
        return True
    both = zip(getattr(before, frame), getattr(after, frame), strict=True)
    return all(np.array_equal(one, other) for one, other in both)


@dataclass(frozen=True)
class DifferenceAxis:
    """Matched positions of two axes, with their labels."""

    pairs: tuple[tuple[int | None, int | None], ...]
    names: tuple[str, ...]


def _axes(before: View, after: View, field: str, one: np.ndarray, other: np.ndarray) -> list[DifferenceAxis] | None:
    """The matched axes of two arrays; None if they cannot be matched."""
    named = AXES.get(before.kind, {}).get(field, ())
    if one.ndim != len(named) or other.ndim != len(named):
        return None
    found = []
    for name, old, new in zip(named, one.shape, other.shape, strict=True):
        if name is not None:
            found.append(paired(attrgetter(name)(before), attrgetter(name)(after)))
        elif old == new:  # number by number
            found.append(DifferenceAxis(tuple((at, at) for at in range(old)), ()))
        else:
            return None
    return found


def paired(before: Sequence[str], after: Sequence[str]) -> DifferenceAxis:
    """Match two token sequences: the common beginning, the common end, and the tokens in between.

    >>> paired(("the", "cat", "sat"), ("the", "big", "dog", "sat")).names
    ('the', '∅ → big', 'cat → dog', 'sat')
    """
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    longest = max(len(before), len(after)) - start
    same = [(at, at) for at in range(start)]
    rest = [(_place(len(before) - at, start), _place(len(after) - at, start)) for at in range(longest, 0, -1)]
    pairs = (*same, *rest)
    return DifferenceAxis(pairs, tuple(_name(before, after, pair) for pair in pairs))


def _place(place: int, start: int) -> int | None:
    return place if place >= start else None


def _name(before: Sequence[str], after: Sequence[str], pair: tuple[int | None, int | None]) -> str:
    old = None if pair[0] is None else before[pair[0]]
    new = None if pair[1] is None else after[pair[1]]
    return str(new) if old == new else f"{old if old is not None else '∅'} → {new if new is not None else '∅'}"


def taken(values: np.ndarray, axes: Sequence[Sequence[int | None]]) -> np.ndarray:
    """The values at these positions along each axis; NaN for None."""
    for at, places in enumerate(axes):
        found = np.take(values, [place or 0 for place in places], axis=at)
        missing = [number for number, place in enumerate(places) if place is None]
        np.moveaxis(found, at, 0)[missing] = np.nan
        values = found
    return values


def _numbers(value: object) -> np.ndarray | None:
    """A field as an array of numbers; None if it is not one."""
    if isinstance(value, float):  # integers are counts and indices: their difference means nothing
        return np.array(value)
    whole = isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    listed = isinstance(value, tuple) and bool(value) and all(isinstance(one, float) for one in value)
    return np.asarray(value, dtype=float) if whole or listed else None


def _both_ways(values: np.ndarray) -> tuple[float, float] | None:
    """A symmetric color scale around zero."""
    largest = float(np.nanmax(np.abs(values), initial=0.0))
    return (-largest, largest) if largest > 0 else None
