"""What each filter of a convolution detects: the n-grams of the data that fire it most, and those that hold it down.

For every filter: its strongest n-grams with how often they occur, what each slot of the window adds (which of the
words matters), and the n-grams with the lowest sums, which speak against what it detects (Jacovi et al. 2018).
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.errors import ConfigError, DataError
from seqloom.figures import Bars, Figure, Matrix
from seqloom.figures.markup import Markup, tag
from seqloom.inspection.convolutions import Bank, banks, convolution_place, reach_before
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import View

MOST_DRAWN = 40  # filters of an overview
DRAWN_NGRAMS = 12
SAID = 5  # filters that are told in words
MOST_KEPT = 100  # n-grams of a filter
AT_ONCE = 4_096  # places that are weighed together


class Ngram(NamedTuple):
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
    strongest: tuple[Ngram, ...]
    lowest: tuple[Ngram, ...]

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
        return f"{self.elements:,} places of {self.readings:,} texts.{rest}{self._context()}"

    def _context(self) -> str:
        if self.beyond is None:
            return " The layers below see the whole text: the words shown are those of the window alone."
        before, after = self.beyond
        seen = f"{before} tokens before and {after} behind"
        return f" Through the layers below a window sees {seen} it too." if before or after else ""

    def _detail(self, one: Filter) -> tuple[Figure, ...]:
        top = one.strongest[:DRAWN_NGRAMS]
        low = [each for each in one.lowest if each.tokens not in {other.tokens for other in top}][:DRAWN_NGRAMS]
        bars = Bars(
            title=f"Filter {one.number}: what fires it, and what holds it down",
            caption=f"Sums before the activation; it fires at {one.fires:.1%} of {self.elements:,} places.",
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
            + ", ".join(f"“{each.text}” {each.activation:.3g} ({each.occurs:,}x)" for each in one.strongest[:3])
            + "."
            for one in loud
        )

    def body(self) -> list[Markup]:
        """The figures, and a table of all filters below them."""
        heads = ("filter", "words", "fires", "strongest", "lowest")
        rows = [
            (str(one.number), str(one.size), f"{one.fires:.1%}", _listed(one.strongest), _listed(one.lowest))
            for one in self.filters
        ]
        top = tag("tr", *(tag("th", head) for head in heads))
        return [*super().body(), tag("table", top, *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))]


def _listed(ngrams: Sequence[Ngram]) -> str:
    return ", ".join(f"{each.text} ({each.sum:.2g}, {each.occurs:,}x)" for each in ngrams[:3])


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
        for number, bank in enumerate(banks(subject, reading, here)):
            if number == len(tallies):
                tallies.append(_Tally(bank, top))
            tallies[number].add(bank, bank.windows(tokens))
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
        self.strongest: list[dict[tuple[str, ...], Ngram]] = [{} for _ in range(count)]
        self.lowest: list[dict[tuple[str, ...], Ngram]] = [{} for _ in range(count)]

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
        bank = self.waiting[0].joined(self.waiting[1:])
        order = np.argsort(bank.sums, axis=0, kind="stable")
        for number in range(bank.sums.shape[1]):
            self._keep(self.strongest[number], bank, order[::-1, number], number, sign=1)
            self._keep(self.lowest[number], bank, order[:, number], number, sign=-1)
        self.waiting, self.windows = [], []

    def _keep(self, kept: dict[tuple[str, ...], Ngram], bank: Bank, order: np.ndarray, number: int, sign: int) -> None:
        """Let the most extreme n-grams in, and the least extreme of all out."""
        for at in order:
            window, found = self.windows[at], sign * float(bank.sums[at, number])
            full = len(kept) == self.top
            if full and found <= min(sign * each.sum for each in kept.values()):
                return
            known = kept.get(window)
            if known is None or sign * known.sum < found:
                kept[window] = _ngram(bank, window, int(at), number)
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

    def _counted(self, ngrams: Sequence[Ngram]) -> tuple[Ngram, ...]:
        return tuple(each._replace(occurs=self.counts[each.tokens]) for each in ngrams)


def _ngram(bank: Bank, window: tuple[str, ...], at: int, number: int) -> Ngram:
    slots = tuple(float(slot) for slot in bank.slots[at, number])
    return Ngram(window, float(bank.activations[at, number]), float(bank.sums[at, number]), slots, 0)
