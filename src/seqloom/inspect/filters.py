"""What each filter of a convolution detects in the data, and how much it contributes to a score.

For every filter: the n-grams with the highest activation and their frequency, the contribution of each word of the
window, and the n-grams with the lowest values. For every filter, a convolution sums one number for each word:

    z_t = b + sum_k s_{t,k}        s_{t,k} = W_k x_{t + (k - left) * dilation}        a_t = f(z_t)

So a filter detects n-grams, and its slots detect words (Jacovi et al. 2018).

The contribution of a filter to a score is d score / d a_t times a_t, summed over positions t. With max pooling and a
linear head this is exact: only one position counts, and the contributions sum to the score without its bias. Otherwise
it is a linear approximation, and the view reports how much of the score it explains.
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
from seqloom.inspect.layer_names import layer_title
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
OUTSIDE = "·"  # a slot before the first token or after the last


class Bank(NamedTuple):
    """The filters of one size in one layer, with their values for one reading."""

    first: int  # index of its first filter in the layer
    offsets: tuple[int, ...]  # of the slots, relative to the position of the filter
    slots: np.ndarray  # [T,filters,K]
    sums: np.ndarray  # [T,filters] before the activation
    activations: np.ndarray  # [T,filters]

    def window(self, tokens: Sequence[str], at: int) -> tuple[str, ...]:
        """The n-gram that a filter reads at a position."""
        return tuple(tokens[at + step] if 0 <= at + step < len(tokens) else OUTSIDE for step in self.offsets)


def convolution_place(subject: Subject, reading: Reading, layer: int | str | None, side: str | None) -> LayerPlace:
    """The convolution with this number or path (default: the first)."""
    found = places(subject.model, reading, KINDS, side)
    required(found, subject.model, "filters", "none of its layers is a convolution over tokens")
    return chosen({each.path: each for each in found}, 0 if layer is None else layer, "layers with filters")


@torch.no_grad()
def banks(subject: Subject, reading: Reading, place: LayerPlace) -> tuple[Bank, ...]:
    """The values of all filters of one layer for a reading, by filter size."""
    module, read = place.module(subject.model), []

    def record(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
        read.append(arguments[0])

    with module.register_forward_pre_hook(record), still(subject.model):
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
    """[T,F] the values shifted by `offset` positions, zero outside."""
    found, count = torch.zeros_like(made), len(made)
    low, high = max(0, -offset), min(count, count - offset)
    if low < high:
        found[low:high] = made[low + offset : high + offset]
    return found


def reach_before(model: nn.Module, place: LayerPlace) -> tuple[int, int] | None:
    """How many tokens beyond its window a layer sees on each side, through the layers below; None: all of them."""
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
SAID = 5  # filters that are described in sentences
MOST_KEPT = 100  # n-grams of a filter
AT_ONCE = 4_096  # positions that are processed together


class FiringNgram(NamedTuple):
    """An n-gram with the values of a filter; in a deeper layer the most extreme value of its occurrences."""

    tokens: tuple[str, ...]
    activation: float
    pre_activation: float  # before the activation
    slots: tuple[float, ...]  # contribution of each word
    frequency: int  # in the data

    @property
    def text(self) -> str:
        return " ".join(self.tokens)


class Filter(NamedTuple):
    """One filter with its highest and lowest n-grams."""

    number: int
    size: int
    firing_rate: float  # fraction of all positions with a value above zero
    strongest: tuple[FiringNgram, ...]
    lowest: tuple[FiringNgram, ...]

    @property
    def slots(self) -> tuple[float, ...]:
        """The contribution of each slot, averaged over the strongest n-grams."""
        means: list[float] = np.mean([each.slots for each in self.strongest], axis=0).tolist()
        return tuple(means)


@dataclass(frozen=True, kw_only=True)
class FiltersView(View):
    """The filters of one layer over several inputs."""

    kind: ClassVar[str] = "filters"
    layer: str
    positions: int
    inputs: int
    filters: tuple[Filter, ...]
    unit: int | None  # the filter that is drawn separately
    context: tuple[int, int] | None  # tokens outside the window that the layer sees through lower layers; None: all

    def figures(self) -> tuple[Figure, ...]:
        if self.unit is not None:
            return self._detail(self.filters[self.unit])
        order = sorted(self.filters, key=lambda one: -one.strongest[0].activation)[:MOST_DRAWN]
        return (
            Bars(
                title="The strongest n-gram of each filter",
                caption=self._scope(len(order)),
                labels=[f"{one.number}: {one.strongest[0].text}" for one in order],
                values=[one.strongest[0].activation for one in order],
                x_label="activation",
            ),
        )

    def _scope(self, shown: int) -> str:
        rest = f" {shown} of {len(self.filters)} filters." if shown < len(self.filters) else ""
        below = ""
        if self.context is None:
            below = " The layers below see the whole text; only the words of the window are shown."
        elif any(self.context):
            seen = f"{self.context[0]} tokens before and {self.context[1]} after"
            below = f" Through the layers below, a window also sees {seen} it."
        return f"{counted(self.positions, 'position')} of {counted(self.inputs, 'text')}.{rest}{below}"

    def _detail(self, one: Filter) -> tuple[Figure, ...]:
        top = one.strongest[:DRAWN_NGRAMS]
        low = [each for each in one.lowest if each.tokens not in {other.tokens for other in top}][:DRAWN_NGRAMS]
        bars = Bars(
            title=f"Filter {one.number}: highest and lowest n-grams",
            caption=f"Before the activation; active at {share(one.firing_rate)} of {self.positions:,} positions.",
            labels=[f"{each.text} ({each.frequency:,}x)" for each in [*top, *low]],
            values=[each.pre_activation for each in [*top, *low]],
            x_label="sum",
        )
        slots = Matrix(
            title="Contribution of each word of the n-gram",
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
            + ", ".join(f"“{each.text}” {number(each.activation)} ({each.frequency:,}x)" for each in one.strongest[:3])
            + "."
            for one in loud
        )

    def _blocks(self) -> Sequence[DocumentBlock]:
        """The figures, and a table of all filters below them."""
        heads = ("filter", "words", "fires", "strongest", "lowest")
        rows = [
            (one.number, one.size, share(one.firing_rate), _listed(one.strongest), _listed(one.lowest))
            for one in self.filters
        ]
        return [*super()._blocks(), TableBlock(heads, rows, brief=SAID)]


def _listed(ngrams: Sequence[FiringNgram]) -> str:
    return ", ".join(f"{each.text} ({number(each.pre_activation)}, {each.frequency:,}x)" for each in ngrams[:3])


def filters(
    subject: Subject,
    readings: Sequence[Reading],
    *,
    layer: int | str | None = None,
    side: str | None = None,
    unit: int | None = None,
    top_k: int = 10,
) -> FiltersView:
    """The n-grams with the highest activation of each filter of a layer.

    Args:
        layer: Number or path of a convolution (default: the first).
        side: The sequence: source or target, first or second.
        unit: Number of a filter to draw separately.
        top_k: N-grams to list for each filter.
    """
    if not readings:
        raise DataError("no input was given", fix="give at least one")
    if not 1 <= top_k <= MOST_KEPT:
        raise ConfigError(f"top_k is {top_k}", fix=f"give 1 to {MOST_KEPT}")
    place = convolution_place(subject, readings[0], layer, side)
    tallies: list[_Tally] = []
    for reading in readings:
        here = convolution_place(subject, reading, place.path, side)
        tokens = tuple(token.text for token in here.tokens)
        for at, bank in enumerate(banks(subject, reading, here)):
            if at == len(tallies):
                tallies.append(_Tally(bank, top_k))
            tallies[at].add(bank, [bank.window(tokens, place) for place in range(len(tokens))])
    found = tuple(one for tally in tallies for one in tally.filters())
    if unit is not None and not 0 <= unit < len(found):
        raise ConfigError(
            f"there is no filter {unit}: this layer has the filters 0 to {len(found) - 1}", fix="choose one of them"
        )
    return FiltersView(
        title=f"Filters of {layer_title(place.path)}",
        layer=place.path,
        positions=tallies[0].places,
        inputs=len(readings),
        filters=found,
        unit=unit,
        context=reach_before(subject.model, place),
    )


class _Tally:
    """The highest and lowest n-grams so far for all filters of one size, and the frequency of every n-gram."""

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
        """Add one reading; n-grams are sorted in batches, which is faster."""
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
        """Keep only the most extreme n-grams."""
        for at in order:
            window, found = self.windows[at], sign * float(bank.sums[at, number])
            full = len(kept) == self.top
            if full and found <= min(sign * each.pre_activation for each in kept.values()):
                return
            known = kept.get(window)
            if known is None or sign * known.pre_activation < found:
                slots = tuple(bank.slots[at, number].tolist())
                kept[window] = FiringNgram(window, float(bank.activations[at, number]), sign * found, slots, 0)
            if len(kept) > self.top:
                del kept[min(kept, key=lambda one: sign * kept[one].pre_activation)]

    def filters(self) -> list[Filter]:
        """All filters, each with its n-grams, the most extreme first."""
        self._weigh()
        return [
            Filter(
                number=self.first + at,
                size=self.size,
                firing_rate=float(self.fired[at]) / max(self.places, 1),
                strongest=self._counted(
                    heapq.nlargest(self.top, self.strongest[at].values(), key=lambda one: one.pre_activation)
                ),
                lowest=self._counted(
                    heapq.nsmallest(self.top, self.lowest[at].values(), key=lambda one: one.pre_activation)
                ),
            )
            for at in range(len(self.fired))
        ]

    def _counted(self, ngrams: Sequence[FiringNgram]) -> tuple[FiringNgram, ...]:
        return tuple(each._replace(frequency=self.counts[each.tokens]) for each in ngrams)


DRAWN = 20  # filters
POOLED = 256  # columns of the map of a long text
CELLS = 1600


class FilterActivation(NamedTuple):
    """One filter on one text: its strongest n-gram and its contribution to the score."""

    filter: int
    at: int  # position of its largest contribution
    tokens: tuple[str, ...]  # the n-gram there
    places: tuple[int, ...]  # positions of the tokens of the n-gram
    activation: float
    contribution: float

    @property
    def is_inactive(self) -> bool:
        """Whether it has no activation and no contribution here."""
        return self.activation == 0 and self.contribution == 0

    @property
    def called(self) -> str:
        """Its n-gram and the token where it starts."""
        return "inactive" if self.is_inactive else f"{' '.join(self.tokens)} ({self.places[0]})"


@dataclass(frozen=True, kw_only=True)
class FilterActivationsView(View):
    """The filters of one layer on one text, sorted by contribution."""

    kind: ClassVar[str] = "filter_activations"
    layer: str
    tokens: tuple[str, ...]
    answer: str
    score: float
    filters: tuple[FilterActivation, ...]
    activations: np.ndarray  # [elements, filters drawn], in the order of `filters`

    @property
    def total(self) -> float:
        """The sum of all contributions."""
        return sum(each.contribution for each in self.filters)

    def figures(self) -> tuple[Figure, ...]:
        best = [each for each in self.filters if not each.is_inactive][:DRAWN] or self.filters[:1]
        bars = Bars(
            title=f"Contribution of each filter to {self.answer}",
            labels=[f"{each.filter}: {each.called}" for each in best],
            caption="Filter number, its strongest n-gram, and the token where it starts.",
            values=[each.contribution for each in best],
            x_label="contribution to the score",
        )
        return (bars, *([self._strip()] if len(self.tokens) <= SMALL else []), self._map())

    def _strip(self) -> Strip:
        """Each token with an equal share of the contributions of its n-grams."""
        values = np.zeros(len(self.tokens))
        for each in self.filters:
            for place in each.places:
                values[place] += each.contribution / len(each.places)
        return Strip(title="The strongest n-grams in the text", tokens=self.tokens, values=values.tolist())

    def _map(self) -> Figure:
        numbers, count = [each.filter for each in self.filters[:DRAWN]], len(self.tokens)
        title = "Activation of each filter"
        if count <= SMALL and count * len(numbers) <= CELLS:
            rows = [f"filter {number}" for number in numbers]
            return Matrix(title=title, values=self.activations.T.tolist(), rows=rows, columns=self.tokens)
        width = -(-count // POOLED)
        pooled = np.maximum.reduceat(self.activations, np.arange(0, count, width), axis=0)
        return HeatMap(
            title=title,
            caption=f"Each column is the maximum of {width} positions." if width > 1 else "",
            values=pooled.T.tolist(),
            x=[float(at * width) for at in range(len(pooled))],
            y=[float(number) for number in numbers],
            x_label="token",
            y_label="filter",
            value_label="activation",
        )

    def _sentences(self) -> tuple[str, ...]:
        sentences = [
            f"Filter {each.filter} adds {signed(each.contribution)}: “{' '.join(each.tokens)}” at {each.places[0]}."
            for each in self.filters[:3]
            if not each.is_inactive
        ]
        silent = sum(each.is_inactive for each in self.filters)
        rest = [f"{silent:,} of {counted(len(self.filters), 'filter')} {'is' if silent == 1 else 'are'} inactive here."]
        made = f"Score {number(self.score)}, of which the filters of this layer contribute {number(self.total)}."
        return (made, *sentences, *(rest if silent else []))


def filter_activations(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    side: str | None = None,
    answer: str | int | None = None,
    at: int | str | None = None,
) -> FilterActivationsView:
    """The filters of a layer on one text, each with its strongest n-gram and its contribution to the score.

    Args:
        layer: Number or path of a convolution (default: the first).
        side: The sequence: source or target, first or second.
        answer: Label, tag or token to explain (default: the prediction).
        at: Position of the answer, if there are several.
    """
    place = convolution_place(subject, reading, layer, side)
    goal = chosen_goal(subject, reading, answer=answer, at=at)
    score, contributions = _contributions(subject, reading, place, goal)  # [T,filters]
    tokens = tuple(token.text for token in place.tokens)
    found = []
    for bank in banks(subject, reading, place):
        for unit in range(bank.sums.shape[1]):
            mine, active = contributions[:, bank.first + unit], bank.activations[:, unit]
            best = int(np.abs(mine).argmax()) if mine.any() else int(active.argmax())
            seen = tuple(best + step for step in bank.offsets if 0 <= best + step < len(tokens))
            window = tuple(tokens[token] for token in seen)
            found.append(
                (
                    FilterActivation(bank.first + unit, best, window, seen, float(active[best]), float(mine.sum())),
                    active,
                )
            )
    order = sorted(found, key=lambda pair: -abs(pair[0].contribution))
    return FilterActivationsView(
        title=f"Filters of {layer_title(place.path)} on this text",
        layer=place.path,
        tokens=tokens,
        answer=goal.name,
        score=score,
        filters=tuple(one for one, _ in order),
        activations=np.stack([active for _, active in order[:DRAWN]], axis=1),
    )


def _contributions(subject: Subject, reading: Reading, place: LayerPlace, goal: Goal) -> tuple[float, np.ndarray]:
    """The score, and [T,filters] d score / d a * a."""
    maps: list[Tensor] = []

    def record(_name: str, value: Any) -> Tensor:
        maps.append(value if value.requires_grad else value.detach().requires_grad_())
        return maps[-1]

    model = subject.model
    with torch.enable_grad(), still(model), listening(model, f"{place.path}.maps", record):
        number = goal.of(scores(subject, reading.inputs)).sum()
    (slope,) = torch.autograd.grad(number, maps[place.call], allow_unused=True)
    active = maps[place.call].detach()
    parts = torch.zeros_like(active) if slope is None else slope * active
    return float(number.detach()), parts[0].double().cpu().numpy()
