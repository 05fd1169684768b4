"""What each filter of a convolution detects, over data and on one text, and what it gives to the answer.

For every filter: the n-grams of the data that fire it most with how often they occur, what each slot of the window adds
(which of the words matters), and the n-grams with the lowest sums, which speak against what it detects. A convolution
adds up one number from every slot of its window, for every filter:

    z_t = b + sum_k s_{t,k}        s_{t,k} = W_k x_{t + (k - left) * dilation}        a_t = f(z_t)

So a filter is read as a detector of n-grams, and its slots as detectors of words (Jacovi et al. 2018). The sums are
made from the weights and from what the layer reads; they are those of the layer itself.

What a filter gives to the answer is d score / d a_t times a_t, summed over the places t. With a maximum over the places
and a linear head that is exact: only the winning place counts, and the gifts add up to the score without its bias.
Elsewhere it is the share that a straight line would give, and the view says how much of the score they add up to.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attribution.goals import Goal, chosen_goal
from seqloom.inspect.flow import still
from seqloom.inspect.layers import LayerPlace, chosen, places, required
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import SMALL, View
from seqloom.nn.mixers.convolution import CausalConvolution, Convolution
from seqloom.nn.taps import listening
from seqloom.nn.types import Padded
from seqloom.report.document import DocumentBlock, TableBlock
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number, share, signed

KINDS = (Convolution, CausalConvolution)
OUTSIDE = "·"  # a slot before the first token or behind the last


class Bank(NamedTuple):
    """The filters of one size in one layer, and what they make of one reading."""

    first: int  # the number of its first filter among all of the layer
    offsets: tuple[int, ...]  # of the slots, from the place at which the filter stands
    slots: np.ndarray  # [T,filters,K]
    sums: np.ndarray  # [T,filters] before the activation
    activations: np.ndarray  # [T,filters]

    def window(self, tokens: Sequence[str], at: int) -> tuple[str, ...]:
        """The n-gram that a filter reads at a place."""
        return tuple(tokens[at + step] if 0 <= at + step < len(tokens) else OUTSIDE for step in self.offsets)


def convolution_place(subject: Subject, reading: Reading, layer: int | str | None, side: str | None) -> LayerPlace:
    """The convolution that is meant, the first if none is named: what it reads are words."""
    found = places(subject.model, reading, KINDS, side)
    required(found, subject.model, "filters", "none of its layers is a convolution over tokens")
    return chosen({each.path: each for each in found}, 0 if layer is None else layer, "layers with filters")


@torch.no_grad()
def banks(subject: Subject, reading: Reading, place: LayerPlace) -> tuple[Bank, ...]:
    """What each size of filter of one layer makes of a reading."""
    module, read = place.module(subject.model), []

    def hear(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
        read.append(arguments[0])

    with module.register_forward_pre_hook(hear), still(subject.model):
        scores(subject, reading.inputs)
    x: Padded = read[place.call]
    values, found, first = x.values[0, : int(x.lengths[0])], list[Bank](), 0
    for filters in module.filters:
        taps = filters.weight.shape[2]
        left = taps - 1 if isinstance(module, CausalConvolution) else (taps - 1) // 2
        offsets = tuple((tap - left) * module.dilation for tap in range(taps))
        slots = torch.stack([_moved(values @ filters.weight[:, :, k].T, offsets[k]) for k in range(taps)], dim=2)
        sums = slots.sum(dim=2) + filters.bias
        parts = (slots, sums, module.activation(sums))
        found.append(Bank(first, offsets, *(part.float().cpu().numpy() for part in parts)))
        first += filters.weight.shape[0]
    return tuple(found)


def _moved(made: Tensor, offset: int) -> Tensor:
    """[T,F] what stands `offset` places away from each place, zero outside."""
    found, count = torch.zeros_like(made), len(made)
    low, high = max(0, -offset), min(count, count - offset)
    if low < high:
        found[low:high] = made[low + offset : high + offset]
    return found


def reach_before(model: nn.Module, place: LayerPlace) -> tuple[int, int] | None:
    """How many tokens beyond its own window a layer sees on each side, through those below; None: all of them."""
    before = after = 0
    for name, module in model.named_modules():
        if name == place.path:
            return before, after
        if not name.startswith(place.path.split(".layers.")[0] + ".layers.") or not name.endswith(".mixer"):
            continue
        if not isinstance(module, KINDS):
            return None
        widest = max(filters.weight.shape[2] for filters in module.filters)
        left = widest - 1 if isinstance(module, CausalConvolution) else (widest - 1) // 2
        before, after = before + left * module.dilation, after + (widest - 1 - left) * module.dilation
    return before, after


MOST_DRAWN = 40  # filters of an overview
DRAWN_NGRAMS = 12
SAID = 5  # filters that are told in words
MOST_KEPT = 100  # n-grams of a filter
AT_ONCE = 4_096  # places that are weighed together


class FiringNgram(NamedTuple):
    """An n-gram as a filter sees it; the same words in other surroundings may give another sum, the extreme is kept."""

    tokens: tuple[str, ...]
    activation: float
    sum: float  # before the activation
    slots: tuple[float, ...]  # what each of its words adds
    occurs: int  # so often in the data

    @property
    def text(self) -> str:
        """Its words."""
        return " ".join(self.tokens)


class Filter(NamedTuple):
    """One filter: what fires it, and what holds it down."""

    number: int
    size: int
    fires: float  # the share of all places at which it is above zero
    strongest: tuple[FiringNgram, ...]
    lowest: tuple[FiringNgram, ...]

    @property
    def slots(self) -> tuple[float, ...]:
        """What each slot adds, a mean over its strongest n-grams."""
        means: list[float] = np.mean([each.slots for each in self.strongest], axis=0).tolist()
        return tuple(means)


@dataclass(frozen=True, kw_only=True)
class FiltersView(View):
    """The filters of one layer over some data."""

    kind: ClassVar[str] = "filters"
    layer: str
    elements: int
    readings: int
    filters: tuple[Filter, ...]
    unit: int | None  # the filter that is drawn by itself
    beyond: tuple[int, int] | None  # tokens that the layer sees outside its windows, through those below; None: all

    def figures(self) -> tuple[Figure, ...]:
        if self.unit is not None:
            return self._detail(self.filters[self.unit])
        order = sorted(self.filters, key=lambda one: -one.strongest[0].activation)[:MOST_DRAWN]
        return (
            Bars(
                title="The n-gram that fires each filter most",
                caption=self._scope(len(order)),
                labels=[f"{one.number}: {one.strongest[0].text}" for one in order],
                values=[one.strongest[0].activation for one in order],
                x_label="activation",
            ),
        )

    def _scope(self, shown: int) -> str:
        rest = f" {shown} of {len(self.filters)} filters." if shown < len(self.filters) else ""
        below = ""
        if self.beyond is None:
            below = " The layers below see the whole text: the words shown are those of the window alone."
        elif any(self.beyond):
            seen = f"{self.beyond[0]} tokens before and {self.beyond[1]} behind"
            below = f" Through the layers below a window sees {seen} it too."
        return f"{self.elements:,} places of {self.readings:,} texts.{rest}{below}"

    def _detail(self, one: Filter) -> tuple[Figure, ...]:
        top = one.strongest[:DRAWN_NGRAMS]
        low = [each for each in one.lowest if each.tokens not in {other.tokens for other in top}][:DRAWN_NGRAMS]
        bars = Bars(
            title=f"Filter {one.number}: what fires it, and what holds it down",
            caption=f"Sums before the activation; it fires at {share(one.fires)} of {self.elements:,} places.",
            labels=[f"{each.text} ({each.occurs:,}x)" for each in [*top, *low]],
            values=[each.sum for each in [*top, *low]],
            x_label="sum",
        )
        slots = Matrix(
            title="What each word adds",
            values=[list(each.slots) for each in [*top, *low]],
            rows=[each.text for each in [*top, *low]],
            columns=[f"word {slot + 1}" for slot in range(one.size)],
        )
        return bars, slots

    def _sentences(self) -> tuple[str, ...]:
        chosen = self.filters if self.unit is None else (self.filters[self.unit],)
        loud = sorted(chosen, key=lambda one: -one.strongest[0].activation)[:SAID]
        return tuple(
            f"Filter {one.number}, {one.size} words: "
            + ", ".join(f"“{each.text}” {number(each.activation)} ({each.occurs:,}x)" for each in one.strongest[:3])
            + "."
            for one in loud
        )

    def _blocks(self) -> Sequence[DocumentBlock]:
        """The figures, and a table of all filters below them."""
        heads = ("filter", "words", "fires", "strongest", "lowest")
        rows = [
            (one.number, one.size, share(one.fires), _listed(one.strongest), _listed(one.lowest))
            for one in self.filters
        ]
        return [*super()._blocks(), TableBlock(heads, rows, brief=SAID)]


def _listed(ngrams: Sequence[FiringNgram]) -> str:
    return ", ".join(f"{each.text} ({number(each.sum)}, {each.occurs:,}x)" for each in ngrams[:3])


def filters(
    subject: Subject,
    readings: Sequence[Reading],
    *,
    layer: int | str | None = None,
    side: str | None = None,
    unit: int | None = None,
    top: int = 10,
) -> FiltersView:
    """The n-grams of some readings that fire each filter of a layer most, the first layer if none is named.

    `unit` is the number of a filter that is drawn by itself; `top` n-grams are kept for each.
    """
    if not readings:
        raise DataError("filters are shown by the data that fires them, and no reading was given", fix="give some")
    if not 1 <= top <= MOST_KEPT:
        raise ConfigError(f"{top} n-grams for each filter were asked for", fix=f"ask for 1 to {MOST_KEPT}")
    place = convolution_place(subject, readings[0], layer, side)
    tallies: list[_Tally] = []
    for reading in readings:
        here = convolution_place(subject, reading, place.path, side)
        tokens = tuple(token.text for token in here.tokens)
        for at, bank in enumerate(banks(subject, reading, here)):
            if at == len(tallies):
                tallies.append(_Tally(bank, top))
            tallies[at].add(bank, [bank.window(tokens, place) for place in range(len(tokens))])
    found = tuple(one for tally in tallies for one in tally.filters())
    if unit is not None and not 0 <= unit < len(found):
        raise ConfigError(f"there is no filter {unit}: this layer has {len(found)}, from 0", fix="choose one of them")
    return FiltersView(
        title=f"Filters of {place.path}",
        layer=place.path,
        elements=tallies[0].places,
        readings=len(readings),
        filters=found,
        unit=unit,
        beyond=reach_before(subject.model, place),
    )


class _Tally:
    """The best and the lowest n-grams so far of all filters of one size; how often every n-gram occurs."""

    def __init__(self, bank: Bank, top: int) -> None:
        self.first, self.size, self.top, self.places = bank.first, len(bank.offsets), top, 0
        count = bank.sums.shape[1]
        self.waiting: list[Bank] = []
        self.windows: list[tuple[str, ...]] = []
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.fired = np.zeros(count, dtype=np.int64)
        self.strongest: list[dict[tuple[str, ...], FiringNgram]] = [{} for _ in range(count)]
        self.lowest: list[dict[tuple[str, ...], FiringNgram]] = [{} for _ in range(count)]

    def add(self, bank: Bank, windows: list[tuple[str, ...]]) -> None:
        """Count one reading; n-grams are weighed when there are many, which is faster."""
        self.counts.update(windows)
        self.places += len(windows)
        self.fired += (bank.activations > 0).sum(axis=0)
        self.waiting.append(bank)
        self.windows += windows
        if len(self.windows) >= AT_ONCE:
            self._weigh()

    def _weigh(self) -> None:
        if not self.waiting:
            return
        slots, sums, activations = (np.concatenate(each) for each in list(zip(*self.waiting, strict=True))[2:])
        bank = self.waiting[0]._replace(slots=slots, sums=sums, activations=activations)
        order = np.argsort(sums, axis=0, kind="stable")
        for unit in range(bank.sums.shape[1]):
            self._keep(self.strongest[unit], bank, order[::-1, unit], unit, sign=1)
            self._keep(self.lowest[unit], bank, order[:, unit], unit, sign=-1)
        self.waiting, self.windows = [], []

    def _keep(
        self, kept: dict[tuple[str, ...], FiringNgram], bank: Bank, order: np.ndarray, number: int, sign: int
    ) -> None:
        """Let the most extreme n-grams in, and the least extreme of all out."""
        for at in order:
            window, found = self.windows[at], sign * float(bank.sums[at, number])
            full = len(kept) == self.top
            if full and found <= min(sign * each.sum for each in kept.values()):
                return
            known = kept.get(window)
            if known is None or sign * known.sum < found:
                slots = tuple(bank.slots[at, number].tolist())
                kept[window] = FiringNgram(window, float(bank.activations[at, number]), sign * found, slots, 0)
            if len(kept) > self.top:
                del kept[min(kept, key=lambda one: sign * kept[one].sum)]

    def filters(self) -> list[Filter]:
        """Every filter, its n-grams the most extreme first."""
        self._weigh()
        return [
            Filter(
                number=self.first + at,
                size=self.size,
                fires=float(self.fired[at]) / max(self.places, 1),
                strongest=self._counted(heapq.nlargest(self.top, self.strongest[at].values(), key=lambda one: one.sum)),
                lowest=self._counted(heapq.nsmallest(self.top, self.lowest[at].values(), key=lambda one: one.sum)),
            )
            for at in range(len(self.fired))
        ]

    def _counted(self, ngrams: Sequence[FiringNgram]) -> tuple[FiringNgram, ...]:
        return tuple(each._replace(occurs=self.counts[each.tokens]) for each in ngrams)


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

    @property
    def called(self) -> str:
        """Its n-gram and where that begins, in words."""
        return "silent" if self.is_silent else f"{' '.join(self.tokens)} ({self.places[0]})"


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
            labels=[f"{each.filter}: {each.called}" for each in best],
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
        width = -(-count // POOLED)
        pooled = np.maximum.reduceat(self.activations, np.arange(0, count, width), axis=0)
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
            f"Filter {each.filter} gave {signed(each.gift)} for “{' '.join(each.tokens)}” at {each.places[0]}."
            for each in self.fired[:3]
            if not each.is_silent
        ]
        silent = sum(each.is_silent for each in self.fired)
        rest = [f"{silent:,} of {counted(len(self.fired), 'filter')} {'is' if silent == 1 else 'are'} silent here."]
        made = f"The score is {number(self.score)}; the filters of this layer make {number(self.total)} of it."
        return (made, *said, *(rest if silent else []))


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
    found = []
    for bank in banks(subject, reading, place):
        for unit in range(bank.sums.shape[1]):
            mine, active = gifts[:, bank.first + unit], bank.activations[:, unit]
            best = int(np.abs(mine).argmax()) if mine.any() else int(active.argmax())
            seen = tuple(best + step for step in bank.offsets if 0 <= best + step < len(tokens))
            window = tuple(tokens[token] for token in seen)
            found.append((Fired(bank.first + unit, best, window, seen, float(active[best]), float(mine.sum())), active))
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


def _gifts(subject: Subject, reading: Reading, place: LayerPlace, goal: Goal) -> tuple[float, np.ndarray]:
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
