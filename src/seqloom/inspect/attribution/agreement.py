"""Several methods on the same answer, one row each, and how far they agree.

Methods that disagree are no fault of the picture: they answer different questions, and a reader should see that.
Rankings are by the size of a value, whatever its sign, for two of the methods have none. Tau also ranks the many tokens
that do not matter, and is low for two methods that agree on the few that do; so the overlap of the strongest stands
beside it (Neely et al. 2022).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.attribution import AttributionView, view_of
from seqloom.inspect.attribution.goals import chosen_goal, ground_of
from seqloom.inspect.attribution.methods import METHODS, MethodOptions, method_of
from seqloom.inspect.faithfulness.agreement import kendall, overlap
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import SMALL, View
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import Matrix
from seqloom.report.numbers import number, share

LARGEST_MAP = 240


@dataclass(frozen=True, kw_only=True)
class AttributionsView(View):
    """Attributions of one answer by several methods, and their agreement."""

    kind: ClassVar[str] = "attributions"
    answer: str
    views: tuple[AttributionView, ...]
    tau: np.ndarray  # [M,M] Kendall's tau-b between sizes; NaN where it has no meaning
    overlap: np.ndarray  # [M,M] of the `top` strongest tokens
    top: int
    left_out: tuple[str, ...]  # methods that this model or input has not

    def figures(self) -> tuple[Figure, ...]:
        strongest = f"Overlap of the {self.top} strongest tokens"
        return (*self._rows(), self._matrix("Kendall's tau", self.tau), self._matrix(strongest, self.overlap))

    def _sentences(self) -> tuple[str, ...]:
        errors = [
            f"{METHODS[view.method].title} {'adds up to no score' if view.error is None else f'{share(view.error)}'}"
            for view in self.views
        ]
        said = [f"Completeness errors: {', '.join(errors)}. Baseline: {self.views[0].baseline}."]
        if len(self.views) > 1 and np.isfinite(self.tau).all():
            low, high = self._extremes()
            said.append(f"Of two methods {low} agree least and {high} most, by tau.")
        if self.left_out:
            said.append(f"Left out: {', '.join(self.left_out)}; this model or input has none.")
        return tuple(said)

    def _rows(self) -> list[Figure]:
        if max(len(part.tokens) for part in self.views[0].parts) <= SMALL and self.views[0].parts[0].shape is None:
            return [figure for view in self.views for figure in view.figures()]
        return [self._map(number) for number in range(len(self.views[0].parts))]

    def _map(self, number: int) -> Figure:
        """One row for each method, each by its own largest value."""
        values = [view.parts[number].values for view in self.views]
        across = -(-len(values[0]) // LARGEST_MAP)
        starts = np.arange(0, len(values[0]), across)
        pooled = [_strongest(each / (np.nanmax(np.abs(each), initial=0.0) or 1.0), starts) for each in values]
        names = "; ".join(f"Row {row}: {METHODS[view.method].title}" for row, view in enumerate(self.views))
        name = self.views[0].parts[number].name
        cell = f"; a cell is the strongest of {across} tokens" if across > 1 else ""
        return HeatMap(
            title=f"{self.title}, {name}",
            caption=f"{names}. Each as a part of its own largest value{cell}.",
            values=[row.tolist() for row in pooled],
            x=starts.astype(float).tolist(),
            x_label="token",
            y_label="method",
            value_label="part of the largest",
        )

    def _matrix(self, title: str, values: np.ndarray) -> Figure:
        names = [METHODS[view.method].title for view in self.views]
        cells = [[None if math.isnan(value) else float(value) for value in row] for row in values]
        low = min(0.0, float(np.nanmin(values, initial=0.0)))
        return Matrix(title=title, rows=names, columns=names, values=cells, span=(low, 1.0))

    def _extremes(self) -> tuple[str, str]:
        pairs = [(a, b) for a in range(len(self.views)) for b in range(a)]
        ranked = sorted(pairs, key=lambda pair: float(self.tau[pair]))
        low, high = ranked[0], ranked[-1]
        titles = [METHODS[view.method].title for view in self.views]
        return tuple(  # type: ignore[return-value]  # of two pairs
            f"{titles[b]} and {titles[a]} ({number(self.tau[a, b])})" for a, b in (low, high)
        )


def _strongest(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The value of the largest size in each block, with its sign."""
    ups, downs = np.fmax.reduceat(values, starts), np.fmin.reduceat(values, starts)  # NaN where there is none
    return np.where(ups >= -downs, ups, downs)


def attributions_compared(
    subject: Subject,
    reading: Reading,
    *,
    methods: Sequence[str] | None = None,
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
    baseline: str | None = None,
    words: bool = False,
    top: int | None = None,
) -> AttributionsView:
    """Attributions by several methods (all that this model has, if none are named) and how far they agree.

    `top` is how many of the strongest tokens are compared: a tenth of them, and at least three, if it is not given.
    """
    for name in methods or ():
        method_of(name)
    ground = ground_of(subject, reading, baseline)
    goal = chosen_goal(subject, reading, answer=answer, against=against, at=at)
    views, left_out = [], []
    with subject.work("methods", len(methods or METHODS)) as moved:
        for name in methods or METHODS:
            try:
                views.append(view_of(ground, goal, name, MethodOptions(words=words)))
            except ConfigError:
                if methods:
                    raise
                left_out.append(METHODS[name].title)
            moved(1)
    # [M,N] the size of each value, of the tokens that every method has measured
    values = np.stack([np.concatenate([part.values for part in view.parts]) for view in views])
    sizes: np.ndarray = np.abs(values[:, ~np.isnan(values).any(axis=0)])
    count = min(sizes.shape[1], top or max(3, sizes.shape[1] // 10))
    return AttributionsView(
        title=f"What moved {goal.name}, by {len(views)} methods",
        answer=goal.name,
        views=tuple(views),
        tau=np.array([[_tau(a, b) for b in sizes] for a in sizes]),
        overlap=np.array([[overlap(a, b, (count - 0.5) / len(a)) for b in sizes] for a in sizes]),
        top=count,
        left_out=tuple(left_out),
    )


def _tau(a: np.ndarray, b: np.ndarray) -> float:
    found = kendall(a, b)
    return math.nan if found is None else found.value
