"""The attention matrix: which tokens does each token attend to?

up to 64 tokens      every weight, the entropy of each query and the attention that each token receives
up to 256            a map of every weight
beyond               maps of the maximum and the mean of blocks, and the strongest links off the diagonal;
                     `window=(start, stop)` shows a part exactly, `token=` one token

H_i = -sum_j a_ij log a_ij      as spread as uniform attention over exp(H_i) tokens
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqloom.errors import ConfigError
from seqloom.inspect.attention_weights import (
    AskedWeights,
    AttentionLayer,
    AttentionRows,
    MergedUnits,
    Pooled,
    WeightLink,
    chosen_heads,
    chosen_layer,
    chosen_token,
    coarser,
    heard,
    layers_of,
    pooled,
    table,
    units,
)
from seqloom.inspect.layer_names import chosen_title
from seqloom.inspect.map_page import Map, MapCanvas, Named
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View, pictures
from seqloom.report.document import Details, DocumentBlock, TableBlock
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number, share

NUMBERED = 30  # tokens: up to this many, every weight is written as a number
LARGEST_PICTURE = 256  # cells on a side of a drawn map
MOST_SENTENCES = 5


@dataclass(frozen=True, kw_only=True)
class AttentionView(View):
    """Attention weights from rows (queries) to columns (keys); pooled for long texts."""

    kind: ClassVar[str] = "attention"
    layer: str
    head: int | None  # None: the mean over `num_heads`
    num_heads: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    first_row: int  # index of the first row and column shown
    first_column: int
    values: np.ndarray | None  # [R,N], NaN where masked; None beyond 512 tokens
    pooled: Pooled | None  # the values in blocks, for long texts
    entropy: np.ndarray  # [R] in nats, over all columns
    received: np.ndarray  # [N] summed over the rows shown
    links: tuple[WeightLink, ...]  # the strongest, by token index
    excluded: float | None  # the mean weight on special tokens, if they are excluded

    @property
    def _largest(self) -> int:
        return max(len(self.rows), len(self.columns))

    def figures(self) -> tuple[Figure, ...]:
        if len(self.rows) == 1:
            assert self.values is not None
            title = f"{self.title}: what '{self.rows[0]}' ({self.first_row}) reads"
            return (self._strip(self.values[0], title, "weight"),)
        if self._largest <= SMALL:
            spread = np.maximum(self.entropy, 0.0)  # without errors of rounding
            most = max(math.log(len(self.columns)), float(np.nanmax(spread, initial=0.0)))
            mass = self._strip(self.received, "Attention that each token receives", "sum over queries")
            spreads = Strip(
                title="Entropy of each query",
                tokens=self.rows,
                values=spread.tolist(),
                value_label="nats; the scale ends at uniform attention",
                span=(0.0, most) if most > 0 else None,
            )
            return (*self.maps(), mass, spreads)
        return (*self.maps(), self._lines(), *([self._bars()] if self.links else []))

    def _sentences(self) -> tuple[str, ...]:
        masked = int(np.isnan(self.entropy).sum())
        known = self.entropy[~np.isnan(self.entropy)]
        sentences = []
        if known.size:
            mean = float(known.mean())
            sentences.append(
                f"Mean entropy {number(mean)} nats: as spread as uniform attention over {number(np.exp(mean))} tokens."
            )
        if masked:
            sentences.append(f"{masked:,} of {len(self.rows):,} queries are fully masked here.")
        if self.excluded is not None:
            sentences.append(
                f"Special tokens are left out; they had {share(self.excluded)} of the weight. "
                "The other weights are rescaled to sum to 1."
            )
        if self._largest > SMALL and len(self.rows) > 1:
            sentences += [
                f"Token {self._link(link)} with weight {number(link.weight)}." for link in self.links[:MOST_SENTENCES]
            ]
        return tuple(sentences)

    def _blocks(self) -> Sequence[DocumentBlock]:
        if self._largest <= SMALL:
            assert self.values is not None
            rows = [
                (name, *("-" if np.isnan(weight) else float(weight) for weight in weights))
                for name, weights in zip(self.rows, self.values, strict=True)
            ]
            # For screen readers; collapsed by default
            table = Details("All weights as a table (- means masked)", [TableBlock(("token", *self.columns), rows)])
            return [*pictures(self.figures()), table]
        if len(self.rows) == 1:
            return pictures(self.figures())
        maps = self.maps()
        return [self.canvas(maps), *pictures(self.figures()[len(maps) :])]

    def canvas(self, maps: Sequence[Figure]) -> MapCanvas:
        """The weights as an interactive map of an HTML page; other formats show these figures."""
        named = Named(self.rows, self.columns, self.first_row, self.first_column)
        if self.values is not None:
            return MapCanvas(pictures(maps), self.title, [Map("every weight", self.values, named)])
        pool = self._pooled()
        both = [Map(name, getattr(pool, name), named, pool.down, pool.across) for name in ("maximum", "mean")]
        return MapCanvas(pictures(maps), self.title, both)

    def _pooled(self) -> Pooled:
        if self.pooled is not None:
            return self.pooled
        assert self.values is not None
        return pooled(self.values, 1, 1)

    def _strip(self, values: np.ndarray, title: str, label: str) -> Figure:
        """One number for each column: colored tokens, or a line for a long text."""
        if len(self.columns) <= MEDIUM:
            return Strip(title=title, tokens=self.columns, values=values.tolist(), value_label=label)
        series = Series(name=label, x=_numbers(values, self.first_column), y=values.tolist())
        return Line(title=title, series=[series], x_label="token", y_label=label)

    def _matrices(self, values: np.ndarray) -> list[Matrix]:
        """One matrix, or several with some of the rows each, because a matrix has a maximum size."""
        most = float(np.nanmax(values, initial=0.0)) or 1.0
        each = max(1, MOST_CELLS // len(self.columns))
        return [
            Matrix(
                title=self.title if at == 0 else f"{self.title}, from token {self.first_row + at}",
                caption="Each row sums to 1.",
                values=values[at : at + each].tolist(),
                rows=self.rows[at : at + each],
                columns=self.columns,
                x_label="key",
                y_label="query",
                value_label="attention weight",
                span=(0.0, most),
            )
            for at in range(0, len(self.rows), each)
        ]

    def maps(self, numbered: int = NUMBERED) -> Sequence[Matrix | HeatMap]:
        """The weights as numbers, as colors, or as the maximum and the mean of blocks."""
        if self.values is not None and self._largest <= numbered:
            return self._matrices(self.values)
        if self.values is not None and self._largest <= SMALL:
            drawn = self._map(self.title, self.values, 1, 1, "attention weight")
            return [replace(drawn, rows=self.rows, columns=self.columns, caption="Each row sums to 1.")]
        if self.values is not None and self._largest <= LARGEST_PICTURE:
            return [self._map(self.title, self.values, 1, 1, "weight")]
        small = coarser(self._pooled(), LARGEST_PICTURE)
        size = f"of blocks of up to {small.down} x {small.across} weights"
        return [
            self._map(f"{self.title}: {name}", getattr(small, name), small.down, small.across, f"weight, {name} {size}")
            for name in ("maximum", "mean")
        ]

    def _map(self, title: str, values: np.ndarray, down: int, across: int, label: str) -> HeatMap:
        return HeatMap(
            title=title,
            values=values.tolist(),
            y=_numbers(values, self.first_row, down),
            x=_numbers(values.T, self.first_column, across),
            x_label="key",
            y_label="query",
            value_label=label,
        )

    def _lines(self) -> Figure:
        curves = {
            "entropy of the query, nats": (self.entropy, self.first_row),
            "attention received": (self.received, self.first_column),
        }
        series = [
            Series(name=name, x=_numbers(values, first), y=values.tolist())
            for name, (values, first) in curves.items()
            if not np.isnan(values).all()
        ]
        return Line(title="Entropy and received attention", series=series, x_label="token")

    def _bars(self) -> Figure:
        return Bars(
            title="The strongest links (without the diagonal and special tokens)",
            labels=[self._link(link) for link in self.links],
            values=[link.weight for link in self.links],
            x_label="weight",
        )

    def _link(self, link: WeightLink) -> str:
        row, column = self.rows[link.row - self.first_row], self.columns[link.column - self.first_column]
        return f"{link.row} '{row}' attends to {link.column} '{column}'"


def _numbers(values: np.ndarray, first: int, step: int = 1) -> list[float]:
    return [float(first + step * at) for at in range(len(values))]


def attention(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    token: int | str | None = None,
    side: str | None = None,
    words: bool = False,
    exclude_special: bool = False,
    window: tuple[int, int] | None = None,
) -> AttentionView:
    """The attention weights of a layer: each row is a query, each column a key.

    Args:
        layer: Number or path of an attention layer (default: the last).
        head: Number of the head (default: the mean over heads).
        token: Show only the row of this token, by its number or its text.
        side: The sequence that the queries belong to: source or target, first or second.
        words: Join the subwords of each word.
        exclude_special: Take the weight off BEGIN, END and other special tokens and rescale the rest.
        window: Show only the tokens start..stop.
    """
    layers = layers_of(subject, reading, side)
    asked = chosen_layer(layers, layer)
    rows, columns = units(asked.queries, words=words), units(asked.keys, words=words)
    first, last = _shown_rows(asked, rows, token, window)
    inside = slice(*window) if window is not None and asked.same else slice(0, len(columns.names))
    exact = max(last - first, inside.stop - inside.start) <= MEDIUM or last - first == 1
    left_out = np.array([exclude_special and each.is_special for each in asked.keys], dtype=bool)

    def take(_: AttentionLayer, given: AttentionRows) -> AttentionView:
        heads = chosen_heads(asked, given.num_heads, head)
        wanted = AskedWeights(heads, rows.cut(first, last), columns, left_out)
        found = table(given, wanted, exact=exact, same=asked.same, shown=inside)
        one = heads[0] if len(heads) == 1 else None
        which = f"mean of {len(heads)} heads" if one is None else f"head {one}"
        return AttentionView(
            title=f"Attention of {chosen_title(asked.path, [each.path for each in layers])}, {which}",
            layer=asked.path,
            head=one,
            num_heads=given.num_heads,
            rows=wanted.rows.names,
            columns=columns.names[inside],
            first_row=first,
            first_column=inside.start,
            values=found.values,
            pooled=None if exact else found.pooled,
            entropy=found.entropy,
            received=found.received,
            links=tuple(WeightLink(first + link.row, inside.start + link.column, link.weight) for link in found.links),
            excluded=found.left_out if left_out.any() else None,
        )

    (view,) = heard(subject, reading, [asked], take)
    return view


def _shown_rows(
    layer: AttentionLayer, rows: MergedUnits, token: int | str | None, window: tuple[int, int] | None
) -> tuple[int, int]:
    if token is not None and window is not None:
        raise ConfigError("token and window are both given", fix="give one of them")
    if token is not None:
        place = chosen_token(layer.queries, token)
        unit = int(np.searchsorted(rows.starts, place, side="right")) - 1
        return unit, unit + 1
    if window is None:
        return 0, len(rows.names)
    start, stop = window
    if not 0 <= start < stop <= len(rows.names):
        raise ConfigError(
            f"the window from {start} to {stop} is not inside the {len(rows.names):,} tokens",
            fix=f"give start and stop with 0 <= start < stop <= {len(rows.names)}",
        )
    return start, stop
