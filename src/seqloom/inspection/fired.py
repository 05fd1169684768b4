"""Which filters fired on one text, on which n-grams, and what each gave to the answer.

The gift of a filter is d score / d a_t times a_t, summed over the places t. With a maximum over the places and a linear
head that is exact: only the winning place counts, and the gifts add up to the score without its bias. Elsewhere it is
the share that a straight line would give, and the view says how much of the score the gifts add up to.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.problems import counted
from seqloom.figures import Bars, Figure, HeatMap, Matrix, Strip
from seqloom.inspection.asking import scores
from seqloom.inspection.attribution.goals import Goal, chosen_goal
from seqloom.inspection.convolutions import Bank, banks, convolution_place
from seqloom.inspection.flow import still
from seqloom.inspection.layers import Place
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import SMALL, View
from seqloom.taps import listening

DRAWN = 20  # filters
POOLED = 256  # columns of the map of a long text
CELLS = 1600


class Fired(NamedTuple):
    """One filter on one text: where it was strongest, and what it gave to the answer."""

    filter: int
    at: int  # the place of its largest part in the answer
    tokens: tuple[str, ...]  # the n-gram there
    places: tuple[int, ...]  # of the tokens of the n-gram
    activation: float
    gift: float

    @property
    def is_silent(self) -> bool:
        """Whether it found nothing here and gave nothing."""
        return self.activation == 0 and self.gift == 0


@dataclass(frozen=True, kw_only=True)
class FiredView(View):
    """The filters of one layer on one text, those that gave most first."""

    kind: ClassVar[str] = "fired"
    layer: str
    tokens: tuple[str, ...]
    answer: str
    score: float
    fired: tuple[Fired, ...]
    activations: np.ndarray  # [elements, filters drawn], in the order of `fired`

    @property
    def total(self) -> float:
        """What the gifts add up to."""
        return sum(each.gift for each in self.fired)

    def figures(self) -> tuple[Figure, ...]:
        best = [each for each in self.fired if not each.is_silent][:DRAWN] or self.fired[:1]
        bars = Bars(
            title=f"What filters gave to {self.answer}",
            labels=[f"{each.filter}: {_called(each)}" for each in best],
            caption="The number of a filter, its winning n-gram, and where that begins.",
            values=[each.gift for each in best],
            x_label="part of the score",
        )
        return (bars, *([self._strip()] if len(self.tokens) <= SMALL else []), self._map())

    def _strip(self) -> Strip:
        """Each token with its even share of the gifts of the n-grams that it stands in."""
        values = np.zeros(len(self.tokens))
        for each in self.fired:
            for place in each.places:
                values[place] += each.gift / len(each.places)
        return Strip(title="The winning n-grams in the text", tokens=self.tokens, values=values.tolist())

    def _map(self) -> Figure:
        numbers, count = [each.filter for each in self.fired[:DRAWN]], len(self.tokens)
        title = "Where filters are active"
        if count <= SMALL and count * len(numbers) <= CELLS:
            rows = [f"filter {number}" for number in numbers]
            return Matrix(title=title, values=self.activations.T.tolist(), rows=rows, columns=self.tokens)
        pooled, width = _peaks(self.activations)
        return HeatMap(
            title=title,
            caption=f"Columns are the largest of {width} places." if width > 1 else "",
            values=pooled.T.tolist(),
            x=[float(at * width) for at in range(len(pooled))],
            y=[float(number) for number in numbers],
            x_label="element",
            y_label="filter",
            value_label="activation",
        )

    def _sentences(self) -> tuple[str, ...]:
        said = [
            f"Filter {each.filter} gave {each.gift:+.3g} for “{' '.join(each.tokens)}” at {each.places[0]}."
            for each in self.fired[:3]
            if not each.is_silent
        ]
        silent = sum(each.is_silent for each in self.fired)
        rest = [f"{silent:,} of {counted(len(self.fired), 'filter')} {'is' if silent == 1 else 'are'} silent here."]
        made = f"The score is {self.score:.3g}; the filters of this layer make {self.total:.3g} of it."
        return (made, *said, *(rest if silent else []))


def _called(one: Fired) -> str:
    return "silent" if one.is_silent else f"{' '.join(one.tokens)} ({one.places[0]})"


def fired(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    side: str | None = None,
    answer: str | int | None = None,
    at: int | str | None = None,
) -> FiredView:
    """The filters of a layer on one text, with the n-gram that each won with and its part in the answer."""
    place = convolution_place(subject, reading, layer, side)
    goal = chosen_goal(subject, reading, answer=answer, at=at)
    score, gifts = _gifts(subject, reading, place, goal)  # [T,filters]
    tokens = tuple(token.text for token in place.tokens)
    found = [one for bank in banks(subject, reading, place) for one in _fired(bank, gifts, tokens)]
    order = sorted(found, key=lambda pair: -abs(pair[0].gift))
    return FiredView(
        title=f"Filters of {place.path} on this text",
        layer=place.path,
        tokens=tokens,
        answer=goal.name,
        score=score,
        fired=tuple(one for one, _ in order),
        activations=np.stack([active for _, active in order[:DRAWN]], axis=1),
    )


def _fired(bank: Bank, gifts: np.ndarray, tokens: tuple[str, ...]) -> list[tuple[Fired, np.ndarray]]:
    """Every filter of a bank, with its activations [T]."""
    found = []
    for number in range(bank.sums.shape[1]):
        mine, active = gifts[:, bank.first + number], bank.activations[:, number]
        at = int(np.abs(mine).argmax()) if mine.any() else int(active.argmax())
        places = tuple(at + step for step in bank.offsets if 0 <= at + step < len(tokens))
        window = tuple(tokens[place] for place in places)
        one = Fired(bank.first + number, at, window, places, float(active[at]), float(mine.sum()))
        found.append((one, active))
    return found


def _gifts(subject: Subject, reading: Reading, place: Place, goal: Goal) -> tuple[float, np.ndarray]:
    """The score, and [T,filters] d score / d a * a."""
    maps: list[Tensor] = []

    def hear(_name: str, value: Any) -> Tensor:
        maps.append(value if value.requires_grad else value.detach().requires_grad_())
        return maps[-1]

    model = subject.model
    with torch.enable_grad(), still(model), listening(model, f"{place.path}.maps", hear):
        number = goal.of(scores(subject, reading.inputs)).sum()
    (slope,) = torch.autograd.grad(number, maps[place.call], allow_unused=True)
    active = maps[place.call].detach()
    gifts = torch.zeros_like(active) if slope is None else slope * active
    return float(number.detach()), gifts[0].double().cpu().numpy()


def _peaks(values: np.ndarray) -> tuple[np.ndarray, int]:
    """The largest of each block of places [T,F], and how many places a block has."""
    width = -(-len(values) // POOLED)
    found: np.ndarray = np.maximum.reduceat(values, np.arange(0, len(values), width), axis=0)
    return found, width
