"""What a model knows about position: the vectors, angles, slopes or biases that tell it where a token stands.

    sinusoidal, learned   a vector p_t for each place; similar places have similar vectors: cos(p_i, p_j) by |i - j|
    rotary                angle t / 10000^(2i/d) of pair i; what is left of q . k at a distance: the mean cosine
    alibi                 -m_h |i - j|, a straight line for each head
    t5, shaw              a learned number for each head, or a vector, by the signed distance j - i

A sine of rate r comes round after 2 pi / r places: its wavelength. Beyond the longest input of training everything is
extrapolation, which pictures mark; `extrapolation` measures what becomes of the loss there. The symbols of all texts
are laid end to end and cut into windows of each length, every one read from its own BEGIN, so that all lengths see the
same text. Positions that generalise give a curve that goes on falling, as more is known of what came before; others
rise behind the trained length (Press et al. 2022).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.flow import still
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.layouts import Places
from seqloom.nn.mixers.attention import Heads, Relation
from seqloom.nn.models import LanguageModel
from seqloom.nn.ops.relations import Alibi, Buckets, angles
from seqloom.nn.positions import Positions, sinusoids
from seqloom.nn.types import Padded
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import interval, number
from seqloom.text.special_tokens import BEGIN

USUAL = 128  # places that are shown where nothing is known of training and nothing is asked for
MOST_ROWS, MOST_COLUMNS = 192, 256  # of a map
MOST_HEADS = 12  # curves of heads
POINTS = 400


class PositionAnswer(NamedTuple):
    """What one kind of position tells."""

    values: np.ndarray  # [R,N] a map: places x dimensions, or heads x distances
    y: tuple[float, ...]  # numbers of the rows
    x: tuple[float, ...]
    labels: tuple[str, str, str]  # of the rows, of the columns, of the value
    curves: tuple[tuple[str, np.ndarray], ...]  # by distance
    distances: np.ndarray
    curve_label: str
    wavelengths: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PositionsView(View):
    """The positions of one stack."""

    kind: ClassVar[str] = "positions"
    how: str
    where: str  # the path of the module that knows them
    length: int
    trained: int | None  # the longest input of training, where it is known
    limit: int | None  # of learned positions
    told: PositionAnswer

    def figures(self) -> tuple[Figure, ...]:
        if not self.told.wavelengths:
            return self._map(), self._curves()
        pairs = range(len(self.told.wavelengths))
        series = [Series(name="wavelength", x=pairs, y=self.told.wavelengths)]
        if self.trained:
            series.append(Series(name="longest in training", x=pairs, y=[self.trained] * len(pairs)))
        title = "After how many places each pair of dimensions comes round"
        waves = Line(title=title, series=series, x_label="pair", y_label="places", y_axis="log")
        return self._map(), self._curves(), waves

    def _sentences(self) -> tuple[str, ...]:
        known = f"{self.trained:,} elements" if self.trained else "unknown"
        end = f" The table ends at {self.limit:,}." if self.limit is not None else " There is no last place."
        return (f"Positions are {self.how} ({self.where}). Longest input of training: {known}.{end}",)

    def _map(self) -> Figure:
        rows, columns, value = self.told.labels
        values, y = _thinned(self.told.values, self.told.y, MOST_ROWS)
        transposed, x = _thinned(np.array(values).T, self.told.x, MOST_COLUMNS)
        cells: list[list[float | None]] = np.array(transposed).T.tolist()
        numbers, caption = list(y), ""
        if rows == "place" and self.trained and self.told.y[0] < self.trained <= self.told.y[-1]:
            at = sum(number < self.trained for number in numbers)
            cells.insert(at, [None] * len(cells[0]))
            numbers.insert(at, self.trained)
            caption = f"Below the hatched row nothing was trained: the longest input had {self.trained:,} elements."
        if len(y) < len(self.told.y):
            caption = f"Each row is the mean of up to {-(-len(self.told.y) // MOST_ROWS)}. {caption}".strip()
        return HeatMap(
            title=self.title,
            values=cells,
            y=numbers,
            x=list(x),
            y_label=rows,
            x_label=columns,
            value_label=value,
            caption=caption,
        )

    def _curves(self) -> Figure:
        step = max(1, -(-len(self.told.distances) // POINTS))
        places = self.told.distances[::step].tolist()
        series = [Series(name=name, x=places, y=values[::step].tolist()) for name, values in self.told.curves]
        every = np.concatenate([values for _, values in self.told.curves])
        ends = [float(every.min()), float(every.max())]
        for border in (-self.trained, self.trained) if self.trained else ():  # an upright line where training ended
            if self.told.distances[0] < border < self.told.distances[-1]:
                series.append(Series(name="longest in training", x=[border, border], y=ends))
        return Line(title="By distance", series=series, x_label="distance", y_label=self.told.curve_label)


def positions(
    subject: Subject,
    reading: Reading | None = None,
    *,
    layer: int | str | None = None,
    side: str | None = None,
    length: int | None = None,
) -> PositionsView:
    """The positions of a stack, of the first layer that has any if none is named, for `length` places."""
    stack = "" if reading is None else f"{reading.side(side).stack}."
    found = {  # relations of kind none know nothing
        path: module
        for path, module in subject.model.named_modules()
        if (isinstance(module, Positions) or (isinstance(module, Relation) and module.position in TELLING))
        and path.startswith(stack)
    }
    path, module = _chosen(found, layer)
    trained = subject.task.meaning.longest or None
    limit = len(module.table) if isinstance(module, Positions) and module.learned else None
    wanted = length or max(trained or 0, 0 if reading is None else len(reading.side(side).tokens)) or USUAL
    if length is not None and length < 2:
        raise ConfigError(f"{length} places were asked for", fix="ask for two at least")
    shown = max(2, wanted if limit is None else min(wanted, limit))
    how = module.position if isinstance(module, Relation) else "sinusoidal" if limit is None else "learned"
    # The width of one head of the layer that a relation belongs to; 0 where positions enter with the inputs
    heads = getattr(subject.model.get_submodule(path.rpartition(".")[0]), "heads", None)
    head_width = heads.query.out_features // heads.num_heads if isinstance(heads, Heads) else 0
    return PositionsView(
        title=f"Positions: {how}",
        how=how,
        where=path,
        length=shown,
        trained=trained,
        limit=limit,
        told=TELLING[how](module, shown, head_width),
    )


def _chosen(found: Mapping[str, nn.Module], layer: int | str | None) -> tuple[str, nn.Module]:
    if not found:
        raise ConfigError(
            "this model has no positions: order reaches it through recurrence or convolution, or not at all",
            fix="look at its gradients or filters, or choose a model with position sinusoidal, learned, rotary, ...",
        )
    named = list(found.items())
    if layer is None:
        return named[0]
    if isinstance(layer, int) and 0 <= layer < len(named):
        return named[layer]
    fitting = [one for one in named if isinstance(layer, str) and one[0].startswith(layer)]
    if not fitting:
        there = ", ".join(f"{number} ({path})" for number, path in enumerate(found))
        raise ConfigError(f"no positions at layer {layer}", fix=f"choose from {there}")
    return fitting[0]


def _of_table(module: Positions, length: int, _: int) -> PositionAnswer:
    learned = module.learned
    table = module.table[:length].detach().cpu() if learned else sinusoids(torch.arange(length), module.width)
    values = table.double().numpy()
    places, dimensions = values.shape
    return PositionAnswer(
        values,
        tuple(map(float, range(places))),
        tuple(map(float, range(dimensions))),
        ("place", "dimension", "value"),
        (("mean cosine of two places", similarity_by_distance(values)),),
        np.arange(places),
        "cosine",
        () if learned else wavelengths(module.width),
    )


def similarity_by_distance(table: np.ndarray) -> np.ndarray:
    """[L] the mean of cos(p_i, p_j) over all pairs at each distance |i - j|, of a table [L,D].

    >>> similarity_by_distance(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [1.0, 0.0, 1.0]
    """
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return np.array([(unit[: len(unit) - gap] * unit[gap:]).sum(axis=1).mean() for gap in range(len(unit))])


def wavelengths(width: int) -> tuple[float, ...]:
    """After how many places each pair of dimensions comes round: 2 pi 10000^(2i/width)."""
    rates = angles(torch.ones(1), width)[0]
    return tuple(float(2 * math.pi / rate) for rate in rates)


def _rotary(_: Relation, length: int, width: int) -> PositionAnswer:
    turned = angles(torch.arange(length), width).double().numpy()
    return PositionAnswer(
        np.cos(turned),
        tuple(map(float, range(length))),
        tuple(map(float, range(turned.shape[1]))),
        ("place", "pair of dimensions", "cosine of its angle"),
        (("q . k where q = k, all pairs alike", np.cos(turned).mean(axis=1)),),
        np.arange(length),
        "share of q . k that is left",
        wavelengths(width),
    )


def _biased(module: Relation, length: int, _: int) -> PositionAnswer:
    """The bias of each head by the signed distance j - i, ahead only where a head may look ahead."""
    bias = module.bias()
    assert isinstance(bias, Alibi | Buckets), "those that add a number"
    ahead = length if module.two_sided else 1
    distances = np.arange(1 - length, ahead)
    device = bias[0].device
    term = bias.term(_places([length - 1], device), _places((distances + length - 1).tolist(), device))
    values = term[0, :, 0].detach().double().cpu().numpy()
    curves = tuple((f"head {head}", values[head]) for head in range(min(len(values), MOST_HEADS)))
    heads = tuple(map(float, range(len(values))))
    labels = ("head", "distance j - i", "added to the score")
    return PositionAnswer(values, heads, tuple(distances.tolist()), labels, curves, distances, labels[2])


def _places(positions: Sequence[int], device: torch.device) -> Places:
    where = torch.tensor([list(positions)], device=device)
    return Places(where, torch.zeros_like(where), torch.ones_like(where, dtype=torch.bool))


def _shaw(module: Relation, _: int, _width: int) -> PositionAnswer:
    keys = module.keys.detach().double().cpu().numpy()
    radius = len(keys) // 2
    distances = np.arange(-radius, radius + 1)
    unit = keys / np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), 1e-12)
    curves = (("length of the vector", np.linalg.norm(keys, axis=1)), ("cosine with distance 0", unit @ unit[radius]))
    labels = ("distance j - i", "dimension", "value")
    return PositionAnswer(
        keys, tuple(distances.tolist()), tuple(map(float, range(keys.shape[1]))), labels, curves, distances, ""
    )


TELLING: Mapping[str, Callable[..., PositionAnswer]] = {
    "sinusoidal": _of_table,
    "learned": _of_table,
    "rotary": _rotary,
    "alibi": _biased,
    "t5": _biased,
    "shaw": _shaw,
}


def _thinned(values: np.ndarray, numbers: Sequence[float], most: int) -> tuple[list[list[float]], list[float]]:
    """At most so many rows, each the mean of its block, and the number of the first of it."""
    size = max(1, -(-len(values) // most))
    rows = [values[at : at + size].mean(axis=0).tolist() for at in range(0, len(values), size)]
    return rows, list(numbers[::size])


ROWS = 16  # windows of each length, at most


@dataclass(frozen=True, kw_only=True)
class ExtrapolationView(View):
    """The loss against the length."""

    kind: ClassVar[str] = "extrapolation"
    lengths: tuple[int, ...]
    loss: np.ndarray  # [N] nats for each symbol
    beyond: np.ndarray  # [N] the same of symbols behind the trained length alone; NaN where there are none
    windows: tuple[int, ...]
    trained: int | None

    def figures(self) -> tuple[Figure, ...]:
        series = [Series(name="all symbols", x=self.lengths, y=self.loss.tolist())]
        if not np.isnan(self.beyond).all():
            series.append(Series(name="symbols behind the trained length", x=self.lengths, y=self.beyond.tolist()))
        if self.trained and self.lengths[0] <= self.trained <= self.lengths[-1]:
            known = np.concatenate([self.loss, self.beyond])
            ends = [float(np.nanmin(known)), float(np.nanmax(known))]
            series.append(Series(name="longest in training", x=[self.trained, self.trained], y=ends))
        return (Line(title=self.title, series=series, x_label="symbols that are read at once", y_label="loss, nats"),)

    def _sentences(self) -> tuple[str, ...]:
        inside = [at for at, length in enumerate(self.lengths) if self.trained and length <= self.trained]
        outside = [at for at, length in enumerate(self.lengths) if self.trained and length > self.trained]
        if not inside or not outside:
            return (f"Loss at {self.lengths[-1]:,} symbols: {number(self.loss[-1])}.",)
        best, last = float(self.loss[inside].min()), float(self.loss[outside[-1]])
        word = "rises" if last > best else "does not rise"
        return (f"Beyond the trained {self.trained:,} symbols the loss {word}: {interval(best, last)}.",)


@torch.no_grad()
def extrapolation(subject: Subject, texts: Sequence[str], *, lengths: Sequence[int]) -> ExtrapolationView:
    """The loss of a language model on windows of each of these lengths."""
    model = subject.model
    if not isinstance(model, LanguageModel):
        raise ConfigError(f"a model for {subject.task.name} reads no running text", fix="choose a language model")
    wanted = tuple(sorted(set(lengths)))
    symbols = torch.cat([read(subject, text).inputs.values[0, 1:] for text in texts]) if texts else torch.empty(0)
    if not wanted or wanted[0] < 2:
        raise DataError(f"the lengths {list(wanted)}", fix="give lengths of two symbols or more")
    longest, limit = wanted[-1], model.config.decoder.limit()
    if longest > len(symbols):
        raise DataError(f"a window of {longest:,} symbols, and the texts have {len(symbols):,}", fix="give more text")
    if limit is not None and longest > limit:
        raise DataError(
            f"a window of {longest:,} symbols, and the learned positions of the model end at {limit:,}",
            fix=f"ask for {limit:,} at most; sinusoidal, rotary and alibi positions have no end",
        )
    trained = subject.task.meaning.longest or None
    losses, behind, counts = [], [], []
    with still(model):
        for length in wanted:
            # [windows,length] the surprisal of every symbol; one window after another, as memory is what it is
            starts = range(0, len(symbols) - length + 1, length)
            step = max(1, -(-len(starts) // ROWS))
            rows = []
            for start in starts[::step]:
                window = symbols[start : start + length]
                fed = torch.cat([torch.full_like(window[:1], BEGIN), window[:-1]])
                told = scores(subject, Padded.of(fed[None]))[0].float()
                rows.append(nn.functional.cross_entropy(told, window, reduction="none").cpu().numpy())
            found = np.stack(rows)
            losses.append(float(found.mean()))
            late = found[:, trained:] if trained else found[:, :0]
            behind.append(float(late.mean()) if late.size else np.nan)
            counts.append(len(found))
    return ExtrapolationView(
        title="Loss against length",
        lengths=wanted,
        loss=np.array(losses),
        beyond=np.array(behind),
        windows=tuple(counts),
        trained=trained,
    )
