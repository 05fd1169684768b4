"""The beam as a tree: which texts were written side by side, what they scored, what was dropped when, and who won.

                 ┌ the ─┬ cat ── END   -1.9 / penalty      the winner
        BEGIN ───┤      └ dog                              dropped at step 2
                 └ a ──── cat                              given up: no better answer could come of it

`seqloom.decoding.beam.search` takes the class of its hunts. The one here hunts as ever and remembers, so the tree is
what happened and not a second telling of it. A candidate that was looked at is a node; one that never was is none.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.config.decoding import BeamConfig
from seqloom.decoding.answers import NEVER, Stops, Written, begins, ended, positions_of, room
from seqloom.decoding.beam import Candidate, Hunt, search
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

Fate = Literal["went on", "answer", "dropped", "given up"]
FATES: tuple[Fate, ...] = ("went on", "answer", "dropped", "given up")


class BeamStep(NamedTuple):
    """A candidate, and what became of it."""

    symbols: tuple[int, ...]
    log: float
    score: float | None
    fate: Fate


class WatchedHunt(Hunt):
    """A hunt that remembers every candidate it looked at."""

    def __init__(self, *asked: Any) -> None:
        super().__init__(*asked)
        self.rounds: list[list[BeamStep]] = []

    def go_on(self, candidates: Iterable[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the likeliest, as ever, and remember all."""
        seen: list[Candidate] = []

        def remembered() -> Iterator[Candidate]:
            for one in candidates:
                seen.append(one)
                yield one

        before = len(self.found)
        super().go_on(remembered(), cost_of)
        scores = iter(self.found[before:])
        self.rounds.append([self._looked(rank, one, scores) for rank, one in enumerate(seen)])

    def _looked(self, rank: int, one: Candidate, scores: Iterator[Written]) -> BeamStep:
        symbols = (*one.parent.symbols, one.symbol)
        ends = ended(one.symbol, self.before, list(symbols), self.most, self.stops) is not None
        if ends and rank < self.how.width:
            return BeamStep(symbols, one.log, next(scores).score, "answer")
        if list(symbols) in [kept.symbols for kept in self.beam]:
            return BeamStep(symbols, one.log, None, "went on")
        return BeamStep(symbols, one.log, None, "given up" if not self.beam and not ends else "dropped")


MOST_DRAWN, MOST_STEPS = 400, 24  # nodes and steps of a drawn tree: of a larger one the winner's path is shown
LONGEST = 16  # symbols that go on with a text, unless more are asked for
MOST_ANSWERS = 10  # that are drawn
SHOWN = 80  # characters of an answer in a sentence
GROUPS = ("the winner", "went on, or an answer", "dropped, or given up")


class Branch(NamedTuple):
    """A text that the search looked at: its parent and one symbol more."""

    parent: int  # its number; -1 for the beginning
    step: int  # symbols that it has
    symbol: str
    log: float  # log P of its symbols
    score: float | None  # of an answer, with its penalties
    fate: Fate
    wins: bool  # it is the best answer, or on the way to it

    @property
    def group(self) -> int:
        """Which of `GROUPS` it belongs to."""
        return 0 if self.wins else 1 if self.fate in ("went on", "answer") else 2

    @property
    def told(self) -> str:
        """Its symbol and its fate in words."""
        score = "" if self.score is None else f", score {number(self.score)}"
        return f"“{self.symbol}” log P {number(self.log)}{score}, {self.fate}"


@dataclass(frozen=True, kw_only=True)
class OutlinedTree(Network):
    """A tree as a network that a terminal shows as indented lines."""

    outline: tuple[str, ...] = ()

    def _plot(self) -> Plot:
        return super()._plot()._replace(notes=("The number below a symbol is log P of all symbols up to it.",))

    def _block(self, width: int, colour: bool) -> FigureBlock:
        return FigureBlock([fit(visible(line), width) for line in self.outline])


@dataclass(frozen=True, kw_only=True)
class BeamTreeView(View):
    """Every text that a beam search looked at."""

    kind: ClassVar[str] = "beam_tree"
    branches: tuple[Branch, ...]  # parents before children
    answers: tuple[tuple[str, float], ...]  # texts and scores, the best first
    width: int

    @property
    def winner(self) -> tuple[int, ...]:
        """The numbers of the branches that lead to the best answer."""
        return tuple(number for number, branch in enumerate(self.branches) if branch.wins)

    def figures(self) -> tuple[Figure, ...]:
        is_large = len(self.branches) > MOST_DRAWN or self.branches[-1].step > MOST_STEPS
        return (self._path() if is_large else self._tree(), self._scores())

    def _sentences(self) -> tuple[str, ...]:
        counts = {fate: sum(branch.fate == fate for branch in self.branches) for fate in FATES}
        told = ", ".join(f"{count} {fate}" for fate, count in counts.items() if count)
        (text, score), *_ = self.answers
        return (
            f"A beam of {self.width} looked at {len(self.branches)} texts in {self.branches[-1].step} steps: {told}.",
            f"The winner is “{shortened(text.strip(), SHOWN)}” with {number(score)}.",
        )

    def _way(self, at: int) -> tuple[int, ...]:
        """The numbers from the beginning to a branch: sorted by them, children follow their parent."""
        way: tuple[int, ...] = ()
        while at >= 0:
            way, at = (at, *way), self.branches[at].parent
        return way

    def _tree(self) -> Figure:
        rows = _rows(self.branches)
        nodes = [Node(0, rows[-1], "beginning", note="the beginning")]
        for at, one in enumerate(self.branches):
            nodes.append(Node(one.step, rows[at], f"“{one.symbol}”", note=one.told, below=f"{one.log:.2f}"))
        edges = [Edge(one.parent + 1, at + 1, one.group) for at, one in enumerate(self.branches)]
        ordered = [self.branches[at] for at in sorted(range(len(self.branches)), key=self._way)]
        outline = tuple(f"{'  ' * (one.step - 1)}{'●○×'[one.group]} {one.told}" for one in ordered)
        return OutlinedTree(title=self.title, nodes=nodes, edges=edges, groups=GROUPS, outline=outline)

    def _path(self) -> Figure:
        """The winner's log P along its symbols, and that of the best text that was dropped at each step."""
        path = [self.branches[number] for number in self.winner]
        lost: dict[int, float] = {}
        for branch in self.branches:
            if branch.fate == "dropped":
                lost[branch.step] = max(branch.log, lost.get(branch.step, -np.inf))
        series = [Series(name="the winner", x=[one.step for one in path], y=[one.log for one in path])]
        if lost:
            series.append(Series(name="the best that was dropped", x=sorted(lost), y=[lost[at] for at in sorted(lost)]))
        caption = f"{len(self.branches):,} texts are too many to draw: this is the way of the best one."
        return Line(title=self.title, series=series, x_label="symbols", y_label="log P", caption=caption)

    def _scores(self) -> Figure:
        best = self.answers[:MOST_ANSWERS]
        labels = [f"{at}. {text.strip() or 'nothing'}" for at, (text, _) in enumerate(best, start=1)]
        values = [score for _, score in best]
        return Bars(title="The answers", labels=labels, values=values, x_label="log P with its penalties")


def beam_tree(
    subject: Subject,
    reading: Reading,
    *,
    width: int = 4,
    longest: int | None = None,
    length_penalty: float = 1.0,
) -> BeamTreeView:
    """The tree of a beam search: what goes on with a text, or translates a source; all answers that are left."""
    if reading.said is None:
        raise ConfigError(
            f"a model for {subject.task.name} writes no text", fix="choose a language model or a translator"
        )
    how = BeamConfig(width=width, longest=longest, length_penalty=length_penalty)
    model: Any = subject.model
    watched: list[WatchedHunt] = []

    def hunting(*asked: Any) -> Hunt:
        watched.append(WatchedHunt(*asked))
        return watched[-1]

    with torch.no_grad(), still(model):
        state, prompt, most, tokenizer = _start(subject, reading, longest)
        stops = Stops((), tokenizer.decode)
        most = room(prompt, most, positions_of(model.config.decoder))
        ((best, *_),) = search(model, state, prompt, most, how, stops=stops, looks=None, never=NEVER, hunting=hunting)
    (hunt,) = watched
    if not hunt.rounds:
        raise DataError("nothing may be written: no position of the model is left", fix="give a shorter text")
    return BeamTreeView(
        title="The beam as a tree",
        branches=_branches(hunt.rounds, best, subject),
        answers=tuple((one.text, one.score) for one in sorted(hunt.found, key=lambda one: -one.score)),
        width=width,
    )


def _start(subject: Subject, reading: Reading, longest: int | None) -> tuple[Any, Padded, Tensor, Any]:
    """Where a search begins: state, prompt, how many symbols [1] may come, and the tokenizer that reads them."""
    model, task = subject.model, subject.task
    if isinstance(model, LanguageModel):  # after a text
        prompt: Padded = reading.inputs
        most = torch.full_like(prompt.lengths, longest or LONGEST)
        return model.initial_state(1), prompt, most, task.meaning.tokenizer
    assert isinstance(model, EncoderDecoder) and isinstance(task, Translate), "no other model writes"
    tokens = torch.tensor([len(reading.side("source").tokens)], device=subject.device)
    most = torch.full_like(tokens, longest) if longest else task.most_symbols(tokens)
    return model.initial_state(reading.inputs.source), begins(1, subject.device), most, task.tokenizer


def _branches(rounds: list[list[BeamStep]], best: Written, subject: Subject) -> tuple[Branch, ...]:
    every = [one for each in rounds for one in each]
    numbers = {one.symbols: number for number, one in enumerate(every)}
    said = tuple(best.symbols)
    winner = next(one.symbols for one in every if one.score == best.score and one.symbols in (said, (*said, END)))
    path = {winner[:stop] for stop in range(1, len(winner) + 1)}
    return tuple(
        Branch(
            parent=numbers.get(one.symbols[:-1], -1),
            step=len(one.symbols),
            symbol="END" if one.symbols[-1] == END else subject.name(one.symbols[-1]),
            log=one.log,
            score=one.score,
            fate=one.fate,
            wins=one.symbols in path,
        )
        for one in every
    )


def _rows(branches: tuple[Branch, ...]) -> dict[int, float]:
    """The row of each branch, -1 being the beginning: leaves below each other, parents in the middle of children."""
    children: dict[int, list[int]] = {}
    for at, branch in enumerate(branches):
        children.setdefault(branch.parent, []).append(at)
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
