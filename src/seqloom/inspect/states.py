"""Hidden states as a path: where a layer is after each token, in the plane that holds most of its movement.

The states h_1..h_T [T,D] of one layer are projected on their two principal components; the share of the variance that
these two hold says how far the picture may be trusted. A long path is thinned by its own length: a place is kept
wherever the state has gone another step, so that turns stay and standing still costs nothing. Two paths can be compared
in one plane only: each reading has a plane of its own, unless it is looked at in that of another (`states_beside`).

A probe says which unit tracks what: a property of each token is read off the states by the simplest possible reader.

    one unit     its correlation with the property; of labels the correlation ratio, the root of the share of the
                 variance that lies between them
    all units    ridge regression w = (X'X + lambda I)^-1 X'y, judged on readings that it was not fitted on: R^2 of
                 numbers, accuracy of labels

A reader that is strong enough finds anything anywhere, so the same reader is fitted to the same property dealt out at
random among the tokens (a control in the sense of Hewitt and Liang 2019): what it scores there is worth nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.layers import LayerPlace, chosen, heard, required, short_name, state_places
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Trail
from seqloom.report.numbers import number, share

MOST_DRAWN = 400  # places of a long path
COMPONENTS = 2
NEIGHBOURS = 3  # moves worth looking at that are named


class Plane(NamedTuple):
    """A plane among states: where it is cut, and its two directions, of length one."""

    middle: np.ndarray  # [units]
    directions: np.ndarray  # [2, units], the second one zero where the states move along a line

    def path(self, states: np.ndarray) -> np.ndarray:
        """[N,2] where states [N,units] lie in it."""
        found: np.ndarray = (states - self.middle) @ self.directions.T
        return found

    def held(self, states: np.ndarray) -> tuple[float, float]:
        """The share of the variance of states that each of its directions holds."""
        total = max(float(states.var(axis=0).sum()), 1e-300)
        first, second = (float(variance) / total for variance in self.path(states).var(axis=0))
        return first, second


@dataclass(frozen=True, kw_only=True)
class StatesView(View):
    """The path of the states of one layer through the plane of their two largest components."""

    kind: ClassVar[str] = "states"
    layer: str
    tokens: tuple[str, ...]
    path: np.ndarray  # [elements, 2]
    held: tuple[float, float]  # the share of the variance that each component holds
    moves: np.ndarray  # [elements] how far the whole state went from the one before; 0 for the first
    plane: Plane  # that the path lies in

    def figures(self) -> tuple[Figure, ...]:
        total = len(self.tokens)
        kept = thinned(self.path, MOST_DRAWN if total > MEDIUM else total)
        drawn = f"Drawn from {len(kept):,} of {total:,} places, even steps along the path."
        way = Trail(
            title=f"The states at {short_name(self.layer)}",
            caption=drawn if len(kept) < total else "",
            labels=[self.tokens[at] for at in kept],
            x=self.path[kept, 0].tolist(),
            y=self.path[kept, 1].tolist(),
            numbers=[float(at) for at in kept],
            x_label="first component" + (f", {share(self.held[0])} of the variance" if total > 1 else ""),
            y_label="second component" + (f", {share(self.held[1])}" if total > 1 else ""),
            value_label="element",
        )
        if total <= SMALL:
            return (way,)
        moves = Series(name="", x=[float(at) for at in range(total)], y=self.moves.tolist())
        return way, Line(title="How far the state goes at each element", series=[moves], x_label="element")

    def _sentences(self) -> tuple[str, ...]:
        if len(self.tokens) < 2:
            return ("There is one state alone, and so no path.",)
        first = f"The plane holds {share(sum(self.held))} of the variance of the states."
        farthest = np.argsort(-self.moves, kind="stable")[:NEIGHBOURS]
        named = ", ".join(f"“{self.tokens[at]}” ({at})" for at in farthest)
        return (first, f"The state goes farthest at {named}.")


def states(
    subject: Subject, reading: Reading, *, layer: int | str | None = None, side: str | None = None
) -> StatesView:
    """The path of the states of one layer, the last one if none is named; any family with layers has states."""
    place, found = layer_states(subject, reading, layer=layer, side=side)
    return _view(place, found, principal(found))


def states_beside(subject: Subject, reading: Reading) -> Callable[[Subject, Reading], StatesView]:
    """A look at the states of the last layer in the plane of this reading, whichever reading is looked at."""
    plane = principal(layer_states(subject, reading)[1])
    return lambda asked, other: _view(*layer_states(asked, other), plane)


def _view(place: LayerPlace, found: np.ndarray, plane: Plane) -> StatesView:
    moves = np.zeros(len(found))
    moves[1:] = np.linalg.norm(np.diff(found, axis=0), axis=1)
    return StatesView(
        title=f"The path of the states of {place.path}",
        layer=place.path,
        tokens=tuple(token.text for token in place.tokens),
        path=plane.path(found),
        held=plane.held(found),
        moves=moves,
        plane=plane,
    )


def layer_states(
    subject: Subject, reading: Reading, *, layer: int | str | None = None, side: str | None = None
) -> tuple[LayerPlace, np.ndarray]:
    """Which layer was meant, and [elements, units] what leaves it, in double precision."""
    place = chosen({each.path: each for each in layers_with_states(subject, reading, side)}, layer, "layers")
    values: Any = heard(subject, reading, [place.path])[place.path][place.call][0]
    return place, values.double().cpu().numpy()


def layers_with_states(subject: Subject, reading: Reading, side: str | None = None) -> Sequence[LayerPlace]:
    """Where the vectors that leave each layer can be heard; ConfigError for a model that has no layers."""
    found = state_places(subject.model, reading, side)
    return required(found, subject.model, "states", "it has no layers between its input and its answer")


def principal(states: np.ndarray) -> Plane:
    """The plane of the two largest components of states [N,units].

    The sign of a component is free; here its largest entry is positive, so that the same states give the same picture.
    """
    middle = states.mean(axis=0)
    _, _, directions = np.linalg.svd(states - middle, full_matrices=False)
    kept = directions[:COMPONENTS]
    signs = np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(axis=1)])
    both = np.zeros((COMPONENTS, states.shape[1]))
    both[: len(kept)] = kept * signs[:, None]
    return Plane(middle, both)


def thinned(path: np.ndarray, most: int) -> list[int]:
    """The places that are kept of a path: one for each even step along it, the first and the last among them."""
    if len(path) <= most:
        return list(range(len(path)))
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    wanted = np.linspace(0, along[-1], most)
    return sorted({0, len(path) - 1, *(int(at) for at in np.searchsorted(along, wanted[1:-1]))})


Value = float | str | None  # None: the token has no such property and is left out
Property = Callable[[Sequence[str]], Sequence[Value]]

HELD_OUT = 0.3  # of the readings
RIDGE = 1e-3  # times the mean variance of a unit
BEST = 10  # units that are shown
EXAMPLE = 200  # tokens of the picture of the best unit
OPENING, CLOSING = "([{<", ")]}>"


def position(tokens: Sequence[str]) -> list[Value]:
    """The number of each token."""
    return [float(at) for at in range(len(tokens))]


def depth(tokens: Sequence[str]) -> list[Value]:
    """How many brackets are open after each token.

    >>> depth(["(", "a", "(", ")", ")"])
    [1.0, 1.0, 2.0, 1.0, 0.0]
    """
    found: list[Value] = []
    level = 0
    for token in tokens:
        level += sum(token.count(each) for each in OPENING) - sum(token.count(each) for each in CLOSING)
        found.append(float(level))
    return found


PROPERTIES: Mapping[str, Property] = {"position": position, "depth": depth}


class Unit(NamedTuple):
    """How well one unit goes with the property."""

    unit: int
    correlation: float  # signed for numbers; of labels the correlation ratio


@dataclass(frozen=True, kw_only=True)
class ProbeView(View):
    """How far the states of a layer know a property of each token."""

    kind: ClassVar[str] = "probe"
    layer: str
    tracked: str
    measure: str  # R2 or accuracy
    tokens: int  # that were looked at
    fitted: int  # those of them that stand in readings which are not held out
    correlations: np.ndarray  # [units] with the property, on the same: the best unit is chosen without the others
    score: float  # of all units together, on readings held out
    control: float  # the same for the property dealt out at random
    best_unit: float  # R2 of the best unit by itself, on readings held out; the accuracy of its label means
    example: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]  # tokens, the property, the best unit

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, the best first."""
        order = np.argsort(-np.abs(self.correlations), kind="stable")
        return tuple(Unit(int(unit), float(self.correlations[unit])) for unit in order)

    def figures(self) -> tuple[Figure, ...]:
        best = self.units[:BEST]
        bars = Bars(
            title=f"Units of {short_name(self.layer)} that track {self.tracked}",
            labels=[f"unit {each.unit}" for each in best],
            values=[each.correlation for each in best],
            x_label="correlation",
        )
        scores = Bars(
            title=f"What a linear reader makes of it ({self.measure}, readings held out)",
            labels=["all units", f"unit {best[0].unit} alone", "all units, dealt out at random"],
            values=[self.score, self.best_unit, self.control],
            x_label=self.measure,
        )
        return (bars, scores, self._beside())

    def _beside(self) -> Figure:
        """The property and the best unit over one reading, each on its own scale."""
        _, tracked, unit = self.example
        name = f"unit {self.units[0].unit}"
        title, places = f"{self.tracked.capitalize()} and {name}", [float(at) for at in range(len(tracked))]
        curves = [(self.tracked, _standard(tracked)), (name, _standard(unit))]
        if len(places) < 2:
            return HeatMap(title=title, values=[list(curve) for _, curve in curves])
        series = [Series(name=name, x=places, y=curve) for name, curve in curves]
        return Line(title=title, caption="Each in its own standard deviations.", series=series, x_label="token")

    def _sentences(self) -> tuple[str, ...]:
        best = self.units[0]
        return (
            f"Unit {best.unit} goes with {self.tracked} at {number(best.correlation)} over {self.fitted:,} tokens; "
            f"where it was not chosen, it alone reads it with {self.measure} {number(self.best_unit)}.",
            f"All units together read it with {self.measure} {number(self.score)} where they were not fitted; dealt "
            f"out at random, {number(self.control)}.",
        )


def probe(
    subject: Subject,
    readings: Sequence[Reading],
    tracked: str | Property | Sequence[Sequence[Value]],
    *,
    layer: int | str | None = None,
    side: str | None = None,
    name: str | None = None,
    seed: int = 0,
) -> ProbeView:
    """How far a layer tracks a property: `position`, `depth`, a function of the tokens, or values for each of them.

    Whole readings are held out, so that a reader cannot know their tokens from others of the same text.
    """
    said = name or (tracked if isinstance(tracked, str) else "the property")
    if isinstance(tracked, str) and tracked not in PROPERTIES:
        raise ConfigError(f"there is no property '{tracked}'", fix=did_you_mean(tracked, PROPERTIES))
    if len(readings) < 2:
        raise DataError(
            f"a probe needs readings to hold out, found {len(readings)}",
            fix="give at least 2, better 20: inspect(..., among=[...]), or --data FILE",
        )
    found = [layer_states(subject, reading, layer=layer, side=side) for reading in readings]
    texts = [tuple(token.text for token in place.tokens) for place, _ in found]
    values = _values(PROPERTIES[tracked] if isinstance(tracked, str) else tracked, texts)
    sample = _ProbeSample.of([states for _, states in found], values)
    train, test = sample.parted(len(readings), seed)
    dealt = sample._replace(values=sample.values[np.random.default_rng(seed).permutation(len(sample.values))])
    correlations = sample.only(train).correlations()
    best = int(np.abs(correlations).argmax())
    row = sample.readings == sample.readings[0]
    return ProbeView(
        title=f"Where {said} is tracked",
        layer=found[0][0].path,
        tracked=said,
        measure="R2" if sample.labels is None else "accuracy",
        tokens=len(sample.values),
        fitted=int(train.sum()),
        correlations=correlations,
        score=sample.score(train, test),
        control=dealt.score(train, test),
        best_unit=sample._replace(states=sample.states[:, best : best + 1]).score(train, test),
        example=(
            tuple(text for text, value in zip(texts[0], values[0], strict=True) if value is not None)[:EXAMPLE],
            tuple(float(value) for value in sample.values[row][:EXAMPLE]),
            tuple(float(value) for value in sample.states[row, best][:EXAMPLE]),
        ),
    )


class _ProbeSample(NamedTuple):
    """Every token that has the property, of all readings."""

    states: np.ndarray  # [N,D]
    values: np.ndarray  # [N] numbers, or the numbers of labels
    readings: np.ndarray  # [N] where each token stands
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, states: Sequence[np.ndarray], values: Sequence[Sequence[Value]]) -> "_ProbeSample":
        """The sample, with labels numbered; DataError for what is neither numbers nor labels, or all the same."""
        kept = [np.array([value is not None for value in row], dtype=bool) for row in values]
        known = [value for row in values for value in row if value is not None]
        labels = tuple(sorted({str(value) for value in known})) if any(isinstance(one, str) for one in known) else None
        numbers = [float(labels.index(str(one))) if labels is not None else float(one) for one in known]
        if len(set(numbers)) < 2:
            raise DataError("the property is the same at every token", fix="track one that differs")
        rows = np.concatenate([np.full(int(mask.sum()), at) for at, mask in enumerate(kept)])
        chosen = np.concatenate([part[mask] for part, mask in zip(states, kept, strict=True)])
        return cls(chosen, np.array(numbers), rows, labels)

    def parted(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Which tokens the reader is fitted on, and which it is judged on."""
        order = np.random.default_rng(seed).permutation(count)
        held = order[: max(1, round(HELD_OUT * count))]
        test = np.isin(self.readings, held)
        if not test.any() or test.all():
            raise DataError("all tokens with the property stand in one reading", fix="give more readings")
        return ~test, test

    def only(self, chosen: np.ndarray) -> "_ProbeSample":
        """The tokens where a mask [N] is true."""
        return self._replace(states=self.states[chosen], values=self.values[chosen], readings=self.readings[chosen])

    def correlations(self) -> np.ndarray:
        """[D] of each unit with the property."""
        centred = self.states - self.states.mean(axis=0)
        spread = np.maximum(np.linalg.norm(centred, axis=0), 1e-12)
        if self.labels is None:
            value = self.values - self.values.mean()
            found: np.ndarray = value @ centred / (spread * max(float(np.linalg.norm(value)), 1e-12))
            return found
        groups = [centred[self.values == label] for label in np.unique(self.values)]
        between = np.sum([len(group) * group.mean(axis=0) ** 2 for group in groups], axis=0)
        shares: np.ndarray = np.sqrt(np.minimum(between / spread**2, 1.0))
        return shares

    def score(self, train: np.ndarray, test: np.ndarray) -> float:
        """R^2 of numbers, accuracy of labels, of ridge regression on the tokens held out."""
        wanted = self.values[:, None] if self.labels is None else np.eye(len(self.labels))[self.values.astype(int)]
        middle, mean = self.states[train].mean(axis=0), wanted[train].mean(axis=0)
        fed = self.states - middle
        square = fed[train].T @ fed[train]
        ridge = RIDGE * max(float(np.trace(square)) / len(square), 1e-12) * np.eye(len(square))
        guess = fed[test] @ np.linalg.solve(square + ridge, fed[train].T @ (wanted[train] - mean)) + mean
        if self.labels is not None:
            return float((guess.argmax(axis=1) == self.values[test]).mean())
        rest = self.values[test] - self.values[train].mean()
        return 1 - float(((guess[:, 0] - self.values[test]) ** 2).sum()) / max(float((rest**2).sum()), 1e-12)


def _values(tracked: Property | Sequence[Sequence[Value]], texts: Sequence[tuple[str, ...]]) -> list[Sequence[Value]]:
    """The property of every token, one row for each reading."""
    rows = [tracked(text) for text in texts] if callable(tracked) else list(tracked)
    if len(rows) != len(texts):
        raise DataError(f"{len(rows)} rows of values for {len(texts)} readings", fix="give one row for each")
    for at, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if len(row) != len(text):
            raise DataError(
                f"reading {at} has {len(text)} tokens and {len(row)} values",
                fix="give one for each token, None where there is none",
            )
    return rows


def _standard(values: Sequence[float]) -> list[float]:
    numbers = np.array(values)
    found: list[float] = ((numbers - numbers.mean()) / (float(numbers.std()) or 1.0)).tolist()
    return found
