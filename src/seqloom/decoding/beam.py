"""Beam search: several texts side by side, the likeliest of all their continuations kept, the best answer at the end.

                      a ──▶ a a, a b, a END          each hypothesis times each symbol
    BEGIN ──▶ W best  b ──▶ b a, b b, b END   ──▶    the W likeliest go on; those that end are answers

Log-probabilities never rise, so an unfinished hypothesis of log-probability s can become no answer better than
s / length_penalty(longest): when enough answers are at least that good, the search is over, and nothing was missed.

Where END alone ends a text, twice the width of candidates are enough for so many to go on. A stop string may end any
number of them: then further ones are looked at until the beam is full, or until the next could not win any more.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.config.decoding import BeamConfig
from seqloom.decoding.answers import (
    Heard,
    Looked,
    Looking,
    SteppedRows,
    Stops,
    Written,
    coverage_penalty,
    ended,
    length_penalty,
    log_probabilities,
    read,
    read_symbols,
    written,
)
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded, select_rows
from seqloom.text.special_tokens import UNKNOWN

FURTHER = 8  # times as many candidates are looked at where those that were do not fill a beam


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

    def go_on(self, candidates: Iterable[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the likeliest candidates, which come in that order; `cost_of` a row is what is added to an answer."""
        self.beam, width = [], self.how.width
        for rank, (parent, symbol, log) in enumerate(candidates):
            if rank >= width and self._has_enough(len(parent.symbols) + 1, log):
                break
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

    def _has_enough(self, length: int, log: float) -> bool:
        """Whether no further candidate of this length is wanted, of which the likeliest has this log-probability."""
        return len(self.beam) == self.how.width or length >= self.most or self._is_hopeless(log)

    def is_over(self) -> bool:
        """Whether no hypothesis can become one of the best answers any more."""
        return not self.beam or self._is_hopeless(max(one.log for one in self.beam))

    def _is_hopeless(self, log: float) -> bool:
        """Whether a text of this log-probability, gone on with, can be none of the best answers."""
        best = self.answers()
        hope = log / length_penalty(self.most, self.how.length_penalty)
        return len(best) == self.how.best and best[-1].score >= hope

    def answers(self) -> list[Written]:
        """The best answers so far, the best first; a text that was found in several ways is one answer."""
        different: dict[Any, Written] = {}
        for one in sorted(self.found, key=lambda one: -one.score):
            different.setdefault(self._said(one), one)
        return list(different.values())[: self.how.best]

    def _said(self, one: Written) -> Any:
        """What tells an answer from others: its text, in which UNKNOWN cannot be seen; else its symbols."""
        return tuple(one.symbols) if self.stops.decode is None else (one.text, one.symbols.count(UNKNOWN))


@torch.no_grad()
def search(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: BeamConfig,
    *,
    stops: Stops,
    looks: Looking | None,
    never: Sequence[int],
    hunting: Callable[[list[int], int, BeamConfig, Stops], Hunt] = Hunt,
) -> list[list[Written]]:
    """The best answers to each row, the best first; `hunting` makes the hunt of a row, so that one can be watched."""
    rows = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    hunts = [hunting(symbols[:length], allowed, how, stops) for symbols, length, allowed in rows]
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

    def __init__(self, model: SteppedRows, how: BeamConfig, never: Sequence[int], looked: Looked | None) -> None:
        self.model, self.how, self.never, self.looked = model, how, never, looked

    def run(self, hunts: list[Hunt], heard: Heard, state: Any) -> None:
        """Give every hunt its answers."""
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
        """Give each hunt its next beam."""
        costs = [] if covered is None else coverage_penalty(covered, self.how.coverage_penalty).tolist()
        for hunt, candidates in zip(hunts, _candidates(hunts, logs, 2 * self.how.width), strict=True):
            hunt.go_on(candidates, lambda row: costs[row] if costs else 0.0)


def _candidates(hunts: list[Hunt], logs: Tensor, count: int) -> Iterator[Iterator[Candidate]]:
    """For each hunt its candidates, the likeliest first: `count` of them from one look at all hunts, more if asked."""
    width, symbols = max(len(hunt.beam) for hunt in hunts), logs.shape[1]
    rows = [[one.row for one in hunt.beam] + [0] * (width - len(hunt.beam)) for hunt in hunts]
    sums = [[one.log for one in hunt.beam] + [-torch.inf] * (width - len(hunt.beam)) for hunt in hunts]
    before = torch.tensor(sums, dtype=logs.dtype, device=logs.device)  # [hunts, width]
    total = before[:, :, None] + logs[torch.tensor(rows, device=logs.device)]  # [hunts, width, V]
    every = total.flatten(1)
    values, places = every.topk(min(count, width * symbols))
    for hunt, row, *first in zip(hunts, every, values.tolist(), places.tolist(), strict=True):
        yield _made(hunt.beam, chain(zip(*first, strict=True), _further(row, first[1])), symbols)


def _made(beam: list[Hypothesis], ranked: Iterable[tuple[float, int]], symbols: int) -> Iterator[Candidate]:
    """Candidates of log-probabilities and places among `symbols` of each hypothesis, up to the impossible ones."""
    for log, place in ranked:
        if log == -torch.inf:
            return
        yield Candidate(beam[place // symbols], place % symbols, log)


def _further(row: Tensor, first: Sequence[int]) -> Iterator[tuple[float, int]]:
    """The values of a row [N] and their places, the largest first, without the places that were first."""
    seen = set(first)
    while len(seen) < len(row):
        values, places = row.topk(min(FURTHER * len(seen), len(row)))
        new = [one for one in zip(values.tolist(), places.tolist(), strict=True) if one[1] not in seen]
        yield from new  # not by rank: which of equal values are among the first, no two looks agree on
        seen |= {place for _, place in new}


def _rows_of(hunts: list[Hunt], device: torch.device) -> tuple[Tensor, Tensor]:
    """[N] the row of the state that each hypothesis of all beams goes on from, and its last symbol; rows count anew."""
    every = [one for hunt in hunts for one in hunt.beam]
    parents = torch.tensor([one.row for one in every], device=device)
    symbols = torch.tensor([one.symbols[-1] for one in every], device=device)
    numbers = iter(range(len(every)))
    for hunt in hunts:
        hunt.beam = [one._replace(row=next(numbers)) for one in hunt.beam]
    return parents, symbols
