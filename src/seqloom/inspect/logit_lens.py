"""The logit lens: what each layer predicts through the output head (nostalgebraist 2020).

    h_l      the vectors that leave layer l                 p_l = softmax(head(norm(h_l)))
    row l    the most probable token of p_l and its probability, the entropy of p_l, and the probability and rank of
             the target: the token that actually comes

The final norm and the head are the model's own, so the last row is the prediction of the model. Only the last layer
was trained with this head: a layer that encodes things differently looks worse than it is. The target of a masked
language model is the token at the position.
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
from seqloom.inspect.subject import Reading, Subject, target_statistics
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.nn.heads import NextTokenHead
from seqloom.nn.types import Padded
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import LARGEST_SIDE, MOST_CELLS, Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted
from seqloom.text.special_tokens import MASK

BLOCK = 128  # positions whose scores are in memory at a time
UNKNOWN_TRUTH = -1
LISTED = 20
SPACES = str.maketrans({" ": "␣", "\t": "⇥", "\n": "↵"})


@dataclass(frozen=True, kw_only=True)
class LogitLensView(View):
    """Layers x positions: the prediction after each layer."""

    kind: ClassVar[str] = "logit_lens"
    layers: tuple[str, ...]  # paths; the last one gives the prediction of the model
    tokens: tuple[str, ...]  # the token at each position
    targets: tuple[str, ...]  # the target at each position; ? if unknown
    first: int  # index of the first position shown
    predictions: tuple[tuple[str, ...], ...]  # [L][T] the most probable token
    probability: np.ndarray  # [L,T] of it
    entropy: np.ndarray  # [L,T] nats
    target_rank: np.ndarray  # [L,T] of the target, 1 is the most probable; 0 if unknown
    target_probability: np.ndarray  # [L,T] of the target; NaN if unknown

    @property
    def decided_after(self) -> np.ndarray:
        """[T] the layer after which the most probable token does not change any more."""
        tokens = np.array(self.predictions, dtype=object)
        agreed = np.logical_and.accumulate((tokens == tokens[-1])[::-1])[::-1]  # [L,T] this and all later layers agree
        found: np.ndarray = agreed.argmax(axis=0)
        return found

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        return {**super().json_values(full=full), "decided_after": self.decided_after}

    def figures(self) -> tuple[Figure, ...]:
        if not self._is_long:
            each = max(1, MOST_CELLS // len(self.layers))  # positions in a matrix
            starts = range(0, len(self.tokens), each)
            return (*(self._matrix(at, min(at + each, len(self.tokens))) for at in starts), self._curves())
        maps = [
            self._map("probability of the target", self.target_probability),
            self._map("entropy, nats", self.entropy),
        ]
        if len(self.tokens) > MEDIUM:
            return (*maps, *self._late(), self._curves())
        strip = Strip(
            title="Layer after which the prediction is final",
            tokens=[_visible(token) for token in self.tokens],
            values=self.decided_after.astype(float).tolist(),
            value_label="layer",
        )
        return (*maps, strip, self._curves())

    def _sentences(self) -> tuple[str, ...]:
        counts = np.bincount(self.decided_after, minlength=len(self.layers))
        early = ", ".join(f"after layer {at} at {count:,}" for at, count in enumerate(counts) if count)
        known = self.target_rank[-1] > 0
        right = [int((row[known] == 1).sum()) for row in self.target_rank]
        return (
            f"Of {counted(len(self.tokens), 'position')}, the prediction is final {early}.",
            f"The target is the top prediction at {right[-1]:,} of {int(known.sum()):,} positions after the last "
            f"layer, and at {right[0]:,} after the first.",
            "Only the last layer was trained with the output head; read the others with care.",
            *([f"Use window=(start, stop) of up to {SMALL} positions to see the tokens."] * self._is_long),
        )

    @property
    def _is_long(self) -> bool:
        return len(self.tokens) > SMALL or len(self.layers) > LARGEST_SIDE

    def _matrix(self, start: int, stop: int) -> Figure:
        """The most probable tokens at some positions."""
        inside = range(start, stop)
        return Matrix(
            title=self.title if start == 0 else f"{self.title}, from position {self.first + start}",
            caption="Top prediction of each layer; color: its probability, 0 to 1; framed: it is the target.",
            rows=[f"{_visible(self.tokens[at])} → {_visible(self.targets[at])}" for at in inside],
            columns=[f"layer {path.split('.')[2]}" for path in self.layers],
            values=self.probability[:, start:stop].T.tolist(),
            words=[[_visible(row[at]) for row in self.predictions] for at in inside],
            framed=[
                (at - start, layer)
                for at in inside
                for layer in range(len(self.layers))
                if self.target_rank[layer, at] == 1
            ],
            span=(0.0, 1.0),
            x_label="top prediction after",
            y_label="token → target",
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
        """The positions with the largest gain from the first to the last layer."""
        gain = np.nan_to_num(self.target_probability[-1] - self.target_probability[0], nan=-np.inf)
        places = [int(at) for at in np.argsort(-gain, kind="stable")[:LISTED] if np.isfinite(gain[at])]
        if not places:
            return []
        labels = [f"{self.first + at} {_visible(self.tokens[at])} → {_visible(self.targets[at])}" for at in places]
        label = "probability of the target: last layer - first layer"
        title = "Largest gains from the first to the last layer"
        return [Bars(title=title, labels=labels, values=[float(gain[at]) for at in places], x_label=label)]

    def _curves(self) -> Figure:
        layers = range(len(self.layers))
        known = ~np.isnan(self.target_probability[-1])
        series = [Series(name="entropy", x=layers, y=self.entropy.mean(axis=1).tolist())]
        if known.any():
            least = np.finfo(self.target_probability.dtype).tiny
            surprise = -np.log(np.maximum(self.target_probability[:, known], least)).mean(axis=1)
            series.append(Series(name="surprisal of the target", x=layers, y=surprise.tolist()))
        return Line(title="Mean over all positions, by layer", series=series, x_label="layer", y_label="nats")


def logit_lens(subject: Subject, reading: Reading, *, window: tuple[int, int] | None = None) -> LogitLensView:
    """The prediction of each layer through the output head, at every position.

    Args:
        window: Only the positions start..stop.
    """
    places = logit_lens_places(subject, reading)
    count = len(places[0].tokens)
    start, stop = window or (0, count)
    if not 0 <= start < stop <= count:
        raise ConfigError(
            f"the window from {start} to {stop} is not inside the {count:,} positions",
            fix=f"give start and stop with 0 <= start < stop <= {count}",
        )
    # The target at each position: the next token, or the token itself if it is not masked
    run_state = (UNKNOWN_TRUTH if token.id in (None, MASK) else token.id for token in places[0].tokens)
    truths = list(run_state if reading.targets is None else reading.targets)[start:stop]
    record = heard(subject, reading, [place.path for place in places])
    states = [record[place.path][place.call][:, start:stop] for place in places]  # [1,T,D] output of each layer
    tokens, probability, entropy, rank, truth = _read_off(subject, reading.sides[-1].stack, states, truths)
    return LogitLensView(
        title="Logit lens: prediction after each layer",
        layers=tuple(place.path for place in places),
        tokens=tuple(token.text for token in places[0].tokens[start:stop]),
        targets=tuple("?" if truth == UNKNOWN_TRUTH else subject.name(truth) for truth in truths),
        first=start,
        predictions=tuple(tuple(map(subject.name, row)) for row in tokens.tolist()),
        probability=probability,
        entropy=entropy,
        target_rank=rank,
        target_probability=truth,
    )


def logit_lens_places(subject: Subject, reading: Reading) -> list[LayerPlace]:
    """The layers whose outputs the head can read; ConfigError for a model without a logit lens."""
    if not isinstance(subject.model.head, NextTokenHead):
        raise ConfigError(
            f"a model for {subject.task.name} does not predict tokens",
            fix="choose a language model or a masked language model, or another view: states, attribution",
        )
    side = reading.sides[-1]
    places = state_places(subject.model, reading, side.name)
    layers = cast(Sequence[nn.Module], subject.model.get_submodule(side.stack).layers)
    if len(places) != len(layers):
        raise ConfigError(
            f"only {len(places)} of the {len(layers)} layers have an output that the head can read",
            fix="choose next_tokens, alignment or states",
        )
    return places


@torch.no_grad()
def _read_off(subject: Subject, stack: str, states: Sequence[Tensor], truths: Sequence[int]) -> list[np.ndarray]:
    """[L,T] each: the most probable column, its probability, the entropy, and rank and probability of the target."""
    wanted = torch.tensor(truths, device=subject.device)
    exits: Any = subject.model.get_submodule(stack).exit
    behind = (*exits, subject.model.get_submodule("head"))  # modules after the last layer

    def blocks(values: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield the statistics of one layer [1,T,D], some positions at a time."""
        for start in range(0, values.shape[1], BLOCK):
            x = Padded.of(values[:, start : start + BLOCK])
            for link in behind:
                x = link(x)
            truth = wanted[start : start + BLOCK]
            known = truth != UNKNOWN_TRUTH
            logs, mine, rank, entropy = target_statistics(x.values[0], truth.clamp(min=0))
            best, chances = logs.max(dim=-1), mine.exp().masked_fill(~known, float("nan"))
            yield best.indices, best.values.exp(), entropy, rank.masked_fill(~known, 0), chances

    with still(subject.model):
        rows = [list(blocks(values)) for values in states]
    joined = [[torch.cat(parts).cpu().numpy() for parts in zip(*row, strict=True)] for row in rows]
    return [np.stack(column) for column in zip(*joined, strict=True)]


def _visible(text: str) -> str:
    """The text with visible spaces."""
    return text.translate(SPACES)
