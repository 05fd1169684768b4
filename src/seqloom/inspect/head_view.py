"""The head view: what does each attention head attend to from a token?

For each query the *nucleus* is drawn: the fewest keys that together hold 0.8 of the weight, at most 12 (as in nucleus
sampling, Holtzman et al. 2020). So a token has few lines at any length.

    with `token=`                its attention in every layer and head: a map of heads x keys, and the strongest keys
                                 in context; only one row of each head is computed
    without, up to 64 tokens     lines from every token, one color for each head of a layer
    without, up to 512           only the strongest line of every token
    without, beyond              the last token
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.inspect.attention_weights import (
    AttentionLayer,
    AttentionRows,
    chosen_heads,
    chosen_layer,
    chosen_token,
    coarser,
    heard,
    layers_of,
    pooled,
)
from seqloom.inspect.layer_names import chosen_title
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.figures.network import MOST_LINK_GROUPS, MOST_LINKS, Links
from seqloom.report.figures.network import Link as Line
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number, share

NUCLEUS, MOST_KEYS = 0.8, 12
LEAST = 0.02  # weaker lines are not drawn if all heads are
RANKED = 16
AROUND = 3  # tokens of context before and after
LARGEST_PICTURE = 256


class HeadEdge(NamedTuple):
    """A line from a query to a key."""

    group: int  # index of its head in the groups
    row: int
    column: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class HeadLinesView(View):
    """The attention of the heads of one layer as lines, from every token."""

    kind: ClassVar[str] = "head_lines"
    layer: str
    groups: tuple[str, ...]  # the name of each color: a head, or the mean of all
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    edges: tuple[HeadEdge, ...]

    def figures(self) -> tuple[Figure, ...]:
        lines = [Line(edge.row, edge.column, edge.weight, edge.group) for edge in self.edges]
        return (
            Links(
                title=self.title,
                left=self.rows,
                right=self.columns,
                links=sorted(lines, key=lambda line: -line.value)[:MOST_LINKS],
                groups=self.groups,
                left_label="token",
                right_label="attends to",
                value_label="weight",
            ),
        )

    def _sentences(self) -> tuple[str, ...]:
        if max(len(self.rows), len(self.columns)) > SMALL:
            return ("Only the strongest line of each token is drawn; token=... shows all keys of one token.",)
        keys = f"for each token, the fewest keys that hold {share(NUCLEUS)} of the weight, at most {MOST_KEYS}"
        return (f"{counted(len(self.edges), 'line')}: {keys}.",)


@dataclass(frozen=True, kw_only=True)
class PinnedTokenView(View):
    """The attention of one token in each head of each layer."""

    kind: ClassVar[str] = "pinned_token"
    row: int
    token: str
    columns: tuple[str, ...]
    names: tuple[str, ...]  # layer.head of each row of the values
    values: np.ndarray  # [heads,S], NaN where masked

    @property
    def mean(self) -> np.ndarray:
        found: np.ndarray = self.values.mean(axis=0)
        return found

    def nuclei(self) -> dict[str, tuple[int, ...]]:
        """The keys of the nucleus of each head, the strongest first."""
        return {name: tuple(nucleus(row)) for name, row in zip(self.names, self.values, strict=True)}

    def figures(self) -> tuple[Figure, ...]:
        title, mean = f"{self.title}: mean of {counted(len(self.names), 'head')}", self.mean.tolist()
        found = [self._map()]
        if len(self.columns) <= MEDIUM:
            found.insert(0, Strip(title=title, tokens=self.columns, values=mean, value_label="weight"))
        if len(self.columns) > SMALL:
            title, best = "Strongest keys, mean over heads", self._best()
            labels = [f"{at}: {snippet(self.columns, at)}" for at in best]
            found.append(Bars(title=title, labels=labels, values=[mean[at] for at in best], x_label="weight"))
        return tuple(found)

    def _sentences(self) -> tuple[str, ...]:
        sizes = [len(keys) for keys in self.nuclei().values()]
        few = sum(size < MOST_KEYS for size in sizes)
        heads = counted(len(sizes), "head")
        summary = f"{few} of {heads} put {share(NUCLEUS)} of the weight on fewer than {MOST_KEYS} tokens."
        best = [f"'{snippet(self.columns, at)}' ({at}) {number(self.mean[at])}" for at in self._best()[:3]]
        return summary, f"Strongest keys, mean over heads: {'; '.join(best)}."

    def _best(self) -> list[int]:
        order = np.argsort(-np.nan_to_num(self.mean, nan=-1.0), kind="stable")[:RANKED]
        return [int(at) for at in order if not np.isnan(self.mean[at])]

    def _map(self) -> Figure:
        if len(self.columns) <= SMALL and len(self.names) <= SMALL and self.values.size <= MOST_CELLS:
            return Matrix(
                title=f"{self.title}, head by head",
                caption="Each row sums to 1.",
                rows=self.names,
                columns=self.columns,
                values=self.values.tolist(),
                x_label="key",
                y_label="layer.head",
            )
        small = coarser(pooled(self.values, 1, 1), LARGEST_PICTURE)
        blocks = f", maximum of up to {small.down} x {small.across}" if small.down * small.across > 1 else ""
        return HeatMap(
            title=f"{self.title}, head by head",
            caption=f"Rows are heads (layer.head), from {self.names[0]} to {self.names[-1]}.",
            values=small.maximum.tolist(),
            x=[float(at * small.across) for at in range(small.maximum.shape[1])],
            x_label="key",
            y_label="head",
            value_label=f"weight{blocks}",
        )


def nucleus(row: np.ndarray, most: int = MOST_KEYS) -> list[int]:
    """The fewest keys that together hold 0.8 of the weight, at most `most`, the strongest first.

    >>> nucleus(np.array([0.1, 0.5, np.nan, 0.4]))
    [1, 3]
    """
    weights = np.nan_to_num(row)
    order = np.argsort(-weights, kind="stable")[:most]
    needed = int(np.searchsorted(np.cumsum(weights[order]), NUCLEUS - 1e-9)) + 1
    return [int(at) for at in order[:needed] if weights[at] > 0]


def snippet(tokens: Sequence[str], at: int) -> str:
    """A token in brackets with its context."""
    before, after = tokens[max(0, at - AROUND) : at], tokens[at + 1 : at + 1 + AROUND]
    return " ".join([*before, f"[{tokens[at]}]", *after])


def head_view(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    token: int | str | None = None,
    side: str | None = None,
) -> HeadLinesView | PinnedTokenView:
    """What attention heads attend to: from one token in all layers, or from all tokens in one layer.

    Args:
        layer: Number or path of an attention layer; with a token all layers, otherwise the last one.
        head: Number of the head (default: all heads).
        token: The token, by its number or its text.
        side: The sequence that the queries belong to: source or target, first or second.
    """
    layers = layers_of(subject, reading, side)
    chosen = chosen_layer(layers, layer)
    if token is None and max(len(chosen.queries), len(chosen.keys)) <= MEDIUM:
        return _lines(subject, reading, chosen, head, [each.path for each in layers])
    read = chosen.queries, chosen.keys, chosen.call
    alike = [each for each in layers if (each.queries, each.keys, each.call) == read]
    wanted = alike if layer is None else [chosen]
    return _pinned(subject, reading, wanted, head, chosen_token(chosen.queries, -1 if token is None else token), layers)


def _pinned(
    subject: Subject,
    reading: Reading,
    wanted: Sequence[AttentionLayer],
    head: int | None,
    row: int,
    layers: Sequence[AttentionLayer],
) -> PinnedTokenView:
    def take(layer: AttentionLayer, rows: AttentionRows) -> tuple[list[str], np.ndarray]:
        heads = chosen_heads(layer, rows.num_heads, head)
        found = [rows.weights(each, slice(row, row + 1)).double().cpu().numpy() for each in heads]
        return [f"{layers.index(layer)}.{each}" for each in heads], np.concatenate(found)

    found = heard(subject, reading, wanted, take)
    token = wanted[0].rows[row]
    return PinnedTokenView(
        title=f"Attention of token {row} '{token}'",
        row=row,
        token=token,
        columns=wanted[0].columns,
        names=tuple(name for names, _ in found for name in names),
        values=np.concatenate([values for _, values in found]),
    )


def _lines(
    subject: Subject, reading: Reading, layer: AttentionLayer, head: int | None, paths: Sequence[str]
) -> HeadLinesView:
    small = max(len(layer.queries), len(layer.keys)) <= SMALL

    def take(_: AttentionLayer, rows: AttentionRows) -> HeadLinesView:
        heads = chosen_heads(layer, rows.num_heads, head)[:MOST_LINK_GROUPS]
        if small:  # the nucleus of every row, head by head
            groups = tuple(f"head {each}" for each in heads)
            tables, most, least = [rows.weights(each, slice(None)) for each in heads], MOST_KEYS, LEAST
        else:  # the strongest line of every row, of the mean of the heads
            groups = (f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}",)
            tables, most, least = [rows.mean(heads, slice(None))], 1, 0.0
        edges = [
            HeadEdge(group, row, key, float(weights[key]))
            for group, table in enumerate(tables)
            for row, weights in enumerate(table.double().cpu().numpy())
            for key in nucleus(weights, most=most)
            if weights[key] >= least
        ]
        return HeadLinesView(
            title=f"Attention heads of {chosen_title(layer.path, paths)}",
            layer=layer.path,
            groups=groups,
            rows=layer.rows,
            columns=layer.columns,
            edges=tuple(edges),
        )

    (view,) = heard(subject, reading, [layer], take)
    return view
