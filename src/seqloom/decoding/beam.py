"""Beam search.

                      a ──▶ a a, a b, a END          each hypothesis times each token
    BEGIN ──▶ W best  b ──▶ b a, b b, b END   ──▶    keep the W likeliest; those that end are outputs

Log-probabilities never rise, so an unfinished hypothesis with log-probability s cannot become an output with a score
above s / length_penalty(most). The search ends when enough outputs are at least that good, without missing any.

If only END ends a text, the best 2 W candidates always contain W that continue. Stop strings may end any number of
them: then further candidates are examined until the beam is full, or until the next one could not win.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.config.decoding import BeamConfig
from seqloom.decoding.answers import (
    AttentionOf,
    GeneratedText,
    StepOutput,
    SteppedRows,
    Stops,
    WatchAttention,
    coverage_penalty,
    finish_reason,
    length_penalty,
    log_probabilities,
    read,
    read_tokens,
    written,
)
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded, select_rows
from seqloom.text.special_tokens import UNKNOWN

FURTHER = 8  # factor for the number of candidates if the first ones do not fill a beam


class Hypothesis(NamedTuple):
    """An unfinished text."""

    tokens: list[int]
    log: float  # log P of the tokens
    row: int  # index in the state


class Candidate(NamedTuple):
    """A hypothesis with one more token."""

    parent: Hypothesis
    token: int
    log: float


class BeamSearch:
    """The search for the outputs of one prompt."""

    def __init__(self, before: list[int], most: int, how: BeamConfig, stops: Stops) -> None:
        self.before, self.most, self.how, self.stops = before, most, how, stops
        self.beam: list[Hypothesis] = []
        self.found: list[GeneratedText] = [] if most > 0 else [GeneratedText([], 0.0, "length")]

    def advance(self, candidates: Iterable[Candidate], cost_of: Callable[[int], float]) -> None:
        """Keep the likeliest candidates, which come in this order; `cost_of(row)` is added to its score."""
        self.beam, width = [], self.how.beam_size
        for rank, (parent, token, log) in enumerate(candidates):
            if rank >= width and self._has_enough(len(parent.tokens) + 1, log):
                break
            tokens = [*parent.tokens, token]
            why = finish_reason(token, self.before, tokens, self.most, self.stops)
            if why is None and len(self.beam) < width:
                self.beam.append(Hypothesis(tokens, log, parent.row))
            elif why is not None and rank < width:
                score = log / length_penalty(len(tokens), self.how.length_penalty) + cost_of(parent.row)
                kept = tokens[:-1] if why == "end" else tokens
                self.found.append(written(self.before, kept, score, why, self.stops))
        if self.is_over():
            self.beam = []

    def _has_enough(self, length: int, log: float) -> bool:
        """Whether no further candidate is needed, given the length and the log-probability of the next one."""
        return len(self.beam) == self.how.beam_size or length >= self.most or self._is_hopeless(log)

    def is_over(self) -> bool:
        """Whether no hypothesis can become one of the best outputs."""
        return not self.beam or self._is_hopeless(max(one.log for one in self.beam))

    def _is_hopeless(self, log: float) -> bool:
        """Whether no continuation of a text with this log-probability can be one of the best outputs."""
        best = self.answers()
        hope = log / length_penalty(self.most, self.how.length_penalty)
        return len(best) == self.how.n_best and best[-1].score >= hope

    def answers(self) -> list[GeneratedText]:
        """The best outputs so far, the best first; equal texts count once."""
        different: dict[Any, GeneratedText] = {}
        for one in sorted(self.found, key=lambda one: -one.score):
            different.setdefault(self._identity(one), one)
        return list(different.values())[: self.how.n_best]

    def _identity(self, one: GeneratedText) -> Any:
        """What distinguishes outputs: text and number of unknown tokens, or the tokens without a tokenizer."""
        return tuple(one.tokens) if self.stops.decode is None else (one.text, one.tokens.count(UNKNOWN))


@torch.no_grad()
def search(
    model: SteppedRows,
    state: Any,
    prompt: Padded,
    most: Tensor,
    how: BeamConfig,
    *,
    stops: Stops,
    attention: WatchAttention | None,
    never: Sequence[int],
    new_search: Callable[[list[int], int, BeamConfig, Stops], BeamSearch] = BeamSearch,
) -> list[list[GeneratedText]]:
    """The best outputs of each row, the best first; `new_search` makes the search of a row."""
    rows = zip(prompt.values.tolist(), prompt.lengths.tolist(), most.tolist(), strict=True)
    searches = [new_search(tokens[:length], allowed, how, stops) for tokens, length, allowed in rows]
    has_room = most.to(prompt.lengths.device) > 0
    if bool(has_room.any()):
        with watched(how, attention) as attention_of:
            output, state = read(model, prompt.select(has_room), select_rows(state, has_room), attention_of)
            _Search(model, how, never, attention_of).run(
                [prompt_search for prompt_search in searches if prompt_search.most > 0], output, state
            )
    return [prompt_search.answers() for prompt_search in searches]


def watched(how: BeamConfig, attention: WatchAttention | None) -> Any:
    """The context in which attention is recorded, if the coverage penalty needs it."""
    if not how.coverage_penalty:
        return nullcontext(None)
    if attention is None:
        raise ConfigError(
            "a coverage penalty needs attention to the source, but this model has none",
            fix="set coverage_penalty = 0, or choose a model with attention to its source",
        )
    return attention()


class _Search:
    """The loop over steps for all prompts together: rows of the state are the hypotheses of all beams."""

    def __init__(
        self, model: SteppedRows, how: BeamConfig, never: Sequence[int], attention_of: AttentionOf | None
    ) -> None:
        self.model, self.how, self.never, self.attention_of = model, how, never, attention_of

    def run(self, searches: list[BeamSearch], output: StepOutput, state: Any) -> None:
        """Run every search to its end."""
        generated = torch.zeros_like(output.scores, dtype=torch.bool) if self.how.repetition_penalty > 1 else None
        covered = output.attention[0] if output.attention else None
        for row, prompt_search in enumerate(searches):
            prompt_search.beam = [Hypothesis([], 0.0, row)]
        owners = searches  # of the rows of the state
        while True:
            logs = log_probabilities(output.scores, generated, self.how.repetition_penalty, self.never)
            self._advance(searches, logs, covered)
            searches = [prompt_search for prompt_search in searches if prompt_search.beam]
            if not searches:
                return
            parents, tokens = _rows_of(searches, logs.device)
            before, owners = owners, [prompt_search for prompt_search in searches for _ in prompt_search.beam]
            state = select_rows(state, parents, same_inputs=owners == before)
            output, state = read_tokens(self.model, tokens, state, self.attention_of)
            generated = None if generated is None else generated[parents].scatter(1, tokens[:, None], True)
            covered = None if covered is None else covered[parents] + output.attention[0]

    def _advance(self, searches: list[BeamSearch], logs: Tensor, covered: Tensor | None) -> None:
        """Give each search its next beam."""
        costs = [] if covered is None else coverage_penalty(covered, self.how.coverage_penalty).tolist()
        for prompt_search, candidates in zip(
            searches, _candidates(searches, logs, 2 * self.how.beam_size), strict=True
        ):
            prompt_search.advance(candidates, lambda row: costs[row] if costs else 0.0)


def _candidates(searches: list[BeamSearch], logs: Tensor, count: int) -> Iterator[Iterator[Candidate]]:
    """The candidates of each search, the likeliest first: `count` from one top-k over all searches, more on demand.

    The likeliest of a search are among the likeliest of its rows, so few numbers are added up and compared.
    """
    width, tokens = max(len(prompt_search.beam) for prompt_search in searches), logs.shape[1]
    rows = [
        [one.row for one in prompt_search.beam] + [0] * (width - len(prompt_search.beam)) for prompt_search in searches
    ]
    sums = [
        [one.log for one in prompt_search.beam] + [-torch.inf] * (width - len(prompt_search.beam))
        for prompt_search in searches
    ]
    before = torch.tensor(sums, dtype=logs.dtype, device=logs.device)[:, :, None]  # [searches, width, 1]
    where = torch.tensor(rows, device=logs.device)  # [searches, width]
    of_rows, found = logs.topk(min(count, tokens))
    ends = found[where] + tokens * torch.arange(width, device=logs.device)[:, None]  # flat indices in [width, V]
    total = (before + of_rows[where]).flatten(1)
    values, order = total.topk(min(count, total.shape[1]))
    places = ends.flatten(1).gather(1, order)
    lists = zip(searches, before, where, values.tolist(), places.tolist(), strict=True)
    for prompt_search, earlier, own, *first in lists:
        further = _further(earlier, logs, own, first[1])
        yield _made(prompt_search.beam, chain(zip(*first, strict=True), further), tokens)


def _made(beam: list[Hypothesis], ranked: Iterable[tuple[float, int]], tokens: int) -> Iterator[Candidate]:
    """Candidates from log-probabilities and flat indices, up to the impossible ones."""
    for log, place in ranked:
        if log == -torch.inf:
            return
        yield Candidate(beam[place // tokens], place % tokens, log)


def _further(before: Tensor, logs: Tensor, rows: Tensor, first: Sequence[int]) -> Iterator[tuple[float, int]]:
    """The sums of a search and their flat indices, the largest first, without those in `first`."""
    seen, row = set(first), (before + logs[rows]).flatten()
    while len(seen) < len(row):
        values, places = row.topk(min(FURTHER * len(seen), len(row)))
        new = [one for one in zip(values.tolist(), places.tolist(), strict=True) if one[1] not in seen]
        yield from new  # not by rank: two calls of top-k may order equal values differently
        seen |= {place for _, place in new}


def _rows_of(searches: list[BeamSearch], device: torch.device) -> tuple[Tensor, Tensor]:
    """[N] the state row that each hypothesis continues from, and its last token; rows are renumbered."""
    every = [one for prompt_search in searches for one in prompt_search.beam]
    parents = torch.tensor([one.row for one in every], device=device)
    tokens = torch.tensor([one.tokens[-1] for one in every], device=device)
    numbers = iter(range(len(every)))
    for prompt_search in searches:
        prompt_search.beam = [one._replace(row=next(numbers)) for one in prompt_search.beam]
    return parents, tokens
