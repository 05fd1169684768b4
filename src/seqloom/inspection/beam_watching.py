"""A beam search that is watched: every candidate that it looked at, and what became of it.

`seqloom.decoding.beam.search` takes the class of its hunts. This one hunts as ever and remembers, so what it tells is
what happened.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from seqloom.decoding.beam import Candidate, Hunt
from seqloom.decoding.drafts import Written, ended

Fate = Literal["went on", "answer", "dropped", "given up"]
FATES: tuple[Fate, ...] = ("went on", "answer", "dropped", "given up")


class Looked(NamedTuple):
    """A candidate, and what became of it."""

    symbols: tuple[int, ...]
    log: float
    score: float | None
    fate: Fate


class WatchedHunt(Hunt):
    """A hunt that remembers every candidate it looked at."""

    def __init__(self, *asked: Any) -> None:
        super().__init__(*asked)
        self.rounds: list[list[Looked]] = []

    def go_on(self, candidates: Iterable[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the likeliest, as ever, and remember all."""
        seen: list[Candidate] = []
        before = len(self.found)
        super().go_on(_remembered(candidates, seen), cost_of)
        scores = iter(self.found[before:])
        self.rounds.append([self._looked(rank, one, scores) for rank, one in enumerate(seen)])

    def _looked(self, rank: int, one: Candidate, scores: Iterator[Written]) -> Looked:
        symbols = (*one.parent.symbols, one.symbol)
        ends = ended(one.symbol, self.before, list(symbols), self.most, self.stops) is not None
        if ends and rank < self.how.width:
            return Looked(symbols, one.log, next(scores).score, "answer")
        if tuple(symbols) in {tuple(kept.symbols) for kept in self.beam}:
            return Looked(symbols, one.log, None, "went on")
        return Looked(symbols, one.log, None, "given up" if not self.beam and not ends else "dropped")


def _remembered(candidates: Iterable[Candidate], seen: list[Candidate]) -> Iterator[Candidate]:
    for one in candidates:
        seen.append(one)
        yield one
