"""The head view: for this token, where does each head look?

Of a row the *nucleus* is drawn: the fewest keys that together have 0.8 of the weight, at most 12 (the idea of Holtzman
et al. 2020, there for next words). So a token has few lines at any length.

    a token pinned with `row=`   its row in every layer and head: a map of heads x keys, the keys that matter, ranked,
                                 with the words around them; one row of each head is all that is computed
    none, up to 64 tokens        lines from every token, one colour for each head of a layer
    none, up to 512              of every token the strongest line alone
    none, beyond                 as if the last token were pinned
"""

from collections.abc import Iterator, Sequence
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
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.figures.network import MOST_LINK_GROUPS, MOST_LINKS, Links
from seqloom.report.figures.network import Link as Line
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number, share

NUCLEUS, MOST_KEYS = 0.8, 12
LEAST = 0.02  # a line below this is not drawn where all are
RANKED = 16
AROUND = 3  # tokens before and after, of a snippet
LARGEST_PICTURE = 256


class HeadEdge(NamedTuple):
    """A line from a query to a key."""

    group: int  # the number of its head among the groups
    row: int
    column: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class HeadLinesView(View):
    """The lines of the heads of one layer, from every token."""

    kind: ClassVar[str] = "head_lines"
    layer: str
    groups: tuple[str, ...]  # what each colour stands for: a head, or the mean of all
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
                right_label="reads",
                value_label="weight",
            ),
        )

    def _sentences(self) -> tuple[str, ...]:
        if max(len(self.rows), len(self.columns)) > SMALL:
            return ("Of each token the strongest line; row=... pins a token and shows all that it reads.",)
        keys = f"of each row the fewest keys with {share(NUCLEUS)} of the weight, at most {MOST_KEYS}"
        return (f"{len(self.edges):,} lines: {keys}.",)


@dataclass(frozen=True, kw_only=True)
class PinnedTokenView(View):
    """What one token reads in each head of each layer."""

    kind: ClassVar[str] = "pinned_token"
    row: int
    token: str
    columns: tuple[str, ...]
    names: tuple[str, ...]  # layer.head of each row of the values
    values: np.ndarray  # [heads,S], NaN where the mask forbids

    @property
    def mean(self) -> np.ndarray:
        """[S] the mean over the heads."""
        found: np.ndarray = self.values.mean(axis=0)
        return found

    def nuclei(self) -> dict[str, tuple[int, ...]]:
        """The keys of the nucleus of each head, the strongest first."""
        return {name: tuple(nucleus(row)) for name, row in zip(self.names, self.values, strict=True)}

    def figures(self) -> tuple[Figure, ...]:
        strip = [self._strip()] if len(self.columns) <= MEDIUM else []
        return (*strip, self._map(), *([self._ranked()] if len(self.columns) > SMALL else []))

    def _sentences(self) -> tuple[str, ...]:
        sizes = [len(keys) for keys in self.nuclei().values()]
        few = sum(size < MOST_KEYS for size in sizes)
        said = f"{few} of {len(sizes)} heads have {share(NUCLEUS)} of their weight on fewer than {MOST_KEYS} tokens."
        best = [f"{at} '{snippet(self.columns, at)}' {number(self.mean[at])}" for at in self._best()[:3]]
        return said, f"Most, as a mean of these heads: {'; '.join(best)}."

    def _best(self) -> list[int]:
        order = np.argsort(-np.nan_to_num(self.mean, nan=-1.0), kind="stable")[:RANKED]
        return [int(at) for at in order if not np.isnan(self.mean[at])]

    def _strip(self) -> Figure:
        title = f"{self.title}: mean of {len(self.names)} heads"
        return Strip(title=title, tokens=self.columns, values=self.mean.tolist(), value_label="weight")

    def _map(self) -> Figure:
        if len(self.columns) <= SMALL and len(self.names) <= SMALL and self.values.size <= MOST_CELLS:
            title = f"{self.title}, head by head"
            return Matrix(
                title=title,
                caption="Each row adds up to 1.",
                rows=self.names,
                columns=self.columns,
                values=self.values.tolist(),
                x_label="reads",
                y_label="layer.head",
            )
        small = coarser(pooled(self.values, 1, 1), LARGEST_PICTURE)
        blocks = f", largest of up to {small.down} x {small.across}" if small.down * small.across > 1 else ""
        return HeatMap(
            title=f"{self.title}, head by head",
            caption=f"Rows are heads, from {self.names[0]} to {self.names[-1]}, layer by layer.",
            values=small.maximum.tolist(),
            x=[float(at * small.across) for at in range(small.maximum.shape[1])],
            x_label="reads token",
            y_label="head",
            value_label=f"weight{blocks}",
        )

    def _ranked(self) -> Figure:
        best = self._best()
        return Bars(
            title="What it reads most, mean of the heads",
            labels=[f"{at} {snippet(self.columns, at)}" for at in best],
            values=[float(self.mean[at]) for at in best],
            x_label="weight",
        )


def nucleus(row: np.ndarray, mass: float = NUCLEUS, most: int = MOST_KEYS) -> list[int]:
    """The fewest keys that together have this share of the weight, at most `most`, the strongest first.

    >>> nucleus(np.array([0.1, 0.5, np.nan, 0.4]))
    [1, 3]
    """
    weights = np.nan_to_num(row)
    order = np.argsort(-weights, kind="stable")[:most]
    needed = int(np.searchsorted(np.cumsum(weights[order]), mass - 1e-9)) + 1
    return [int(at) for at in order[:needed] if weights[at] > 0]


def snippet(tokens: Sequence[str], at: int, around: int = AROUND) -> str:
    """A token between brackets with those around it."""
    before, after = tokens[max(0, at - around) : at], tokens[at + 1 : at + 1 + around]
    return " ".join([*before, f"[{tokens[at]}]", *after])


def head_view(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    row: int | str | None = None,
    side: str | None = None,
) -> HeadLinesView | PinnedTokenView:
    """Where heads look: from one token, in all layers unless one is named; or from all tokens, in one layer."""
    layers = layers_of(subject, reading, side)
    chosen = chosen_layer(layers, layer)
    if row is None and max(len(chosen.queries), len(chosen.keys)) <= MEDIUM:
        return _lines(subject, reading, chosen, head)
    read = chosen.queries, chosen.keys, chosen.call
    alike = [each for each in layers if (each.queries, each.keys, each.call) == read]
    wanted = alike if layer is None else [chosen]
    return _pinned(subject, reading, wanted, head, chosen_token(chosen.queries, -1 if row is None else row), layers)


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
        title=f"What token {row} '{token}' reads",
        row=row,
        token=token,
        columns=wanted[0].columns,
        names=tuple(name for names, _ in found for name in names),
        values=np.concatenate([values for _, values in found]),
    )


def _lines(subject: Subject, reading: Reading, asked: AttentionLayer, head: int | None) -> HeadLinesView:
    small = max(len(asked.queries), len(asked.keys)) <= SMALL

    def take(_: AttentionLayer, rows: AttentionRows) -> HeadLinesView:
        heads = chosen_heads(asked, rows.num_heads, head)[:MOST_LINK_GROUPS]
        mean = f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}"
        return HeadLinesView(
            title=f"Where the heads of {asked.path} look",
            layer=asked.path,
            groups=tuple(f"head {each}" for each in heads) if small else (mean,),
            rows=asked.rows,
            columns=asked.columns,
            edges=tuple(_nuclei(rows, heads) if small else _strongest(rows, heads)),
        )

    (view,) = heard(subject, reading, [asked], take)
    return view


def _nuclei(rows: AttentionRows, heads: Sequence[int]) -> Iterator[HeadEdge]:
    """The lines of the nucleus of every row, head by head."""
    for group, head in enumerate(heads):
        for row, weights in enumerate(rows.weights(head, slice(None)).double().cpu().numpy()):
            for key in nucleus(weights):
                if weights[key] >= LEAST:
                    yield HeadEdge(group, row, key, float(weights[key]))


def _strongest(rows: AttentionRows, heads: tuple[int, ...]) -> Iterator[HeadEdge]:
    """The strongest line of every row, of the mean of the heads."""
    for row, weights in enumerate(rows.mean(heads, slice(None)).double().cpu().numpy()):
        for key in nucleus(weights, most=1):
            yield HeadEdge(0, row, key, float(weights[key]))
