"""Hidden states as a path: where a layer is after each token, in the plane that holds most of its movement.

The states h_1..h_T [T,D] of one layer are projected on their two principal components; the share of the variance that
these two hold says how far the picture may be trusted. A long path is thinned by its own length: a place is kept
wherever the state has gone another step, so that turns stay and standing still costs nothing. Two paths can be compared
in one plane only: each reading has a plane of its own, unless it is looked at in that of another (`states_beside`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.inspect.layers import LayerPlace, chosen, heard, required, short_name, state_places
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Trail
from seqloom.report.numbers import share

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
        kept = thinned(self.path, MOST_DRAWN if len(self.tokens) > MEDIUM else len(self.tokens))
        way = Trail(
            title=f"The states at {short_name(self.layer)}",
            caption=self._thinning(len(kept)),
            labels=[self.tokens[at] for at in kept],
            x=self.path[kept, 0].tolist(),
            y=self.path[kept, 1].tolist(),
            numbers=[float(at) for at in kept],
            x_label="first component" + (f", {share(self.held[0])} of the variance" if len(self.tokens) > 1 else ""),
            y_label="second component" + (f", {share(self.held[1])}" if len(self.tokens) > 1 else ""),
            value_label="element",
        )
        return (way,) if len(self.tokens) <= SMALL else (way, self._speed())

    def _thinning(self, count: int) -> str:
        total = len(self.tokens)
        return f"Drawn from {count:,} of {total:,} places, even steps along the path." if count < total else ""

    def _speed(self) -> Line:
        places = [float(at) for at in range(len(self.tokens))]
        moves = Series(name="", x=places, y=self.moves.tolist())
        return Line(title="How far the state goes at each element", series=[moves], x_label="element")

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
    found = state_places(subject.model, reading, side)
    required(found, subject.model, "states", "it has no layers between its input and its answer")
    place = chosen({each.path: each for each in found}, layer, "layers")
    values: Any = heard(subject, reading, [place.path])[place.path][place.call][0]
    return place, values.double().cpu().numpy()


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
