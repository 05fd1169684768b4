"""Why these tags: emission and transition scores, marginals, and the two best paths.

    S(y) = start[y_1] + sum_t emission[t, y_t] + sum_t between[y_{t-1}, y_t] + end[y_T]     see seqloom.nn.ops.crf

The marginal of a tag at a word is its probability over all paths. A tagger without a CRF has only emissions: its
marginals are their softmax, and the tagging scheme decides which paths are allowed. The confidence of an entity is the
probability of exactly this span.

best paths   b_t[j, k] is the k-th best score of a path that ends in tag j at t: the best of all b_{t-1}[i, k'] +
             between[i, j], of which `count` are kept for each tag. With one it is Viterbi's recursion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.tags import spans
from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.flow import still
from seqloom.inspect.requirements import tags
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View, blocks_line
from seqloom.nn.heads import CrfHead
from seqloom.nn.ops import crf
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.figures.network import Edge, Network, Node
from seqloom.report.numbers import counted, number
from seqloom.tasks.tag import Tag, features, window_size


class LatticePath(NamedTuple):
    """A sequence of tags and its score."""

    tags: tuple[int, ...]
    score: float


@torch.no_grad()
def best_paths(scores: Tensor, moves: crf.Transitions, count: int) -> tuple[LatticePath, ...]:
    """The `count` best allowed paths through scores [T,K], the best first; fewer if there are no more."""
    start, between, end = moves.filled(-torch.inf, scores.dtype)
    best = (start + scores[0])[:, None]  # [K,k]
    origins = []
    for element in scores[1:]:
        arriving = (best[:, :, None] + between[:, None, :]).flatten(0, 1)  # [K*k,K]
        top, origin = arriving.topk(min(count, len(arriving)), dim=0)
        origins.append((origin, best.shape[1]))
        best = element[:, None] + top.T
    ended = (best + end[:, None]).flatten()
    values, places = ended.topk(min(count, len(ended)))
    width = best.shape[1]
    found = zip(values.tolist(), places.tolist(), strict=True)
    return tuple(LatticePath(_back(origins, place, width), value) for value, place in found if value > -torch.inf)


def _back(origins: list[tuple[Tensor, int]], place: int, width: int) -> tuple[int, ...]:
    """The tags on the way to a place among tags x ranks, followed back."""
    path = [place // width]
    for origin, before in reversed(origins):
        came = int(origin[place % width, place // width])
        path.append(came // before)
        place, width = came, before
    return tuple(reversed(path))


DRAWN_WORDS, DRAWN_TAGS = 16, 12  # in a figure with lines
LISTED = 40  # entities, or uncertain words, in a figure
LEAST_MASS = 0.005  # of a node that is drawn although it is on no path
GROUPS = ("best path", "second best path", "gold")


class Entity(NamedTuple):
    """An entity of the best path."""

    start: int  # words start..stop
    stop: int
    label: str
    text: str
    confidence: float


def _span(entity: Entity) -> str:
    """The words of an entity: `word 4`, or `words 4-6`."""
    last = entity.stop - 1
    return f"word {last}" if last == entity.start else f"words {entity.start}-{last}"


@dataclass(frozen=True, kw_only=True)
class LatticeView(View):
    """The lattice of one sentence."""

    kind: ClassVar[str] = "lattice"
    words: tuple[str, ...]
    tags: tuple[str, ...]
    emissions: np.ndarray  # [T,K]
    marginals: np.ndarray  # [T,K]
    transitions: np.ndarray | None  # [K,K] from, to; NaN if not allowed; None if the head has none
    starts: np.ndarray | None  # [K] score of starting with a tag
    ends: np.ndarray | None  # [K] score of ending with it
    paths: tuple[LatticePath, ...]  # the best, and the second best if there is one
    gold: tuple[int, ...] | None
    entities: tuple[Entity, ...]

    @property
    def best(self) -> tuple[str, ...]:
        """The predicted tags."""
        return tuple(self.tags[tag] for tag in self.paths[0].tags)

    @property
    def confidence(self) -> np.ndarray:
        """[T] the marginal of the predicted tag."""
        return self.marginals[np.arange(len(self.words)), list(self.paths[0].tags)]

    def figures(self) -> tuple[Figure, ...]:
        if len(self.words) <= SMALL:
            drawn = len(self.words) <= DRAWN_WORDS and len(self.tags) <= DRAWN_TAGS
            return (*((self._lattice(),) if drawn else ()), *self._tables())
        if len(self.words) <= MEDIUM:
            return (self._map(), self._paths(), *self._moves())
        title = f"{self.title}: uncertainty (1 - marginal of the predicted tag)"
        return (blocks_line(1 - self.confidence, title=title, x_label="word"), self._list(), *self._moves())

    def _sentences(self) -> tuple[str, ...]:
        sure = (
            f"“{one.text}” ({_span(one)}): {one.label}, confidence {number(one.confidence)}."
            for one in self.entities[:LISTED]
        )
        return (*self._gold_sentences(), self._paths_sentence(), *sure)

    def _paths_sentence(self) -> str:
        if len(self.paths) < 2:
            return "Only one path is allowed."
        best, second = self.paths
        differences = ", ".join(
            f"“{self.words[at]}” ({at}) {self.tags[best.tags[at]]} or {self.tags[second.tags[at]]}"
            for at in self._unlike(second.tags)[:6]
        )
        gap = number(best.score - second.score)
        score = f"The best path has score {number(best.score)}, {gap} above the second best"
        return f"{score}, which differs at {differences}."

    def _unlike(self, tags: Sequence[int]) -> list[int]:
        """The words at which the best path has different tags."""
        return [at for at, pair in enumerate(zip(self.paths[0].tags, tags, strict=True)) if pair[0] != pair[1]]

    def _gold_sentences(self) -> tuple[str, ...]:
        if self.gold is None:
            return ()
        wrong = self._unlike(self.gold)
        listed = ", ".join(f"“{self.words[at]}” ({at}) should be {self.tags[self.gold[at]]}" for at in wrong[:12])
        verb = "is" if len(wrong) == 1 else "are"
        return (f"{len(wrong)} of {counted(len(self.words), 'tag')} {verb} wrong{': ' + listed if listed else ''}.",)

    def _lattice(self) -> Figure:
        """Words as columns, tags as rows: nodes colored by their marginals, lines for the paths."""
        routes = [path.tags for path in self.paths] + ([self.gold] if self.gold is not None else [])
        through = {(at, tag) for route in routes for at, tag in enumerate(route)}
        shown = [
            (at, tag)
            for at in range(len(self.words))
            for tag in range(len(self.tags))
            if (at, tag) in through or self.marginals[at, tag] >= LEAST_MASS
        ]
        numbers = {place: number for number, place in enumerate(shown)}
        nodes = [self._node(at, tag) for at, tag in shown]
        groups = [*range(len(self.paths)), *([2] if self.gold is not None else [])]
        edges = [
            Edge(numbers[at, before], numbers[at + 1, after], group, self._move(before, after))
            for group, route in zip(groups, routes, strict=True)
            for at, (before, after) in enumerate(pairwise(route))
        ]
        used = GROUPS if self.gold is not None else GROUPS[: len(self.paths)]
        caption = "Number in a box: emission score; color: marginal probability; number on a line: transition score."
        return Network(
            title=self.title,
            nodes=nodes,
            edges=edges,
            groups=used,
            columns=self.words,
            rows=self.tags,
            value_label="marginal",
            caption=caption,
        )

    def _node(self, at: int, tag: int) -> Node:
        scored, mass = self.emissions[at, tag], self.marginals[at, tag]
        note = f"{self.words[at]} / {self.tags[tag]}: emission {number(scored)}, marginal {number(mass)}"
        return Node(at, tag, _short(scored), float(mass), note)

    def _move(self, before: int, after: int) -> str:
        return "" if self.transitions is None else _short(self.transitions[before, after])

    def _tables(self) -> tuple[Figure, ...]:
        if self.emissions.size > MOST_CELLS or len(self.tags) > SMALL:
            return (self._map(), *self._moves())
        rows = [f"{word} / {tag}" for word, tag in zip(self.words, self.best, strict=True)]
        caption = "Each row is a word / its predicted tag."
        tables = [
            Matrix(title=name, rows=rows, columns=self.tags, values=values.tolist(), caption=caption)
            for name, values in (("Marginals", self.marginals), ("Emissions", self.emissions))
        ]
        return (*tables, *self._moves())

    def _moves(self) -> tuple[Figure, ...]:
        if self.transitions is None or len(self.tags) > MOST_CELLS**0.5:
            return ()
        return (
            Matrix(
                title="Transition scores",
                rows=self.tags,
                columns=self.tags,
                values=self.transitions.tolist(),
                y_label="from",
                x_label="to",
                caption="Hatched: forbidden by the tagging scheme.",
            ),
        )

    def _map(self) -> Figure:
        names = ", ".join(f"{number}: {tag}" for number, tag in enumerate(self.tags[:SMALL]))
        return HeatMap(
            title=f"{self.title}: marginals",
            values=self.marginals.T.tolist(),
            x_label="word",
            y_label="tag",
            value_label="marginal",
            span=(0.0, 1.0),
            caption=f"Tags: {names}.",
        )

    def _paths(self) -> Figure:
        routes = [(GROUPS[at], path.tags) for at, path in enumerate(self.paths)]
        routes += [(GROUPS[2], self.gold)] if self.gold is not None else []
        series = [Series(name=name, x=range(len(route)), y=[float(tag) for tag in route]) for name, route in routes]
        return Line(title="Best paths", series=series, x_label="word", y_label="tag number")

    def _list(self) -> Figure:
        if self.entities:
            least = sorted(self.entities, key=lambda one: one.confidence)[:LISTED]
            labels = [f"{one.start} “{one.text}” {one.label}" for one in least]
            title = f"Least confident of {len(self.entities):,} entities"
            return Bars(title=title, labels=labels, values=[one.confidence for one in least], x_label="confidence")
        least_sure = np.argsort(self.confidence, kind="stable")[:LISTED]
        labels = [f"{at} “{self.words[at]}” {self.best[at]}" for at in least_sure]
        values = [float(self.confidence[at]) for at in least_sure]
        return Bars(title="Least confident words", labels=labels, values=values, x_label="marginal")


def _short(score: float) -> str:
    return f"{round(float(score), 2) + 0.0:.2f}"  # never -0.00


@torch.no_grad()
def lattice(subject: Subject, reading: Reading, *, gold: str | Sequence[str] | None = None) -> LatticeView:
    """The emissions, transitions, marginals and best paths of a tagger for one sentence.

    Args:
        gold: The correct tag of each word, as a list or as a text with spaces or commas: `O B-X I-X`.
    """
    task, model = tags(subject, reading), subject.model
    labels = task.spec.schema.labels
    true = None if gold is None else _numbers(task, gold, len(reading.rows))
    with still(model):
        tagger: Any = model
        vectors = features(tagger, reading.inputs, window_size(tagger, task.spec.max_length))
        emissions: Tensor = tagger.head(vectors).values[0].float()
    legal = task.chain.transitions(tagger.head, emissions)
    chained = isinstance(tagger.head, CrfHead)
    moves = legal
    if not chained:  # all transitions score 0 and are allowed: words are independent
        one, square = emissions.new_zeros(len(labels)), emissions.new_zeros(len(labels), len(labels))
        moves = crf.Transitions(one, square, one, one == 0, square == 0, one == 0)
    lengths = torch.tensor([len(emissions)], device=emissions.device)
    paths = best_paths(emissions, legal, 2)
    named = tuple(labels[tag] for tag in paths[0].tags)
    marked = tuple(spans(named)) if task.in_scheme else ()
    wanted = [task.span_score(span, paths[0].tags) for span in marked]
    sures = crf.span_probabilities(emissions[None], lengths, moves, [wanted])[0]
    known = moves.filled(torch.nan, torch.float32) if chained else (None, None, None)
    starts, between, ends = (None if part is None else part.cpu().numpy() for part in known)
    return LatticeView(
        title="Why these tags",
        words=reading.rows,
        tags=labels,
        emissions=emissions.cpu().numpy(),
        marginals=crf.marginals(emissions[None], lengths, moves)[0].cpu().numpy(),
        transitions=between,
        starts=starts,
        ends=ends,
        paths=paths,
        gold=true,
        entities=tuple(
            Entity(span.start, span.stop, span.label, " ".join(reading.rows[span.start : span.stop]), sure)
            for span, sure in zip(marked, sures, strict=True)
        ),
    )


def _numbers(task: Tag, gold: str | Sequence[str], count: int) -> tuple[int, ...]:
    labels = task.spec.schema.labels
    parts = gold.split(",") if isinstance(gold, str) else gold
    tags = [tag for part in parts for tag in ([part] if part in labels else part.split())]  # a tag may have a space
    if len(tags) != count:
        raise DataError(
            f"{counted(len(tags), 'gold tag')} for {counted(count, 'word')}",
            fix="give one tag for each word, separated by spaces or commas",
        )
    for tag in tags:
        if tag not in labels:
            raise DataError(f"the model has no tag '{tag}'", fix=did_you_mean(tag, labels))
    return tuple(labels.index(tag) for tag in tags)
