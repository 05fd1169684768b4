"""A beam search as a tree: every hypothesis, its score, and whether it was kept, finished or pruned.

                 ┌ the ─┬ cat ── END   -1.9 / penalty      best hypothesis
        BEGIN ───┤      └ dog                              pruned at step 2
                 └ a ──── cat                              stopped: no better hypothesis was possible

The tree is recorded during the real search: `seqloom.decoding.beam.search` takes a class that records every candidate.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.config.decoding import BeamConfig
from seqloom.decoding.answers import NEVER, GeneratedText, Stops, begins, finish_reason, positions_of, room
from seqloom.decoding.beam import BeamSearch, Candidate, search
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.flow import still
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.nn.models import EncoderDecoder, LanguageModel
from seqloom.nn.types import Padded
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure, FigureBlock, Plot
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.network import Edge, Network, Node
from seqloom.report.labels import fit, shortened, visible
from seqloom.report.numbers import number
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import END

Status = Literal["kept", "finished", "pruned", "stopped"]
STATUSES: tuple[Status, ...] = ("kept", "finished", "pruned", "stopped")


class BeamStep(NamedTuple):
    """A candidate and its status."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float | None
    status: Status


class WatchedSearch(BeamSearch):
    """A search that records its candidates: at least twice as many as it keeps, if there are so many."""

    def __init__(self, *asked: Any) -> None:
        super().__init__(*asked)
        self.rounds: list[list[BeamStep]] = []

    def advance(self, candidates: Iterable[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the best candidates and record all of them."""
        seen: list[Candidate] = []

        def remembered() -> Iterator[Candidate]:
            for one in candidates:
                seen.append(one)
                yield one

        before, following = len(self.found), remembered()
        super().advance(following, cost_of)
        # The search stops at the first candidate that it does not need; those that it left out are worth seeing.
        deque(islice(following, max(0, 2 * self.how.beam_size - len(seen))), maxlen=0)
        scores = iter(self.found[before:])
        self.rounds.append([self._looked(rank, one, scores) for rank, one in enumerate(seen)])

    def _looked(self, rank: int, one: Candidate, scores: Iterator[GeneratedText]) -> BeamStep:
        tokens = (*one.parent.tokens, one.token)
        ends = finish_reason(one.token, self.before, list(tokens), self.most, self.stops) is not None
        if ends and rank < self.how.beam_size:
            return BeamStep(tokens, one.log, next(scores).score, "finished")
        if list(tokens) in [kept.tokens for kept in self.beam]:
            return BeamStep(tokens, one.log, None, "kept")
        return BeamStep(tokens, one.log, None, "stopped" if not self.beam and not ends else "pruned")


MOST_DRAWN, MOST_STEPS = 400, 24  # of a drawn tree; of a larger one only the best path is drawn
LONGEST = 16  # new tokens by default
MOST_ANSWERS = 10  # hypotheses that are drawn
SHOWN = 80  # characters of a hypothesis in a sentence
MEANING = "the natural logarithm of the probability of the text up to it"
GROUPS = ("best hypothesis", "kept or finished", "pruned or stopped")


class Branch(NamedTuple):
    """A hypothesis: its parent and one more token."""

    parent: int  # its number; -1 for the start
    step: int  # number of tokens
    token: str
    log_prob: float  # of its tokens
    score: float | None  # of a finished hypothesis, with length penalty
    status: Status
    is_best: bool  # part of the best hypothesis

    @property
    def group(self) -> int:
        """Which of `GROUPS` it belongs to."""
        return 0 if self.is_best else 1 if self.status in ("kept", "finished") else 2

    @property
    def description(self) -> str:
        """Its token and its status in words."""
        score = "" if self.score is None else f", score {number(self.score)}"
        return f"“{self.token}” log-probability {number(self.log_prob)}{score}, {self.status}"


@dataclass(frozen=True, kw_only=True)
class OutlinedTree(Network):
    """A network that a terminal shows as indented lines."""

    outline: tuple[str, ...] = ()

    def _plot(self) -> Plot:
        return super()._plot()._replace(notes=(f"The number below a token: {MEANING}.",))

    def _block(self, width: int, color: bool) -> FigureBlock:
        return FigureBlock([fit(visible(line), width) for line in self.outline])


@dataclass(frozen=True, kw_only=True)
class BeamTreeView(View):
    """Every hypothesis of a beam search."""

    kind: ClassVar[str] = "beam_tree"
    branches: tuple[Branch, ...]  # parents before children
    hypotheses: tuple[tuple[str, float], ...]  # texts and scores, the best first
    beam_size: int
    given: str  # the text that is translated or continued
    pruned: bool  # whether pruned and stopped hypotheses are drawn

    @property
    def best_path(self) -> tuple[int, ...]:
        """The numbers of the branches of the best hypothesis."""
        return tuple(number for number, branch in enumerate(self.branches) if branch.is_best)

    def figures(self) -> tuple[Figure, ...]:
        is_large = len(self._drawn) > MOST_DRAWN or self.branches[-1].step > MOST_STEPS
        return (self._path() if is_large else self._tree(), self._scores())

    def _sentences(self) -> tuple[str, ...]:
        counts = {status: sum(branch.status == status for branch in self.branches) for status in STATUSES}
        counted = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        (text, score), *_ = self.hypotheses
        return (
            f"Beam size {self.beam_size}, {self.branches[-1].step} steps, {len(self.branches)} hypotheses: {counted}.",
            f"Best hypothesis: “{shortened(text.strip(), SHOWN)}”, score {number(score)}.",
        )

    def _way(self, at: int) -> tuple[int, ...]:
        """The numbers from the start to a branch; in this order, children follow their parent."""
        way: tuple[int, ...] = ()
        while at >= 0:
            way, at = (at, *way), self.branches[at].parent
        return way

    @property
    def _drawn(self) -> tuple[int, ...]:
        """The numbers of the branches that the tree shows."""
        return tuple(at for at, one in enumerate(self.branches) if self.pruned or one.group < len(GROUPS) - 1)

    def _tree(self) -> Figure:
        rows, places = _rows([(at, self.branches[at].parent) for at in self._drawn]), {-1: 0}
        nodes, edges = [Node(0, rows[-1], "start", note="start")], []
        for at in self._drawn:
            one = self.branches[at]
            places[at] = len(nodes)
            below = f"{round(one.log_prob, 2) + 0.0:.2f}"  # never -0.00
            nodes.append(Node(one.step, rows[at], one.token, note=one.description, below=below))
            edges.append(Edge(places[one.parent], places[at], one.group))
        ordered = [self.branches[at] for at in sorted(range(len(self.branches)), key=self._way)]
        outline = tuple(f"{'  ' * (one.step - 1)}{'●○×'[one.group]} {one.description}" for one in ordered)
        groups = GROUPS if self.pruned else GROUPS[:-1]
        source = f"Input: “{shortened(self.given, SHOWN)}”." if self.given else ""
        left_out = len(self.branches) - len(self._drawn)
        unseen = f"{left_out} pruned or stopped hypotheses are not drawn." if left_out else ""
        caption = " ".join(filter(None, (source, unseen)))
        return OutlinedTree(title=self.title, caption=caption, nodes=nodes, edges=edges, groups=groups, outline=outline)

    def _path(self) -> Figure:
        """The log-probability of the best hypothesis by step, and that of the best pruned one."""
        path = [self.branches[number] for number in self.best_path]
        lost: dict[int, float] = {}
        for branch in self.branches:
            if branch.status == "pruned":
                lost[branch.step] = max(branch.log_prob, lost.get(branch.step, -np.inf))
        series = [Series(name="best hypothesis", x=[one.step for one in path], y=[one.log_prob for one in path])]
        if lost:
            series.append(Series(name="best pruned hypothesis", x=sorted(lost), y=[lost[at] for at in sorted(lost)]))
        caption = f"{len(self.branches):,} hypotheses are too many to draw: this is the path of the best one."
        return Line(title=self.title, series=series, x_label="tokens", y_label="log-probability", caption=caption)

    def _scores(self) -> Figure:
        best = self.hypotheses[:MOST_ANSWERS]
        labels = [f"{at}. {text.strip() or '(empty)'}" for at, (text, _) in enumerate(best, start=1)]
        values = [score for _, score in best]
        return Bars(
            title="Finished hypotheses",
            labels=labels,
            values=values,
            x_label="score: log-probability (natural logarithm) with length penalty",
        )


def beam_tree(
    subject: Subject,
    reading: Reading,
    *,
    beam_size: int = BeamConfig().beam_size,
    max_new_tokens: int | None = None,
    length_penalty: float = 1.0,
    pruned: bool = False,
) -> BeamTreeView:
    """The tree of a beam search that continues a text or translates a source.

    Args:
        beam_size: Hypotheses kept at each step.
        max_new_tokens: The most tokens to generate.
        length_penalty: Exponent of the length in the score of a finished hypothesis.
        pruned: Also draw the hypotheses that were pruned or stopped, unless the tree is too large.
    """
    if reading.targets is None:
        raise ConfigError(
            f"a model for {subject.task.name} does not generate text", fix="choose a language model or a translator"
        )
    how = BeamConfig(beam_size=beam_size, max_new_tokens=max_new_tokens, length_penalty=length_penalty)
    model: Any = subject.model
    watched: list[WatchedSearch] = []

    def new_search(*options: Any) -> BeamSearch:
        watched.append(WatchedSearch(*options))
        return watched[-1]

    with torch.no_grad(), still(model):
        state, prompt, most, tokenizer = _start(subject, reading, max_new_tokens)
        stops = Stops((), tokenizer.decode)
        most = room(prompt, most, positions_of(model.config.decoder))
        ((best, *_),) = search(
            model, state, prompt, most, how, stops=stops, attention=None, never=NEVER, new_search=new_search
        )
    (found,) = watched
    if not found.rounds:
        raise DataError(
            "the text fills all positions of the model: nothing can be generated", fix="give a shorter text"
        )
    return BeamTreeView(
        title="Beam search tree",
        branches=_branches(found.rounds, best, subject),
        hypotheses=tuple((one.text, one.score) for one in sorted(found.found, key=lambda one: -one.score)),
        beam_size=beam_size,
        given=reading.given if isinstance(reading.given, str) else "",
        pruned=pruned,
    )


def _start(subject: Subject, reading: Reading, max_new_tokens: int | None) -> tuple[Any, Padded, Tensor, Any]:
    """The start of a search: state, prompt, most new tokens [1], and the tokenizer."""
    model, task = subject.model, subject.task
    if isinstance(model, LanguageModel):  # after a text
        prompt: Padded = reading.inputs
        most = torch.full_like(prompt.lengths, max_new_tokens or LONGEST)
        return model.initial_state(1), prompt, most, task.spec.tokenizer
    assert isinstance(model, EncoderDecoder) and isinstance(task, Translate), "no other model writes"
    tokens = torch.tensor([len(reading.side("source").tokens)], device=subject.device)
    most = torch.full_like(tokens, max_new_tokens) if max_new_tokens else task.most_tokens(tokens)
    return model.initial_state(reading.inputs.source), begins(1, subject.device), most, task.tokenizer


def _branches(rounds: list[list[BeamStep]], best: GeneratedText, subject: Subject) -> tuple[Branch, ...]:
    every = [one for each in rounds for one in each]
    numbers = {one.tokens: number for number, one in enumerate(every)}
    tokens = tuple(best.tokens)
    winner = next(one.tokens for one in every if one.score == best.score and one.tokens in (tokens, (*tokens, END)))
    path = {winner[:stop] for stop in range(1, len(winner) + 1)}
    return tuple(
        Branch(
            parent=numbers.get(one.tokens[:-1], -1),
            step=len(one.tokens),
            token=subject.name(one.tokens[-1]),
            log_prob=one.log_prob,
            score=one.score,
            status=one.status,
            is_best=one.tokens in path,
        )
        for one in every
    )


def _rows(parents: Iterable[tuple[int, int]]) -> dict[int, float]:
    """The row of each branch by its parent, -1 for the start: leaves below each other, parents centered on children."""
    children: dict[int, list[int]] = {}
    for at, parent in parents:
        children.setdefault(parent, []).append(at)
    rows: dict[int, float] = {}
    free = 0
    waiting = [(-1, False)]
    while waiting:
        at, opened = waiting.pop()
        mine = children.get(at, [])
        if opened:
            rows[at] = (rows[mine[0]] + rows[mine[-1]]) / 2
        elif mine:
            waiting += [(at, True), *((child, False) for child in reversed(mine))]
        else:
            rows[at], free = float(free), free + 1
    return rows
