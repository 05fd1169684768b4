"""The layer lens: what a model would say next if it stopped after each of its layers (nostalgebraist 2020).

    h_l      the vectors that leave layer l                 p_l = softmax(head(norm(h_l)))
    row l    the likeliest symbol of p_l and its probability, the entropy of p_l, and how likely and how far up in the
             order the symbol is that truly comes

The norm behind the last layer and the head are the model's own, so the last row is the model's own answer. Only that
row was trained to be read so: the others show what is there already in the words of the last, and a layer that writes
otherwise looks worse than it is. Of a masked model the symbol that truly comes is the one that stands there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.inspect.flow import still
from seqloom.inspect.layers import LayerPlace, heard, state_places
from seqloom.inspect.subject import Reading, Subject, said_in
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.nn.heads import NextTokenHead
from seqloom.nn.types import Padded
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import LARGEST_SIDE, MOST_CELLS, Matrix
from seqloom.report.figures.strip import Strip
from seqloom.text.special_tokens import MASK

BLOCK = 128  # positions whose scores are held at once
UNKNOWN_TRUTH = -1
LISTED = 20
SPACES = str.maketrans({" ": "␣", "\t": "⇥", "\n": "↵"})


@dataclass(frozen=True, kw_only=True)
class LensView(View):
    """Layers x positions: what would be said after each layer."""

    kind: ClassVar[str] = "lens"
    layers: tuple[str, ...]  # the paths of what was read, the last is the answer of the model
    tokens: tuple[str, ...]  # what is read at each position
    said: tuple[str, ...]  # what truly comes there; ? where it is not known
    first: int  # the number of the first position that is shown
    symbols: tuple[tuple[str, ...], ...]  # [L][T] the likeliest
    probability: np.ndarray  # [L,T] of it
    entropy: np.ndarray  # [L,T] nats
    rank: np.ndarray  # [L,T] of what truly comes, 1 is the likeliest; 0 where it is not known
    truth: np.ndarray  # [L,T] its probability; NaN where it is not known

    @property
    def decided(self) -> np.ndarray:
        """[T] the layer from which on the likeliest symbol is the one that the model says."""
        said = np.array(self.symbols, dtype=object)
        held = np.logical_and.accumulate((said == said[-1])[::-1])[::-1]  # [L,T] that layer and all behind it agree
        found: np.ndarray = held.argmax(axis=0)
        return found

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        return {**super().told_values(whole=whole), "decided": self.decided}

    def figures(self) -> tuple[Figure, ...]:
        if not self._is_long:
            each = max(1, MOST_CELLS // len(self.layers))  # positions in a matrix
            starts = range(0, len(self.tokens), each)
            return (*(self._matrix(at, min(at + each, len(self.tokens))) for at in starts), self._curves())
        maps = [self._map("probability of what truly comes", self.truth), self._map("entropy, nats", self.entropy)]
        if len(self.tokens) > MEDIUM:
            return (*maps, *self._late(), self._curves())
        strip = Strip(
            title="After which layer the answer stands",
            tokens=[_seen(token) for token in self.tokens],
            values=self.decided.astype(float).tolist(),
            value_label="layer",
        )
        return (*maps, strip, self._curves())

    def _sentences(self) -> tuple[str, ...]:
        counts = np.bincount(self.decided, minlength=len(self.layers))
        early = ", ".join(f"{count:,} after layer {at}" for at, count in enumerate(counts) if count)
        known = self.rank[-1] > 0
        right = [int((row[known] == 1).sum()) for row in self.rank]
        return (
            f"The answers at {len(self.tokens):,} positions stand from some layer on: {early}.",
            f"What truly comes is the likeliest at {right[-1]:,} of {int(known.sum()):,} positions after the last "
            f"layer, at {right[0]:,} after the first.",
            "Only the last layer was trained to be read by the head: the others are a look in its words.",
            *([f"The symbols themselves are shown of a window=(start, stop) of up to {SMALL}."] * self._is_long),
        )

    @property
    def _is_long(self) -> bool:
        return len(self.tokens) > SMALL or len(self.layers) > LARGEST_SIDE

    def _matrix(self, start: int, stop: int) -> Figure:
        """The likeliest symbols at some positions."""
        inside = range(start, stop)
        return Matrix(
            title=self.title if start == 0 else f"{self.title}, from position {self.first + start}",
            caption="Colour: how likely the symbol is, from 0 to 1; framed: it is the one that truly comes.",
            rows=[f"{_seen(self.tokens[at])} → {_seen(self.said[at])}" for at in inside],
            columns=[f"layer {path.split('.')[2]}" for path in self.layers],
            values=self.probability[:, start:stop].T.tolist(),
            words=[[_seen(row[at]) for row in self.symbols] for at in inside],
            framed=[
                (at - start, layer) for at in inside for layer in range(len(self.layers)) if self.rank[layer, at] == 1
            ],
            span=(0.0, 1.0),
            x_label="the likeliest symbol after",
            y_label="read → what comes",
        )

    def _map(self, label: str, values: np.ndarray) -> Figure:
        return HeatMap(
            title=f"{self.title}: {label}",
            values=values.tolist(),
            x=[float(self.first + at) for at in range(len(self.tokens))],
            x_label="position",
            y_label="layer",
            value_label=label,
        )

    def _late(self) -> list[Figure]:
        """Where the last layers find what truly comes, and the first does not: the places worth looking at."""
        gain = np.nan_to_num(self.truth[-1] - self.truth[0], nan=-np.inf)
        places = [int(at) for at in np.argsort(-gain, kind="stable")[:LISTED] if np.isfinite(gain[at])]
        if not places:
            return []
        labels = [f"{self.first + at} {_seen(self.tokens[at])} → {_seen(self.said[at])}" for at in places]
        label = "probability after the last layer less that after the first"
        title = "Where the layers find most of what truly comes"
        return [Bars(title=title, labels=labels, values=[float(gain[at]) for at in places], x_label=label)]

    def _curves(self) -> Figure:
        layers = range(len(self.layers))
        known = ~np.isnan(self.truth[-1])
        series = [Series(name="entropy", x=layers, y=self.entropy.mean(axis=1).tolist())]
        if known.any():
            least = np.finfo(self.truth.dtype).tiny
            surprise = -np.log(np.maximum(self.truth[:, known], least)).mean(axis=1)
            series.append(Series(name="surprisal of what truly comes", x=layers, y=surprise.tolist()))
        return Line(title="Layer by layer, mean of all positions", series=series, x_label="layer", y_label="nats")


def lens(subject: Subject, reading: Reading, *, window: tuple[int, int] | None = None) -> LensView:
    """What would be said after each layer, at all positions or those from start to stop of a `window`."""
    places = lens_places(subject, reading)
    count = len(places[0].tokens)
    start, stop = window or (0, count)
    if not 0 <= start < stop <= count:
        raise ConfigError(
            f"the window from {start} to {stop} is not inside the {count:,} positions",
            fix=f"give start and stop with 0 <= start < stop <= {count}",
        )
    # What truly comes at each position: the next symbol, or the one that stands there and is not hidden
    standing = (UNKNOWN_TRUTH if token.symbol in (None, MASK) else token.symbol for token in places[0].tokens)
    truths = list(standing if reading.said is None else reading.said)[start:stop]
    told = heard(subject, reading, [place.path for place in places])
    states = [told[place.path][place.call][:, start:stop] for place in places]  # [1,T,D] what leaves each layer
    symbols, probability, entropy, rank, truth = _read_off(subject, reading.sides[-1].stack, states, truths)
    return LensView(
        title="What would be said after each layer",
        layers=tuple(place.path for place in places),
        tokens=tuple(token.text for token in places[0].tokens[start:stop]),
        said=tuple("?" if truth == UNKNOWN_TRUTH else subject.name(truth) for truth in truths),
        first=start,
        symbols=tuple(tuple(map(subject.name, row)) for row in symbols.tolist()),
        probability=probability,
        entropy=entropy,
        rank=rank,
        truth=truth,
    )


def lens_places(subject: Subject, reading: Reading) -> list[LayerPlace]:
    """Where each layer of the stack that the head reads can be heard; ConfigError for a model that has no lens."""
    if not isinstance(subject.model.head, NextTokenHead):
        raise ConfigError(
            f"a model for {subject.task.name} says no symbols: its layers cannot be read as such",
            fix="choose a language model or a masked one; look at states, gradients or attribution of this one",
        )
    side = reading.sides[-1]
    places = state_places(subject.model, reading, side.name)
    layers = cast(Sequence[nn.Module], subject.model.get_submodule(side.stack).layers)
    if len(places) != len(layers):
        raise ConfigError(
            f"only {len(places)} of the {len(layers)} layers of this model leave a vector that its head could read",
            fix="look at next_symbols, alignment or states",
        )
    return places


@torch.no_grad()
def _read_off(subject: Subject, stack: str, states: Sequence[Tensor], truths: Sequence[int]) -> list[np.ndarray]:
    """[L,T] each: the likeliest column, its probability, the entropy, and rank and probability of the truth."""
    wanted = torch.tensor(truths, device=subject.device)
    exits: Any = subject.model.get_submodule(stack).exit
    behind = (*exits, subject.model.get_submodule("head"))  # what stands behind the last layer

    def blocks(values: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The same of one layer [1,T,D], some positions at a time."""
        for start in range(0, values.shape[1], BLOCK):
            x = Padded.of(values[:, start : start + BLOCK])
            for link in behind:
                x = link(x)
            truth = wanted[start : start + BLOCK]
            known = truth != UNKNOWN_TRUTH
            logs, mine, rank, entropy = said_in(x.values[0], truth.clamp(min=0))
            best, chances = logs.max(dim=-1), mine.exp().masked_fill(~known, float("nan"))
            yield best.indices, best.values.exp(), entropy, rank.masked_fill(~known, 0), chances

    with still(subject.model):
        rows = [list(blocks(values)) for values in states]
    joined = [[torch.cat(parts).cpu().numpy() for parts in zip(*row, strict=True)] for row in rows]
    return [np.stack(column) for column in zip(*joined, strict=True)]


def _seen(text: str) -> str:
    """The text with its space made visible."""
    return text.translate(SPACES)
