"""Beam search: several texts side by side, the likeliest of all their continuations kept, the best answer at the end.

                      a ──▶ a a, a b, a END          each hypothesis times each symbol
    BEGIN ──▶ W best  b ──▶ b a, b b, b END   ──▶    the W likeliest go on; those that end are answers

Log-probabilities never rise, so an unfinished hypothesis of log-probability s can become no answer better than
s / length_penalty(longest): when enough answers are at least that good, the search is over, and nothing was missed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.config.decoding import BeamConfig
from seqloom.decoding.drafts import Stops, Written, ended, written
from seqloom.decoding.scoring import coverage_penalty, length_penalty, log_probabilities
from seqloom.decoding.stepping import Heard, Looked, Looking, Stepped, read, read_symbols
from seqloom.errors import ConfigError
from seqloom.types import Padded, select_rows


class Hypothesis(NamedTuple):
    """A text that is not finished."""

    symbols: list[int]
    log: float  # log P of the symbols
    row: int  # of the state


class Candidate(NamedTuple):
    """A hypothesis and one symbol more."""

    parent: Hypothesis
    symbol: int
    log: float


class Hunt:
    """The search for the answers to one prompt."""

    def __init__(self, before: list[int], most: int, how: BeamConfig, stops: Stops) -> None:
        self.before, self.most, self.how, self.stops = before, most, how, stops
        self.beam: list[Hypothesis] = []
        self.found: list[Written] = [] if most > 0 else [Written([], 0.0, "longest")]

    def go_on(self, candidates: list[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the likeliest candidates, which come in that order; `cost_of` a row is what is added to an answer."""
        self.beam, width = [], self.how.width
        for rank, (parent, symbol, log) in enumerate(candidates):
            symbols = [*parent.symbols, symbol]
            why = ended(symbol, self.before, symbols, self.most, self.stops)
            if why is None and len(self.beam) < width:
                self.beam.append(Hypothesis(symbols, log, parent.row))
            elif why is not None and rank < width:
                score = log / length_penalty(len(symbols), self.how.length_penalty) + cost_of(parent.row)
                kept = symbols[:-1] if why == "end" else symbols
                self.found.append(written(self.before, kept, score, why, self.stops))
        if self.is_over():
            self.beam = []

    def is_over(self) -> bool:
        """Whether no hypothesis can become one of the best answers any more."""
        best = self.answers()
        if not self.beam or len(best) < self.how.best:
            return not self.beam
        hope = max(one.log for one in self.beam) / length_penalty(self.most, self.how.length_penalty)
        return best[-1].score >= hope

    def answers(self) -> list[Written]:
        """The best answers so far, the best first."""
        return sorted(self.found, key=lambda one: -one.score)[: self.how.best]


@torch.no_grad()
def search(
    model: Stepped,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: BeamConfig,
    *,
    stops: Stops,
    looks: Looking | None,
    never: Sequence[int],
) -> list[list[Written]]:
    """The best answers to each row, the best first."""
    rows = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    hunts = [Hunt(symbols[:length], allowed, how, stops) for symbols, length, allowed in rows]
    has_room = most.to(prompt.lengths.device) > 0
    if bool(has_room.any()):
        with watched(how, looks) as looked:
            heard, state = read(model, prompt.select(has_room), select_rows(state, has_room), looked)
            _Search(model, how, never, looked).run([hunt for hunt in hunts if hunt.most > 0], heard, state)
    return [hunt.answers() for hunt in hunts]


def watched(how: BeamConfig, looks: Looking | None) -> Any:
    """The context in which a model is watched, if the coverage penalty asks for it."""
    if not how.coverage_penalty:
        return nullcontext(None)
    if looks is None:
        raise ConfigError(
            "a coverage penalty counts how often each element of the source is looked at, and this model looks at none",
            fix="set coverage_penalty = 0, or take a model with attention to its source",
        )
    return looks()


class _Search:
    """The loop of a search, for all prompts at once: rows of the state are the hypotheses of all beams."""

    def __init__(self, model: Stepped, how: BeamConfig, never: Sequence[int], looked: Looked | None) -> None:
        self.model, self.how, self.never, self.looked = model, how, never, looked

    def run(self, hunts: list[Hunt], heard: Heard, state: Any) -> None:
        """Nothing; every hunt has its answers."""
        said = torch.zeros_like(heard.scores, dtype=torch.bool) if self.how.repetition > 1 else None
        covered = heard.looks[0] if heard.looks else None
        for row, hunt in enumerate(hunts):
            hunt.beam = [Hypothesis([], 0.0, row)]
        while True:
            logs = log_probabilities(heard.scores, said, self.how.repetition, self.never)
            self._go_on(hunts, logs, covered)
            hunts = [hunt for hunt in hunts if hunt.beam]
            if not hunts:
                return
            parents, symbols = _rows_of(hunts, logs.device)
            heard, state = read_symbols(self.model, symbols, select_rows(state, parents), self.looked)
            said = None if said is None else said[parents].scatter(1, symbols[:, None], True)
            covered = None if covered is None else covered[parents] + heard.looks[0]

    def _go_on(self, hunts: list[Hunt], logs: Tensor, covered: Tensor | None) -> None:
        """Nothing; each hunt has its next beam."""
        costs = [] if covered is None else coverage_penalty(covered, self.how.coverage_penalty).tolist()
        for hunt, candidates in zip(hunts, _candidates(hunts, logs, 2 * self.how.width), strict=True):
            hunt.go_on(candidates, lambda row: costs[row] if costs else 0.0)


def _candidates(hunts: list[Hunt], logs: Tensor, count: int) -> Iterator[list[Candidate]]:
    """For each hunt its likeliest candidates, the likeliest first.

    Twice the width is enough: each hypothesis ends in one way, so as many as the width go on.
    """
    width, symbols = max(len(hunt.beam) for hunt in hunts), logs.shape[1]
    rows = [[one.row for one in hunt.beam] + [0] * (width - len(hunt.beam)) for hunt in hunts]
    sums = [[one.log for one in hunt.beam] + [-torch.inf] * (width - len(hunt.beam)) for hunt in hunts]
    before = torch.tensor(sums, dtype=logs.dtype, device=logs.device)  # [hunts, width]
    total = before[:, :, None] + logs[torch.tensor(rows, device=logs.device)]  # [hunts, width, V]
    values, places = total.flatten(1).topk(min(count, width * symbols))
    for hunt, logs_of, places_of in zip(hunts, values.tolist(), places.tolist(), strict=True):
        found = [(place, log) for place, log in zip(places_of, logs_of, strict=True) if log > -torch.inf]
        yield [Candidate(hunt.beam[place // symbols], place % symbols, log) for place, log in found]


def _rows_of(hunts: list[Hunt], device: torch.device) -> tuple[Tensor, Tensor]:
    """[N] the row of the state that each hypothesis of all beams goes on from, and its last symbol; rows count anew."""
    every = [one for hunt in hunts for one in hunt.beam]
    parents = torch.tensor([one.row for one in every], device=device)
    symbols = torch.tensor([one.symbols[-1] for one in every], device=device)
    numbers = iter(range(len(every)))
    for hunt in hunts:
        hunt.beam = [one._replace(row=next(numbers)) for one in hunt.beam]
    return parents, symbols
