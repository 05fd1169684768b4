"""Position encodings of a model: vectors, rotation angles, slopes or biases.

    sinusoidal, learned   a vector p_t for each position; similarity cos(p_i, p_j) by |i - j|
    rotary                angle t / 10000^(2i/d) of pair i; q . k by distance: the mean cosine
    alibi                 -m_h |i - j|, a straight line for each head
    t5, shaw              a learned bias for each head, or a vector, by the signed distance j - i

A sine with angular frequency r has wavelength 2 pi / r. Figures of weights mark the longest training input.
`extrapolation`
measures the loss beyond it: the tokens of all texts are concatenated and split into windows of each length, so that all
lengths see the same text. With positions that generalize the loss keeps falling with more context; with others it rises
beyond the trained length (Press et al. 2022).
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
from seqloom.inspect.layer_names import layer_title
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.mixers.attention import Heads, Relation
from seqloom.nn.models import LanguageModel
from seqloom.nn.ops.relations import Alibi, Buckets, angles
from seqloom.nn.positions import Positions, sinusoids
from seqloom.nn.types import Padded, Places
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import counted, interval, number
from seqloom.text.special_tokens import BEGIN

DEFAULT_LENGTH = 128  # positions, if neither training nor the caller sets a length
MOST_ROWS, MOST_COLUMNS = 192, 256  # of a map
MOST_HEADS = 12  # curves of heads
POINTS = 400
TRAINED = ("learned", "t5", "shaw")  # schemes with weights; the others are computed


class PositionAnswer(NamedTuple):
    """The values of one position encoding, as a map and as curves by distance."""

    values: np.ndarray  # [R,N] a map: positions x dimensions, or heads x distances
    y: tuple[float, ...]  # numbers of the rows
    x: tuple[float, ...]
    labels: tuple[str, str, str]  # of the rows, of the columns, of the value
    curves: tuple[tuple[str, np.ndarray], ...]  # by distance
    distances: np.ndarray
    curve_label: str
    wavelengths: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PositionsView(View):
    """The position encoding of one stack."""

    kind: ClassVar[str] = "positions"
    scheme: str
    layer: str  # path of the module with the positions
    length: int
    trained_length: int | None  # longest training input, if known
    max_positions: int | None  # of learned positions
    details: PositionAnswer

    def figures(self) -> tuple[Figure, ...]:
        if not self.details.wavelengths:
            return self._map(), self._curves()
        pairs = range(len(self.details.wavelengths))
        series = [Series(name="wavelength", x=pairs, y=self.details.wavelengths)]
        title = "Wavelength of each pair of dimensions"
        waves = Line(title=title, series=series, x_label="pair", y_label="positions", y_axis="log")
        return self._map(), self._curves(), waves

    def _sentences(self) -> tuple[str, ...]:
        known = counted(self.trained_length, "token") if self.trained_length else "unknown"
        end = (
            f" The position table has {self.max_positions:,} entries."
            if self.max_positions is not None
            else " There is no maximum position."
        )
        trained = (
            f"Longest training input: {known}.{end}"
            if self.scheme in TRAINED
            else "It is computed, not trained, for any number of positions."
        )
        return (f"Position encoding: {self.scheme} ({layer_title(self.layer)}). {trained}",)

    def _map(self) -> Figure:
        rows, columns, value = self.details.labels
        values, y = _thinned(self.details.values, self.details.y, MOST_ROWS)
        transposed, x = _thinned(np.array(values).T, self.details.x, MOST_COLUMNS)
        caption = ""
        if self.scheme == "learned" and self.trained_length and self.trained_length <= self.details.y[-1]:
            caption = f"Positions from {self.trained_length:,} on were not trained: no training input is so long."
        if len(y) < len(self.details.y):
            caption = f"Each row is the mean of up to {-(-len(self.details.y) // MOST_ROWS)}. {caption}".strip()
        return HeatMap(
            title=self.title,
            values=np.array(transposed).T.tolist(),
            y=list(y),
            x=list(x),
            y_label=rows,
            x_label=columns,
            value_label=value,
            caption=caption,
        )

    def _curves(self) -> Figure:
        step = max(1, -(-len(self.details.distances) // POINTS))
        places = self.details.distances[::step].tolist()
        series = [Series(name=name, x=places, y=values[::step].tolist()) for name, values in self.details.curves]
        every = np.concatenate([values for _, values in self.details.curves])
        ends = [float(every.min()), float(every.max())]
        length = self.trained_length if self.scheme in TRAINED else None
        for border in (-length, length) if length else ():  # a vertical line at the trained length
            if self.details.distances[0] < border < self.details.distances[-1]:
                series.append(Series(name="longest training input", x=[border, border], y=ends))
        return Line(
            title="By distance between two positions",
            series=series,
            x_label="distance",
            y_label=self.details.curve_label,
        )


def positions(
    subject: Subject,
    reading: Reading | None = None,
    *,
    layer: int | str | None = None,
    side: str | None = None,
    length: int | None = None,
) -> PositionsView:
    """The position encoding of a model.

    Args:
        layer: Number or path of a module with positions (default: the first).
        side: The sequence: source or target, first or second.
        length: Number of positions to show (default: the longest training input or this input).
    """
    stack = "" if reading is None else f"{reading.side(side).stack}."
    found = {  # relations of kind "none" have no parameters
        path: module
        for path, module in subject.model.named_modules()
        if (isinstance(module, Positions) or (isinstance(module, Relation) and module.position in SCHEMES))
        and path.startswith(stack)
    }
    path, module = _chosen(found, layer)
    trained = subject.task.spec.max_length or None
    limit = len(module.table) if isinstance(module, Positions) and module.learned else None
    wanted = length or max(trained or 0, 0 if reading is None else len(reading.side(side).tokens)) or DEFAULT_LENGTH
    if length is not None and length < 2:
        raise ConfigError(f"length is {length}", fix="give 2 or more")
    shown = max(2, wanted if limit is None else min(wanted, limit))
    how = module.position if isinstance(module, Relation) else "sinusoidal" if limit is None else "learned"
    # The width of one head of the layer of a relation; 0 if positions are added to the inputs
    heads = getattr(subject.model.get_submodule(path.rpartition(".")[0]), "heads", None)
    head_width = heads.query.out_features // heads.num_heads if isinstance(heads, Heads) else 0
    return PositionsView(
        title=f"Positions: {how}",
        scheme=how,
        layer=path,
        length=shown,
        trained_length=trained,
        max_positions=limit,
        details=SCHEMES[how](module, shown, head_width),
    )


def _chosen(found: Mapping[str, nn.Module], layer: int | str | None) -> tuple[str, nn.Module]:
    if not found:
        raise ConfigError(
            "this model has no position encoding: it sees order through recurrence or convolution, or not at all",
            fix="choose gradients or filters, or a model with sinusoidal, learned, rotary, ... positions",
        )
    named = list(found.items())
    if layer is None:
        return named[0]
    if isinstance(layer, int) and 0 <= layer < len(named):
        return named[layer]
    fitting = [one for one in named if isinstance(layer, str) and one[0].startswith(layer)]
    if not fitting:
        there = ", ".join(f"{number} ({path})" for number, path in enumerate(found))
        raise ConfigError(f"no position encoding at layer {layer}", fix=f"choose from {there}")
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
        ("position", "dimension", "value"),
        (("mean cosine of two positions", similarity_by_distance(values)),),
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
    """The wavelength of each pair of dimensions: 2 pi 10000^(2i/width)."""
    rates = angles(torch.ones(1), width)[0]
    return tuple(float(2 * math.pi / rate) for rate in rates)


def _rotary(_: Relation, length: int, width: int) -> PositionAnswer:
    turned = angles(torch.arange(length), width).double().numpy()
    return PositionAnswer(
        np.cos(turned),
        tuple(map(float, range(length))),
        tuple(map(float, range(turned.shape[1]))),
        ("position", "pair of dimensions", "cosine of its angle"),
        (("q . k for equal q and k", np.cos(turned).mean(axis=1)),),
        np.arange(length),
        "q . k relative to distance 0",
        wavelengths(width),
    )


def _biased(module: Relation, length: int, _: int) -> PositionAnswer:
    """The bias of each head by the signed distance j - i; positive distances only without a causal mask."""
    bias = module.bias()
    assert isinstance(bias, Alibi | Buckets), "those that add a number"
    ahead = length if module.two_sided else 1
    distances = np.arange(1 - length, ahead)
    device = bias[0].device
    term = bias.term(_places([length - 1], device), _places((distances + length - 1).tolist(), device))
    values = term[0, :, 0].detach().double().cpu().numpy()
    curves = tuple((f"head {head}", values[head]) for head in range(min(len(values), MOST_HEADS)))
    heads = tuple(map(float, range(len(values))))
    labels = ("head", "distance j - i", "bias added to the logit")
    return PositionAnswer(values, heads, tuple(distances.tolist()), labels, curves, distances, labels[2])


def _places(positions: Sequence[int], device: torch.device) -> Places:
    where = torch.tensor([list(positions)], device=device)
    return Places(where, torch.zeros_like(where), torch.ones_like(where, dtype=torch.bool))


def _shaw(module: Relation, _: int, _width: int) -> PositionAnswer:
    keys = module.keys.detach().double().cpu().numpy()
    radius = len(keys) // 2
    distances = np.arange(-radius, radius + 1)
    unit = keys / np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), 1e-12)
    curves = (("norm of the vector", np.linalg.norm(keys, axis=1)), ("cosine with distance 0", unit @ unit[radius]))
    labels = ("distance j - i", "dimension", "value")
    return PositionAnswer(
        keys, tuple(distances.tolist()), tuple(map(float, range(keys.shape[1]))), labels, curves, distances, ""
    )


SCHEMES: Mapping[str, Callable[..., PositionAnswer]] = {
    "sinusoidal": _of_table,
    "learned": _of_table,
    "rotary": _rotary,
    "alibi": _biased,
    "t5": _biased,
    "shaw": _shaw,
}


def _thinned(values: np.ndarray, numbers: Sequence[float], most: int) -> tuple[list[list[float]], list[float]]:
    """At most `most` rows, each the mean of a block, and the number of its first row."""
    size = max(1, -(-len(values) // most))
    rows = [values[at : at + size].mean(axis=0).tolist() for at in range(0, len(values), size)]
    return rows, list(numbers[::size])


ROWS = 16  # windows of each length, at most


@dataclass(frozen=True, kw_only=True)
class ExtrapolationView(View):
    """The loss by context length."""

    kind: ClassVar[str] = "extrapolation"
    lengths: tuple[int, ...]
    loss: np.ndarray  # [N] nats for each token
    loss_beyond: np.ndarray  # [N] only tokens beyond the trained length; NaN without any
    windows: tuple[int, ...]
    trained_length: int | None

    def figures(self) -> tuple[Figure, ...]:
        series = [Series(name="all tokens", x=self.lengths, y=self.loss.tolist())]
        if not np.isnan(self.loss_beyond).all():
            series.append(Series(name="tokens beyond the trained length", x=self.lengths, y=self.loss_beyond.tolist()))
        if self.trained_length and self.lengths[0] <= self.trained_length <= self.lengths[-1]:
            known = np.concatenate([self.loss, self.loss_beyond])
            ends = [float(np.nanmin(known)), float(np.nanmax(known))]
            series.append(Series(name="longest training input", x=[self.trained_length, self.trained_length], y=ends))
        return (Line(title=self.title, series=series, x_label="context length in tokens", y_label="loss, nats"),)

    def _sentences(self) -> tuple[str, ...]:
        inside = [at for at, length in enumerate(self.lengths) if self.trained_length and length <= self.trained_length]
        outside = [at for at, length in enumerate(self.lengths) if self.trained_length and length > self.trained_length]
        if not inside or not outside:
            return (f"Loss at {self.lengths[-1]:,} tokens: {number(self.loss[-1])}.",)
        best, last = float(self.loss[inside].min()), float(self.loss[outside[-1]])
        word = "rises" if last > best else "does not rise"
        return (f"Beyond the trained {self.trained_length:,} tokens the loss {word}: {interval(best, last)}.",)


@torch.no_grad()
def extrapolation(subject: Subject, texts: Sequence[str], *, lengths: Sequence[int]) -> ExtrapolationView:
    """The loss of a language model for each of these context lengths."""
    model = subject.model
    if not isinstance(model, LanguageModel):
        raise ConfigError(f"a model for {subject.task.name} is not a language model", fix="choose a language model")
    wanted = tuple(sorted(set(lengths)))
    tokens = torch.cat([read(subject, text).inputs.values[0, 1:] for text in texts]) if texts else torch.empty(0)
    if not wanted or wanted[0] < 2:
        raise DataError(f"lengths is {list(wanted)}", fix="give lengths of two tokens or more")
    longest, limit = wanted[-1], model.config.decoder.limit()
    if longest > len(tokens):
        raise DataError(
            f"the texts have {len(tokens):,} tokens, fewer than the window of {longest:,}", fix="give more text"
        )
    if limit is not None and longest > limit:
        raise DataError(
            f"the window of {longest:,} tokens is longer than the {limit:,} learned positions",
            fix=f"give lengths up to {limit:,}; sinusoidal, rotary and alibi positions have no limit",
        )
    trained = subject.task.spec.max_length or None
    losses, behind, counts = [], [], []
    with still(model):
        for length in wanted:
            # [windows,length] the surprisal of every token, one window at a time to save memory
            starts = range(0, len(tokens) - length + 1, length)
            step = max(1, -(-len(starts) // ROWS))
            rows = []
            for start in starts[::step]:
                window = tokens[start : start + length]
                fed = torch.cat([torch.full_like(window[:1], BEGIN), window[:-1]])
                scored = scores(subject, Padded.of(fed[None]))[0].float()
                rows.append(nn.functional.cross_entropy(scored, window, reduction="none").cpu().numpy())
            found = np.stack(rows)
            losses.append(float(found.mean()))
            late = found[:, trained:] if trained else found[:, :0]
            behind.append(float(late.mean()) if late.size else np.nan)
            counts.append(len(found))
    return ExtrapolationView(
        title="Loss by context length",
        lengths=wanted,
        loss=np.array(losses),
        loss_beyond=np.array(behind),
        windows=tuple(counts),
        trained_length=trained,
    )
