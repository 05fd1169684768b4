"""Hidden states as a path in two dimensions (PCA), and linear probes of a layer.

The states h_1..h_T [T,D] of one layer are projected on their first two principal components; their explained variance
says how complete the figure is. A long path is thinned to evenly spaced points along it. Each reading has its own
plane; `states_compared` draws another reading in the same plane.

A probe predicts a feature of each token from the states with a linear model.

    one unit     its correlation with the feature; of labels the correlation ratio, the root of the share of the
                 variance between them
    all units    ridge regression w = (X'X + lambda I)^-1 X'y, evaluated on held-out inputs: R^2 of numbers, accuracy
                 of labels

A probe can find something by chance, so the same probe is fitted to the same feature shuffled among the tokens (a
control task, Hewitt and Liang 2019): compare the two scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.layer_names import layer_title, short_name
from seqloom.inspect.layers import LayerPlace, chosen, heard, required, state_places
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Trail
from seqloom.report.numbers import number, share

MOST_DRAWN = 400  # points of a long path
COMPONENTS = 2
NEIGHBORS = 3  # large steps that are named


class Plane(NamedTuple):
    """A plane of states: its center and two unit directions."""

    middle: np.ndarray  # [units]
    directions: np.ndarray  # [2, units], the second is zero if the states are on a line

    def path(self, states: np.ndarray) -> np.ndarray:
        """[N,2] the coordinates of states [N,units]."""
        found: np.ndarray = (states - self.middle) @ self.directions.T
        return found

    def held(self, states: np.ndarray) -> tuple[float, float]:
        """The fraction of the variance of states along each direction."""
        total = max(float(states.var(axis=0).sum()), 1e-300)
        first, second = (float(variance) / total for variance in self.path(states).var(axis=0))
        return first, second


@dataclass(frozen=True, kw_only=True)
class StatesView(View):
    """The states of one layer in the plane of their first two principal components."""

    kind: ClassVar[str] = "states"
    layer: str
    tokens: tuple[str, ...]
    path: np.ndarray  # [elements, 2]
    explained_variance: tuple[float, float]  # fraction of the variance along each component
    step_sizes: np.ndarray  # [elements] distance from the previous state; 0 for the first
    plane: Plane  # of the path

    def figures(self) -> tuple[Figure, ...]:
        total = len(self.tokens)
        kept = thinned(self.path, MOST_DRAWN if total > MEDIUM else total)
        drawn = f"{len(kept):,} of {total:,} states are drawn, evenly spaced."
        way = Trail(
            title=f"Hidden states of {short_name(self.layer)} (PCA)",
            caption=drawn if len(kept) < total else "",
            labels=[self.tokens[at] for at in kept],
            x=self.path[kept, 0].tolist(),
            y=self.path[kept, 1].tolist(),
            numbers=[float(at) for at in kept],
            x_label="first principal component"
            + (f", {share(self.explained_variance[0])} of the variance" if total > 1 else ""),
            y_label="second principal component" + (f", {share(self.explained_variance[1])}" if total > 1 else ""),
            value_label="token",
        )
        if total <= SMALL:
            return (way,)
        moves = Series(name="", x=[float(at) for at in range(total)], y=self.step_sizes.tolist())
        return way, Line(title="Distance between successive states", series=[moves], x_label="token")

    def _sentences(self) -> tuple[str, ...]:
        if len(self.tokens) < 2:
            return ("There is only one state.",)
        first = f"The first two principal components explain {share(sum(self.explained_variance))} of the variance."
        farthest = np.argsort(-self.step_sizes, kind="stable")[:NEIGHBORS]
        named = ", ".join(f"“{self.tokens[at]}” ({at})" for at in farthest)
        return (first, f"The largest changes are at {named}.")


def states(
    subject: Subject, reading: Reading, *, layer: int | str | None = None, side: str | None = None
) -> StatesView:
    """The hidden states of one layer in two dimensions (PCA).

    Args:
        layer: Number or path of the layer (default: the last).
        side: The sequence: source or target, first or second.
    """
    place, found = layer_states(subject, reading, layer=layer, side=side)
    return _view(place, found, principal(found))


def states_compared(subject: Subject, reading: Reading) -> Callable[[Subject, Reading], StatesView]:
    """A view of the states of the last layer that uses the plane of this reading for any reading."""
    plane = principal(layer_states(subject, reading)[1])
    return lambda viewed, other: _view(*layer_states(viewed, other), plane)


def _view(place: LayerPlace, found: np.ndarray, plane: Plane) -> StatesView:
    moves = np.zeros(len(found))
    moves[1:] = np.linalg.norm(np.diff(found, axis=0), axis=1)
    return StatesView(
        title=f"Hidden states of {layer_title(place.path)}",
        layer=place.path,
        tokens=tuple(token.text for token in place.tokens),
        path=plane.path(found),
        explained_variance=plane.held(found),
        step_sizes=moves,
        plane=plane,
    )


def layer_states(
    subject: Subject, reading: Reading, *, layer: int | str | None = None, side: str | None = None
) -> tuple[LayerPlace, np.ndarray]:
    """The layer, and its outputs [tokens, units] in double precision."""
    place = chosen({each.path: each for each in layers_with_states(subject, reading, side)}, layer, "layers")
    values: Any = heard(subject, reading, [place.path])[place.path][place.call][0]
    return place, values.double().cpu().numpy()


def layers_with_states(subject: Subject, reading: Reading, side: str | None = None) -> Sequence[LayerPlace]:
    """The taps with the outputs of each layer; ConfigError for a model without layers."""
    found = state_places(subject.model, reading, side)
    return required(found, subject.model, "states", "it has no layers between input and output")


def principal(states: np.ndarray) -> Plane:
    """The plane of the two largest components of states [N,units].

    The largest entry of each component is positive, so that the same states give the same figure.
    """
    middle = states.mean(axis=0)
    _, _, directions = np.linalg.svd(states - middle, full_matrices=False)
    kept = directions[:COMPONENTS]
    signs = np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(axis=1)])
    both = np.zeros((COMPONENTS, states.shape[1]))
    both[: len(kept)] = kept * signs[:, None]
    return Plane(middle, both)


def thinned(path: np.ndarray, most: int) -> list[int]:
    """The numbers of evenly spaced points along a path, including the first and the last."""
    if len(path) <= most:
        return list(range(len(path)))
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    wanted = np.linspace(0, along[-1], most)
    return sorted({0, len(path) - 1, *(int(at) for at in np.searchsorted(along, wanted[1:-1]))})


Value = float | str | None  # None: the token does not have the feature and is left out
Property = Callable[[Sequence[str]], Sequence[Value]]

HELD_OUT = 0.3  # of the readings
RIDGE = 1e-3  # times the mean variance of a unit
BEST = 10  # units that are shown
EXAMPLE = 200  # tokens in the figure of the best unit
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
    """The correlation of one unit with the feature."""

    unit: int
    correlation: float  # signed for numbers; of labels the correlation ratio


@dataclass(frozen=True, kw_only=True)
class ProbeView(View):
    """How well the states of a layer predict a feature of each token."""

    kind: ClassVar[str] = "probe"
    layer: str
    feature: str
    metric: str  # R2 or accuracy
    tokens: int  # number of tokens
    num_train: int  # tokens in inputs that are not held out
    correlations: np.ndarray  # [units] with the feature, on training tokens: the best unit is chosen without the others
    score: float  # of all units, on held-out inputs
    control: float  # for the shuffled feature
    best_unit_score: float  # R2 of the best unit, on held-out inputs; for labels the accuracy of its class means
    example: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]  # tokens, the feature, the best unit

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, the best first."""
        order = np.argsort(-np.abs(self.correlations), kind="stable")
        return tuple(Unit(int(unit), float(self.correlations[unit])) for unit in order)

    def figures(self) -> tuple[Figure, ...]:
        best = self.units[:BEST]
        bars = Bars(
            title=f"Units of {short_name(self.layer)} that track {self.feature}",
            labels=[f"unit {each.unit}" for each in best],
            values=[each.correlation for each in best],
            x_label="correlation",
        )
        scores = Bars(
            title=f"Linear probe: {self.metric} on held-out inputs",
            labels=["all units", f"unit {best[0].unit} alone", "all units, shuffled labels (control)"],
            values=[self.score, self.best_unit_score, self.control],
            x_label=self.metric,
        )
        return (bars, scores, self._beside())

    def _beside(self) -> Figure:
        """The feature and the best unit over one input, both standardized."""
        _, tracked, unit = self.example
        name = f"unit {self.units[0].unit}"
        title, places = f"{self.feature.capitalize()} and {name}", [float(at) for at in range(len(tracked))]
        curves = [(self.feature, _standard(tracked)), (name, _standard(unit))]
        if len(places) < 2:
            return HeatMap(title=title, values=[list(curve) for _, curve in curves])
        series = [Series(name=name, x=places, y=curve) for name, curve in curves]
        return Line(title=title, caption="Both standardized.", series=series, x_label="token")

    def _sentences(self) -> tuple[str, ...]:
        best = self.units[0]
        return (
            f"Unit {best.unit} has a correlation of {number(best.correlation)} with {self.feature} "
            f"({self.num_train:,} training tokens). On held-out inputs it alone reaches "
            f"{self.metric} {number(self.best_unit_score)}.",
            f"A linear probe on all units reaches {self.metric} {number(self.score)} on held-out inputs; "
            f"with shuffled labels {number(self.control)}.",
        )


def probe(
    subject: Subject,
    readings: Sequence[Reading],
    feature: str | Property | Sequence[Sequence[Value]],
    *,
    layer: int | str | None = None,
    side: str | None = None,
    name: str | None = None,
    seed: int = 0,
) -> ProbeView:
    """A linear probe: how well the states of a layer predict a feature of each token.

    Args:
        feature: `position`, `depth`, a function of the tokens, or a row of numbers or labels for each input.
        layer: Number or path of the layer (default: the last).
        side: The sequence: source or target, first or second.
        name: What to call the feature in the view.
        seed: Of the held-out inputs and the shuffled control.
    """
    label = name or (feature if isinstance(feature, str) else "the feature")
    if isinstance(feature, str) and feature not in PROPERTIES:
        raise ConfigError(f"there is no feature '{feature}'", fix=did_you_mean(feature, PROPERTIES))
    if len(readings) < 2:
        raise DataError(
            f"a probe needs inputs to hold out, and there is only {len(readings)}",
            fix="give at least 2, better 20, with --data FILE",
        )
    found = [layer_states(subject, reading, layer=layer, side=side) for reading in readings]
    texts = [tuple(token.text for token in place.tokens) for place, _ in found]
    values = _values(PROPERTIES[feature] if isinstance(feature, str) else feature, texts)
    sample = _ProbeSample.of([states for _, states in found], values)
    train, test = sample.parted(len(readings), seed)
    dealt = sample._replace(values=sample.values[np.random.default_rng(seed).permutation(len(sample.values))])
    correlations = sample.only(train).correlations()
    best = int(np.abs(correlations).argmax())
    row = sample.readings == sample.readings[0]
    return ProbeView(
        title=f"Probe for {label}",
        layer=found[0][0].path,
        feature=label,
        metric="R2" if sample.labels is None else "accuracy",
        tokens=len(sample.values),
        num_train=int(train.sum()),
        correlations=correlations,
        score=sample.score(train, test),
        control=dealt.score(train, test),
        best_unit_score=sample._replace(states=sample.states[:, best : best + 1]).score(train, test),
        example=(
            tuple(text for text, value in zip(texts[0], values[0], strict=True) if value is not None)[:EXAMPLE],
            tuple(float(value) for value in sample.values[row][:EXAMPLE]),
            tuple(float(value) for value in sample.states[row, best][:EXAMPLE]),
        ),
    )


class _ProbeSample(NamedTuple):
    """All tokens that have the feature, of all inputs."""

    states: np.ndarray  # [N,D]
    values: np.ndarray  # [N] numbers, or the numbers of labels
    readings: np.ndarray  # [N] index of each token's input
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, states: Sequence[np.ndarray], values: Sequence[Sequence[Value]]) -> "_ProbeSample":
        """The sample, with labels as numbers; DataError if all values are the same."""
        kept = [np.array([value is not None for value in row], dtype=bool) for row in values]
        known = [value for row in values for value in row if value is not None]
        labels = tuple(sorted({str(value) for value in known})) if any(isinstance(one, str) for one in known) else None
        numbers = [float(labels.index(str(one))) if labels is not None else float(one) for one in known]
        if len(set(numbers)) < 2:
            raise DataError("the feature is the same at every token", fix="choose one that varies")
        rows = np.concatenate([np.full(int(mask.sum()), at) for at, mask in enumerate(kept)])
        chosen = np.concatenate([part[mask] for part, mask in zip(states, kept, strict=True)])
        return cls(chosen, np.array(numbers), rows, labels)

    def parted(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the training tokens and the held-out tokens."""
        order = np.random.default_rng(seed).permutation(count)
        held_out = order[: max(1, round(HELD_OUT * count))]
        test = np.isin(self.readings, held_out)
        if not test.any() or test.all():
            raise DataError("all tokens with this feature are in one input", fix="give more inputs")
        return ~test, test

    def only(self, chosen: np.ndarray) -> "_ProbeSample":
        """The tokens where a mask [N] is true."""
        return self._replace(states=self.states[chosen], values=self.values[chosen], readings=self.readings[chosen])

    def correlations(self) -> np.ndarray:
        """[D] the correlation of each unit with the feature."""
        centered = self.states - self.states.mean(axis=0)
        spread = np.maximum(np.linalg.norm(centered, axis=0), 1e-12)
        if self.labels is None:
            value = self.values - self.values.mean()
            found: np.ndarray = value @ centered / (spread * max(float(np.linalg.norm(value)), 1e-12))
            return found
        groups = [centered[self.values == label] for label in np.unique(self.values)]
        between = np.sum([len(group) * group.mean(axis=0) ** 2 for group in groups], axis=0)
        shares: np.ndarray = np.sqrt(np.minimum(between / spread**2, 1.0))
        return shares

    def score(self, train: np.ndarray, test: np.ndarray) -> float:
        """R^2 of numbers or accuracy of labels, of ridge regression on held-out tokens."""
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


def _values(feature: Property | Sequence[Sequence[Value]], texts: Sequence[tuple[str, ...]]) -> list[Sequence[Value]]:
    """The feature of every token, one row for each input."""
    rows = [feature(text) for text in texts] if callable(feature) else list(feature)
    if len(rows) != len(texts):
        raise DataError(f"{len(rows)} rows of values for {len(texts)} inputs", fix="give one row for each input")
    for at, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if len(row) != len(text):
            raise DataError(
                f"input {at} has {len(text)} tokens, but {len(row)} values were given",
                fix="give one value for each token, None where there is none",
            )
    return rows


def _standard(values: Sequence[float]) -> list[float]:
    numbers = np.array(values)
    found: list[float] = ((numbers - numbers.mean()) / (float(numbers.std()) or 1.0)).tolist()
    return found
